"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource is changed as a whole or refused alone.

Levels of loggers are set here, on the broker that is asked; all other changes go to the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.configuration_control import ConfigChange, parse_resource
from trio_broker.cluster.logger_levels import change_levels
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, clear_in_turns, count_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import LocalPart


class NamesResource(Protocol):
    """A resource in a request of either API."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]: ...


MAX_SETTINGS_PER_RESOURCE: Final = 2000
"""Settings of one resource in a request: some times the keys, and the loggers, that there are."""

R = TypeVar("R", bound=NamesResource)
A = TypeVar("A")


async def change_resources(
    resources: Sequence[R],
    read_change: Callable[[R, ConfigResource], ConfigChange],
    response: Callable[..., A],
    context: Context,
    *,
    validate_only: bool,
) -> list[A]:
    """Change each resource as ``read_change`` says; return a ``response`` for each, in order."""
    services = context.services
    counts = await run_steps(count_in_turns((resource.resource_type, resource.resource_name) for resource in resources))
    changes: dict[int, ConfigChange] = {}
    errors: dict[int, KafkaError] = {}
    # All valid changes go to the controller in one call, which is one append to the metadata log and one publication.
    async for index, resource in InTurns(enumerate(resources)):
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError("a resource is named twice in one request", code=ErrorCode.INVALID_REQUEST)
            if len(resource.configs) > MAX_SETTINGS_PER_RESOURCE:
                text = f"{len(resource.configs)} settings of one resource are more than {MAX_SETTINGS_PER_RESOURCE}"
                raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
            change = read_change(resource, parse_resource(resource.resource_type, resource.resource_name))
            if change.resource.type is ConfigResourceType.BROKER_LOGGER:
                change_levels(change, services.config, services.changes, validate_only=validate_only)
            else:
                changes[index] = change
        except KafkaError as error:
            errors[index] = error.with_traceback(None)  # which would be in a cycle with this function's variables
    context.release_for_disk()
    outcome = await services.controller.change_configs(list(changes.values()), validate_only=validate_only)
    # Refused resources are not among ``changes``, whose keys are the places of the others in the request.
    results = zip(changes, outcome.results, strict=True)
    errors |= {index: result async for index, result in InTurns(results) if isinstance(result, KafkaError)}
    responses = [
        resource_response(response, resource, errors.get(index))
        async for index, resource in InTurns(enumerate(resources))
    ]
    await run_steps(clear_in_turns(changes, errors, counts))
    return responses


def split_loggers(request: Any) -> tuple[Any | None, Any | None]:
    """What of a request of either API is about loggers of this broker, and what is for the controller."""
    loggers = [each for each in request.resources if each.resource_type == ConfigResourceType.BROKER_LOGGER]
    if not loggers:
        return None, request
    rest = [each for each in request.resources if each.resource_type != ConfigResourceType.BROKER_LOGGER]
    return attrs.evolve(request, resources=loggers), attrs.evolve(request, resources=rest) if rest else None


def join_responses(own: Any, of_controller: Any) -> Any:
    """One response of both."""
    return attrs.evolve(own, responses=[*own.responses, *of_controller.responses])


LOGGERS: Final = LocalPart(split_loggers, join_responses)
"""Levels of loggers are no metadata: the broker whose loggers they are sets them itself."""


def resource_response(response: Callable[..., A], resource: NamesResource, error: KafkaError | None) -> A:
    """The ``response`` of either API to the changes of one resource."""
    return response(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
