"""DescribeQuorum: the leader of the metadata log, its epoch and its end offset.

The controller is the leader and the only voter; other brokers, which read what it has appended, are observers, as far
as their last heartbeats say. A leader is always caught up with itself, so both its times are now, as in Kafka. The
controller takes requests on the same listeners as the broker; the answer has the one of the client's connection.

Source: Kafka's KafkaRaftClient.handleDescribeQuorumRequest and LeaderState.describeReplicaState; KIP-595, KIP-836,
KIP-853.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafka_wire.primitives import NO_UUID
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.handlers.support.broker_nodes import broker_node
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, for_cluster

UNKNOWN = -1

DIRECTORIES_AND_NODES_SINCE_VERSION = 2


def error_response(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=str(error), topics=[])


@handles(
    DescribeQuorumRequest, error_response=error_response, requires=[for_cluster(DESCRIBE_CLUSTER)], by_controller=True
)
async def describe_quorum(request: DescribeQuorumRequest, context: Context) -> DescribeQuorumResponse:
    """Describe the quorum of the metadata log, which is the controller alone."""
    budget = YieldBudget()
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            partitions.append(await describe_partition(topic.topic_name, asked.partition_index, context))
            await budget.maybe_yield()
        topics.append(TopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(
        topics=topics,
        nodes=[await describe_leader(context)] if context.version >= DIRECTORIES_AND_NODES_SINCE_VERSION else [],
    )


async def describe_partition(topic: str, index: int, context: Context) -> PartitionData:
    """The quorum of one partition, or UNKNOWN_TOPIC_OR_PARTITION for all but the metadata log's."""
    if (topic, index) != (CLUSTER_METADATA_TOPIC, 0):
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only {CLUSTER_METADATA_TOPIC}-0 has a quorum",
            leader_id=UNKNOWN,
            leader_epoch=UNKNOWN,
            high_watermark=UNKNOWN,
            current_voters=[],
            observers=[],
        )
    quorum, now_ms = await context.services.controller.describe_quorum(), context.services.clock.now_ms()
    has_directories = context.version >= DIRECTORIES_AND_NODES_SINCE_VERSION
    voter = ReplicaState(
        replica_id=quorum.leader_id,
        replica_directory_id=quorum.directory_id if has_directories else NO_UUID,
        log_end_offset=quorum.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=index,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[voter],
        observers=[
            ReplicaState(replica_id=broker_id, log_end_offset=end_offset)
            for broker_id, end_offset in quorum.observers.items()
        ],
    )


async def describe_leader(context: Context) -> Node:
    quorum = await context.services.controller.describe_quorum()
    node, name = broker_node(context, quorum.leader_id), context.connection.listener_name
    listeners = [] if node is None else [Listener(name=name, host=node.host, port=node.port)]
    return Node(node_id=quorum.leader_id, listeners=listeners)
