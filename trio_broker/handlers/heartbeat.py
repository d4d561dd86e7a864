"""Heartbeat: a member of a classic group says that it lives, and hears whether the group rebalances.

The commonest request of a group, so there is nothing here but the way to the coordinator.

Source: Kafka's KafkaApis.handleHeartbeatRequest and GroupCoordinatorService.heartbeat.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles


def error_response(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    # While its group is still being loaded, a member is simply alive: sessions begin anew when that is done.
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)


@handles(HeartbeatRequest, error_response=error_response)
async def heartbeat(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Keep a member's session alive, and tell it of a rebalance."""
    return await context.services.groups.call(
        request.group_id, request, context.request_context, context.release_handler
    )
