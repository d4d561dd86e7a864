"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource is changed as a whole or refused alone.

Levels of loggers are set here, on the broker that is asked; all other changes go to the controller. One of several
brokers first checks those of its own settings and of the cluster's defaults against what it alone knows, its file and
its keys, and refuses those of another broker, which has to be asked.

Source: Kafka's ConfigAdminManager.preprocess.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.configuration_control import (
    ConfigChange,
    parse_resource,
    refusal_here,
    require_own_resource,
)
from trio_broker.cluster.logger_levels import change_levels
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, clear_in_turns, count_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.forwarding import ForwardedRequest
from trio_broker.handlers.support.registry import LocalPart
from trio_broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS


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
            elif (refusal := await refusal_of_broker_asked(change, context)) is not None:
                errors[index] = refusal
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


async def refusal_of_broker_asked(change: ConfigChange, context: Context) -> KafkaError | None:
    """Why the broker that a client has asked refuses a change of a broker's settings, if it does. A broker alone is its
    own controller, which finds that, and what was sent on was asked about where it came from."""
    services = context.services
    is_asked = services.controller_channel is not None and not isinstance(context.request, ForwardedRequest)
    if change.resource.type is not ConfigResourceType.BROKER or not is_asked:
        return None
    try:
        require_own_resource(services.config, change.resource)
    except KafkaError as error:
        return error.with_traceback(None)
    image = services.metadata_cache.image
    return await refusal_here(image, services.config, services.runtime.workers, change)


def of_broker_asked(read_change: Callable[[Any, ConfigResource], ConfigChange]) -> LocalPart:
    """What of a request of either API is for the broker that is asked: levels of its loggers, and what it refuses."""

    async def is_own(resource: NamesResource, context: Context) -> bool:
        if resource.resource_type != ConfigResourceType.BROKER:
            return resource.resource_type == ConfigResourceType.BROKER_LOGGER
        # A client without the right learns nothing of files, and is refused by the controller.
        if not context.may(ALTER_CLUSTER_CONFIGS, is_audited=False):
            return False
        if len(resource.configs) > MAX_SETTINGS_PER_RESOURCE:
            return True
        try:
            change = read_change(resource, parse_resource(resource.resource_type, resource.resource_name))
        except KafkaError:
            return True
        return await refusal_of_broker_asked(change, context) is not None

    async def split(request: Any, context: Context) -> tuple[Any | None, Any | None]:
        of_brokers = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        own: set[tuple[int, str]] = set()
        async for each in InTurns(request.resources):
            if each.resource_type in of_brokers and await is_own(each, context):
                own.add((each.resource_type, each.resource_name))
        if not own:
            return None, request
        parts: tuple[list[Any], list[Any]] = ([], [])
        async for each in InTurns(request.resources):
            parts[(each.resource_type, each.resource_name) not in own].append(each)
        here, there = parts
        return attrs.evolve(request, resources=here), attrs.evolve(request, resources=there) if there else None

    return LocalPart(split, join_responses)


def join_responses(own: Any, of_controller: Any) -> Any:
    """One response of both."""
    return attrs.evolve(own, responses=[*own.responses, *of_controller.responses])


def resource_response(response: Callable[..., A], resource: NamesResource, error: KafkaError | None) -> A:
    """The ``response`` of either API to the changes of one resource."""
    return response(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
