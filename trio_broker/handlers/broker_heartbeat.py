"""BrokerHeartbeat: keep a broker of several registered, and say what it is to do.

Source: Kafka's ControllerApis.handleBrokerHeartBeatRequest and BrokerHeartbeatManager; KIP-631.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, for_cluster


def error_response(request: BrokerHeartbeatRequest, error: KafkaError) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=error.code)


@handles(
    BrokerHeartbeatRequest,
    error_response=error_response,
    requires=[for_cluster(CLUSTER_ACTION)],
    by_controller=True,
    between_brokers=True,
)
async def broker_heartbeat(request: BrokerHeartbeatRequest, context: Context) -> BrokerHeartbeatResponse:
    """Take note that a broker is alive, and answer with what it is to do."""
    offline_log_dirs = {directory async for directory in InTurns(request.offline_log_dirs)}
    context.release_for_disk()
    reply = await context.services.controller.heartbeat(
        BrokerHeartbeat(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            current_metadata_offset=request.current_metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_log_dirs=offline_log_dirs,
        )
    )
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
    )
