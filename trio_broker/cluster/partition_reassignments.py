"""Decides about reassignments of partitions to other brokers.

The cluster is one node, so no other broker can copy a partition: a reassignment may repeat the replicas, reorder them,
or leave out those that are not alive. Such a change is complete when it is written, so none is ever in progress that
could be listed or cancelled.

Source: Kafka's ReplicationControlManager.alterPartitionReassignments and PartitionChangeBuilder; KIP-455, KIP-860.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import UNASSIGNED_DIRECTORY, MetadataImage, PartitionImage
from trio_broker.cluster.replication_control import check_replicas
from trio_broker.common.topic_partition import TopicPartition


@attrs.frozen
class Reassignment:
    """The new replicas of a partition, preferred leader first; None cancels the reassignment in progress."""

    partition: TopicPartition
    replicas: Sequence[int] | None


def decide_reassignment(
    image: MetadataImage, node_id: int, wanted: Reassignment, *, allow_replication_factor_change: bool
) -> ControllerResult[None]:
    """Give a partition the replicas wanted.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION; NO_REASSIGNMENT_IN_PROGRESS: there is none to cancel;
            INVALID_REPLICA_ASSIGNMENT: the brokers do not exist, or have no replica to continue with;
            INVALID_REPLICATION_FACTOR: their number may not change.
    """
    name, index = wanted.partition.topic, wanted.partition.partition
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(f"Unable to find a topic named {name}.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = topic.partitions.get(index)
    if present is None:
        raise KafkaError(f"Unable to find partition {name}:{index}.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.replicas is None:
        raise KafkaError("No partition reassignment is in progress.", code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = tuple(wanted.replicas)
    check_replicas(image, replicas)
    if len(replicas) != len(present.replicas) and not allow_replication_factor_change:
        raise KafkaError(
            f"The replication factor is changed from {len(present.replicas)} to {len(replicas)}",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    # Nothing is written: a new leader epoch would make every client of the partition ask for metadata.
    if replicas == present.replicas:
        return ControllerResult(None, ())
    _require_no_copying(present, replicas, node_id)
    change = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(replicas),
        isr=[broker_id for broker_id in present.isr if broker_id in replicas],
        # Naming the leader begins a new leader epoch, which fences the replicas that are left out.
        leader=node_id,
        directories=[UNASSIGNED_DIRECTORY] * len(replicas),
    )
    return ControllerResult(None, (change,))


def _require_no_copying(present: PartitionImage, replicas: tuple[int, ...], node_id: int) -> None:
    added = [broker_id for broker_id in replicas if broker_id not in present.replicas]
    if added:
        reason = f"broker {added[0]} has no replica of it, and is not alive to copy one"
    elif node_id not in replicas or node_id not in present.isr:
        reason = "no replica that is alive and in sync would be left"
    else:
        return
    raise KafkaError(f"The partition cannot be reassigned: {reason}.", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
