"""Decides about reassignments of partitions to other brokers.

A reassignment that adds replicas is under way until all that stay are in sync, which their leader reports
(``alter_partition``); the replicas that it removes stay until then. One that only takes replicas away or orders them
otherwise is complete when it is written.

Source: Kafka's ReplicationControlManager.alterPartitionReassignments and PartitionReassignmentRevert; KIP-455, KIP-860.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.metadata_image import MetadataImage, PartitionImage
from trio_broker.cluster.partition_change_builder import RECOVERING, Assignment, Election, without
from trio_broker.cluster.replication_control import check_replicas
from trio_broker.cluster.topic_changes import ClusterChanges, TopicChanges
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.broker_config import BrokerConfig


@attrs.frozen
class Reassignment:
    """The new replicas of a partition, preferred leader first; None cancels the reassignment in progress."""

    partition: TopicPartition
    replicas: Sequence[int] | None


def decide_reassignments(
    image: MetadataImage,
    config: BrokerConfig,
    reassignments: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool,
) -> Iterator[ControllerResult[None] | KafkaError]:
    """Decide about each reassignment, in order, when it is asked for.

    A second change of one partition is refused: it is decided on the partition as it was, and would keep half of the
    first.
    """
    changes, changed = ClusterChanges(image, config), set[TopicPartition]()

    def decide(wanted: Reassignment) -> ControllerResult[None]:
        decision = decide_reassignment(changes, wanted, allow_replication_factor_change=allow_replication_factor_change)
        if decision.records and wanted.partition in changed:
            text = f"partition {wanted.partition} is reassigned twice in one request"
            raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
        if decision.records:
            changed.add(wanted.partition)
        return decision

    return (attempt(partial(decide, wanted)) for wanted in reassignments)


def decide_reassignment(
    cluster: ClusterChanges, wanted: Reassignment, *, allow_replication_factor_change: bool = True
) -> ControllerResult[None]:
    """Give a partition the replicas wanted, or begin to; or cancel what has begun.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION; NO_REASSIGNMENT_IN_PROGRESS: there is none to cancel;
            INVALID_REPLICA_ASSIGNMENT: the brokers do not exist, or have no replica to continue with;
            INVALID_REPLICATION_FACTOR: their number may not change.
    """
    image = cluster.image
    name, index = wanted.partition.topic, wanted.partition.partition
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(f"Unable to find a topic named {name}.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = topic.partitions.get(index)
    if present is None:
        raise KafkaError(f"Unable to find partition {name}:{index}.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    changes = cluster.of(topic)
    if wanted.replicas is None:
        change = _cancellation(changes, present, index)
    else:
        replicas = tuple(wanted.replicas)
        check_replicas(image, replicas)
        if not allow_replication_factor_change:
            _require_same_factor(present, replicas)
        _require_a_broker_to_copy(image, present, replicas)
        assignment = Assignment.of(present).reassigned_to(replicas)
        change = changes.change(index, assignment=assignment, election=Election.ONLINE)
    # Without a change nothing is written: a new leader epoch would make every client of the partition ask for metadata.
    return ControllerResult(None, () if change is None else (change,))


def _cancellation(changes: TopicChanges, present: PartitionImage, index: int) -> PartitionChangeRecord | None:
    """Give a partition the replicas again that it had.

    If only replicas that were being added are in sync, one of the others leads at a loss of records. Unlike in Kafka it
    is one that can: a partition that is led would have no leader for it.
    """
    if not present.is_reassigned:
        raise KafkaError("No partition reassignment is in progress.", code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    assignment = Assignment.of(present).reverted()
    isr = without(present.isr, present.adding_replicas)
    if isr:
        return changes.change(index, assignment=assignment, isr=isr)
    live = [each for each in assignment.replicas if changes.is_acceptable_leader(each, present.directory_of(each))]
    name = f"{changes.topic.name}:{index}"
    if not assignment.replicas:
        reason = "Invalid replica assignment: addingReplicas contains all replicas."
    elif not changes.unclean_leader_election_enable:
        reason = f"Unable to revert {name}: it would require an unclean leader election."
    elif not live:
        reason = f"Unable to revert {name}: none of its former replicas is alive."
    else:
        return changes.change(index, assignment=assignment, isr=tuple(live[:1]), leader_recovery_state=RECOVERING)
    raise KafkaError(reason, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _require_same_factor(present: PartitionImage, replicas: tuple[int, ...]) -> None:
    factor = len(present.target_replicas)
    if len(replicas) != factor:
        raise KafkaError(
            f"The replication factor is changed from {factor} to {len(replicas)}",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )


def _require_a_broker_to_copy(image: MetadataImage, present: PartitionImage, replicas: tuple[int, ...]) -> None:
    """Refuse a copy while a single broker is alive: nobody would make it, however long the reassignment lasted."""
    active = image.active_brokers
    if len(active) != 1:
        return
    if added := without(replicas, present.replicas):
        reason = f"broker {added[0]} has no replica of it, and is not alive to copy one"
    elif not active.issubset(replicas) or not active.issubset(present.isr):
        reason = "no replica that is alive and in sync would be left"
    else:
        return
    raise KafkaError(f"The partition cannot be reassigned: {reason}.", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
