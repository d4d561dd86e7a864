"""DescribeClientQuotas: the quotas that are set, as far as a filter matches them.

Source: Kafka's ClientQuotasImage.describe.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER_CONFIGS, for_cluster
from trio_broker.quota.client_quotas import CLIENT_ID, IP, USER, Entity

EXACT, DEFAULT, SPECIFIED = range(3)
MATCH_TYPES = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
"""How a component of a filter matches, by the number in the request."""


def error_response(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)


@handles(DescribeClientQuotasRequest, error_response=error_response, requires=[for_cluster(DESCRIBE_CLUSTER_CONFIGS)])
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: Context
) -> DescribeClientQuotasResponse:
    """List the quotas of the entities that the filter matches."""
    require_filter(request.components)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(entity, key=str)],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
        async for entity, values in InTurns(context.services.quotas.quotas.of_entities.items())
        if matches(entity, request.components, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def matches(entity: Entity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    """Whether each component finds its type in ``entity``; with ``strict`` there are no further ones."""
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(each.entity_type in names and component_matches(each, names[each.entity_type]) for each in components)


def component_matches(component: ComponentData, name: str | None) -> bool:
    return component.match_type == SPECIFIED or name == (component.match if component.match_type == EXACT else None)


def require_filter(components: Sequence[ComponentData]) -> None:
    """Refuse a filter that Kafka refuses as contradictory or unknown.

    Raises:
        KafkaError: INVALID_REQUEST, or UNSUPPORTED_VERSION: a type of entity that is not Kafka's.
    """
    types: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if entity_type in types:
            raise invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
        require_component(component)
        types.add(entity_type)
    if IP in types and len(types) > 1:
        raise invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component."
        )


def require_component(component: ComponentData) -> None:
    """Check one component by itself; errors as ``require_filter``."""
    if not component.entity_type:
        raise invalid("Invalid empty entity type.")
    if component.entity_type not in (USER, CLIENT_ID, IP):
        raise KafkaError(f"Unsupported entity type {component.entity_type}", code=ErrorCode.UNSUPPORTED_VERSION)
    match_type = MATCH_TYPES.get(component.match_type)
    if match_type is None:
        raise invalid(f"Unknown match type {component.match_type}")
    if component.match_type == EXACT and component.match is None:
        raise invalid(f"Request specified {match_type}, but set match string to null.")
    if component.match_type != EXACT and component.match is not None:
        raise invalid(f"Request specified {match_type}, but also specified a match string.")


def invalid(reason: str) -> KafkaError:
    return KafkaError(reason, code=ErrorCode.INVALID_REQUEST)
