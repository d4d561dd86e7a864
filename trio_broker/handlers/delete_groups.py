"""DeleteGroups: delete groups without members, and their committed offsets.

Source: Kafka's KafkaApis.handleDeleteGroupsRequest; KIP-229.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import count_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DELETE_GROUP, ForEach, itself


def error_response(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    group_ids = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=str(error))
            for group_id in group_ids
        ]
    )


@handles(
    DeleteGroupsRequest,
    error_response=error_response,
    requires=[ForEach([DELETE_GROUP], "groups_names", "results", itself)],
)
async def delete_groups(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    """Delete each group, named once or more, or answer with its error."""
    group_ids = list(await run_steps(count_in_turns(request.groups_names)))
    return DeleteGroupsResponse(results=await context.services.groups.delete_groups(group_ids, context.release_handler))
