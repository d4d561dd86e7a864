"""BrokerHeartbeat: note that a broker is alive, and say what it is to do, as the controller.

Source: Kafka's ControllerApis.handleBrokerHeartBeatRequest and ReplicationControlManager.processBrokerHeartbeat.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.controller_requests import require_controller
from trio_broker.handlers.support.registry import handles


def error_response(request: BrokerHeartbeatRequest, error: KafkaError) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=error.code)


@handles(BrokerHeartbeatRequest, error_response=error_response, between_brokers=True)
async def broker_heartbeat(request: BrokerHeartbeatRequest, context: Context) -> BrokerHeartbeatResponse:
    """Answer whether the broker may serve, waits, or may end."""
    require_controller(context)
    context.release_for_disk()
    reply = await context.services.controller.heartbeat(
        BrokerHeartbeat(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            current_metadata_offset=request.current_metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_log_dirs=tuple(request.offline_log_dirs),
        )
    )
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
    )
