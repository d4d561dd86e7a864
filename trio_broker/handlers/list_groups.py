"""ListGroups: the groups of this broker, by state and by type if the client wants.

Source: Kafka's KafkaApis.handleListGroupsRequest and GroupMetadataManager.listGroups.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP, InHandler


def error_response(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code, groups=[])


@handles(
    ListGroupsRequest,
    error_response=error_response,
    requires=[InHandler([DESCRIBE_CLUSTER, DESCRIBE_GROUP], "left out, without the first")],
)
async def list_groups(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    """List the groups in the states and of the types asked for."""
    # Names may be in any case. An unknown name is no error: no group matches it.
    states = {state.lower() async for state in InTurns(request.states_filter)}
    types = {name.lower() async for name in InTurns(request.types_filter)}
    groups = context.services.groups.list_groups(states, types)
    sees_all = context.may(DESCRIBE_CLUSTER, is_audited=False)
    return ListGroupsResponse(
        groups=[
            group
            async for group in InTurns(groups)
            if sees_all or context.may(DESCRIBE_GROUP, group.group_id, is_audited=False)
        ]
    )
