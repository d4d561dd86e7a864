"""DescribeCluster: the nodes of the cluster, its id, its controller.

The controller named is a live broker, which takes every administrative request itself (KIP-590).

Source: Kafka's KafkaApis.handleDescribeCluster; KIP-700, KIP-919 for endpoint types.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from trio_broker.handlers.support.authorized_operations import cluster_operations
from trio_broker.handlers.support.broker_nodes import broker_nodes, controller_for_clients
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, InHandler

BROKERS_ENDPOINT = 1
CONTROLLERS_ENDPOINT = 2
"""What a client may ask about. Controllers answer on a listener of their own."""


def error_response(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=str(error),
        endpoint_type=request.endpoint_type,
        cluster_id="",
        brokers=[],
    )


@handles(
    DescribeClusterRequest,
    error_response=error_response,
    requires=[InHandler([DESCRIBE_CLUSTER], "no authorized operations")],
)
async def describe_cluster(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    """Describe the brokers that the client can reach by a listener of the same name."""
    # A client bootstrapped for controllers must not take this address for one of theirs (KIP-919).
    if request.endpoint_type != BROKERS_ENDPOINT:
        raise KafkaError(
            f"this listener knows brokers (endpoint type {BROKERS_ENDPOINT}), not type {request.endpoint_type}",
            code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS_ENDPOINT
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        )
    services = context.services
    image = services.metadata_cache.image
    brokers = broker_nodes(image, context.connection, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        endpoint_type=BROKERS_ENDPOINT,
        cluster_id=services.node.cluster_id,
        controller_id=controller_for_clients(services.node.node_id, broker_nodes(image, context.connection)),
        brokers=[
            DescribeClusterBroker(
                broker_id=each.broker_id,
                host=each.host,
                port=each.port,
                rack=each.rack,
                is_fenced=image.brokers[each.broker_id].fenced,
            )
            for each in brokers
        ],
        cluster_authorized_operations=cluster_operations(context, asked=request.include_cluster_authorized_operations),
    )
