"""ListPartitionReassignments: the partitions on their way to other brokers.

Partitions that do not exist are left out of the answer, as are those that stand still.

Source: Kafka's ReplicationControlManager.listPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, for_cluster


def error_response(request: ListPartitionReassignmentsRequest, error: KafkaError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error), topics=[])


@handles(
    ListPartitionReassignmentsRequest,
    error_response=error_response,
    requires=[for_cluster(DESCRIBE_CLUSTER)],
    by_controller=True,
)
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    """List the partitions asked about that are on their way to other brokers."""
    image = context.services.metadata_cache.image
    wanted: Iterable[tuple[str, Iterable[int] | None]] = ((name, None) for name in image.topics)
    if request.topics is not None:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)
    topics = [ongoing_in(image, name, indexes) async for name, indexes in InTurns(wanted)]
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in topics if topic.partitions]
    )


def ongoing_in(image: MetadataImage, name: str, indexes: Iterable[int] | None) -> OngoingTopicReassignment:
    """The partitions of a topic that are on their way, of all or of those at ``indexes``."""
    topic = image.topics.get(name)
    present = {} if topic is None else topic.partitions
    partitions = [(index, present[index]) for index in (present if indexes is None else indexes) if index in present]
    return OngoingTopicReassignment(
        name=name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index, partition in partitions
            if partition.is_reassigned
        ],
    )
