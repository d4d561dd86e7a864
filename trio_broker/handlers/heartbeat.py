"""Heartbeat: renew the session of a classic group's member, and answer whether the group rebalances.

The most frequent request of a group, so the handler does nothing but call the coordinator.

Source: Kafka's KafkaApis.handleHeartbeatRequest and GroupCoordinatorService.heartbeat.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trio_broker.concurrency.steps import Steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_GROUP, for_group


def error_response(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    # While its group is being loaded every member is treated as alive, as in Kafka: all sessions start when loading
    # ends.
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)


@handles(HeartbeatRequest, error_response=error_response, requires=[for_group(READ_GROUP)])
def heartbeat(request: HeartbeatRequest, context: Context) -> Steps[HeartbeatResponse]:
    """Renew a member's session; REBALANCE_IN_PROGRESS tells it to join again."""
    return context.call_group(request.group_id, request)
