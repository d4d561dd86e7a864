"""ConsumerGroupHeartbeat: the one request by which a KIP-848 member joins, keeps its session, acknowledges
assignments and leaves.

Source: Kafka's KafkaApis.handleConsumerGroupHeartbeat.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from trio_broker.cluster.features import require_consumer_protocol
from trio_broker.concurrency.steps import Steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_TOPIC, READ_GROUP, InHandler, for_group


def error_response(request: ConsumerGroupHeartbeatRequest, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))


@handles(
    ConsumerGroupHeartbeatRequest,
    error_response=error_response,
    requires=[
        for_group(READ_GROUP),
        InHandler(
            [DESCRIBE_TOPIC], "a subscription by name: TOPIC_AUTHORIZATION_FAILED; by a pattern the topic is left out"
        ),
    ],
)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> Steps[ConsumerGroupHeartbeatResponse]:
    """Renew a member's session, and answer with its assignment when that has changed."""
    protocols = context.services.config.group_coordinator.group_coordinator_rebalance_protocols
    # Before the group's id is checked, as in KafkaApis.handleConsumerGroupHeartbeat.
    require_consumer_protocol(context.services.metadata_cache.image, protocols)
    if not request.group_id:
        raise KafkaError("the group's id is empty", code=ErrorCode.INVALID_REQUEST)
    if context.services.authorizer is not None:
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            context.require(DESCRIBE_TOPIC, name)
    return context.call_group(request.group_id, request)
