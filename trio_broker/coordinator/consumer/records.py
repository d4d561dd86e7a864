"""The records of consumer groups, made from the values that the group works with, and back.

Topics and partitions within a record are in order, so that equal states are equal bytes.

Source: Kafka's GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.stored.groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
    TargetTopicPartitions,
    TopicPartitions,
)
from trio_broker.coordinator.consumer.member import ConsumerMember, PartitionEpochs, Target
from trio_broker.coordinator.consumer.topic_patterns import ResolvedPattern

NEVER_COMPUTED = 0
"""The timestamp of a target that was taken over, or is for nobody: the next one may be computed at once."""


def member_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    """The member's own data: its subscription, client and timeouts."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_assignment_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    """The member's epoch and assignment."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    return GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _with_epochs(partitions: PartitionEpochs) -> list[TopicPartitions]:
    listed = []
    for topic_id, epochs in sorted(partitions.items()):
        indexes = sorted(epochs)
        listed.append(
            TopicPartitions(
                topic_id=topic_id, partitions=indexes, assignment_epochs=[epochs[index] for index in indexes]
            )
        )
    return listed


def partition_epochs(listed: Iterable[TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """The partitions of a record. Without epochs, as before Kafka 4.3, each has the member's own epoch."""
    partitions: dict[bytes, dict[int, int]] = {}
    for topic in listed:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            partitions[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
        else:
            partitions[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return partitions


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """The member's target."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)
        ]
    )
    return GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, target_epoch: int, timestamp_ms: int) -> GroupRecord:
    """The group epoch that the target is for, and when it was computed."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=target_epoch, assignment_timestamp=timestamp_ms)
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def group_epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> GroupRecord:
    """The group's epoch, and a hash of the topics that it is for."""
    value = ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> GroupRecord:
    """The topics that a regular expression was resolved to."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), value)


def pattern_tombstone(group_id: str, pattern: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """Removes the record that Kafka before 4.1 wrote in place of the hash."""
    return GroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """All records of one member. The order matters to Kafka: a member is removed after its assignments."""
    return [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], patterns: Iterable[str]) -> list[GroupRecord]:
    """All records of the group, in the order that Kafka insists on when it reads them."""
    member_ids = list(member_ids)
    records = [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        for member_id in member_ids
    ]
    records += [
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        for member_id in member_ids
    ]
    records.append(GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records += [
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        for member_id in member_ids
    ]
    records += [pattern_tombstone(group_id, pattern) for pattern in patterns]
    records.append(partition_metadata_tombstone(group_id))
    records.append(GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records
