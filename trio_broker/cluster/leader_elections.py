"""Decides about requested elections: the preferred leader of a partition or, accepting a loss of records, any.

The cluster is one node, so its replica is the only live one, and it leads every partition that it is in sync with since
its start. Two cases remain: partitions whose preferred replica is on another node, which stay as they are, and
partitions of which this node has a replica that was not in sync, which an unclean election makes it lead.

Source: Kafka's ReplicationControlManager.electLeaders and PartitionChangeBuilder; KIP-183, KIP-460.
"""

from __future__ import annotations

import enum

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.cluster_control import elect
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage
from trio_broker.common.topic_partition import TopicPartition


class ElectionType(enum.IntEnum):
    """Which leader an election is for, numbered as ElectLeaders sends it."""

    PREFERRED = 0
    UNCLEAN = 1


NOT_AVAILABLE = {
    ElectionType.PREFERRED: (
        "The preferred leader was not available.",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ),
    ElectionType.UNCLEAN: (
        "Eligible topic partition leaders are not available.",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ),
}
"""The error of an election without an eligible replica."""


def decide_election(
    image: MetadataImage, node_id: int, election: ElectionType, partition: TopicPartition
) -> ControllerResult[None]:
    """Make ``node_id``, the only living node, lead ``partition`` where that is what ``election`` comes to.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION; ELECTION_NOT_NEEDED: it has the leader wanted; or no replica
            may be elected, with the code for the type of the election.
    """
    topic = image.topics.get(partition.topic)
    if topic is None:
        raise KafkaError(f"No such topic as {partition.topic}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = topic.partitions.get(partition.partition)
    if present is None:
        raise KafkaError(f"No such partition as {partition}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    is_preferred = present.leader == present.replicas[0]
    if is_preferred or (election is ElectionType.UNCLEAN and present.leader != NO_LEADER):
        raise KafkaError("Leader election not needed for topic partition.", code=ErrorCode.ELECTION_NOT_NEEDED)
    change = elect(present, node_id, unclean=election is ElectionType.UNCLEAN)
    if change is None or change["leader"] in (NO_LEADER, present.leader):
        reason, code = NOT_AVAILABLE[election]
        raise KafkaError(reason, code=code)
    return ControllerResult(
        None, (PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id, **change),)
    )
