"""A consumer group as its records describe it: a fold over them, and nothing else.

Every change of a group becomes records, and only ``apply`` changes the fold: after records are appended, and again
when they are read after a start. So memory and log cannot differ.

A member owns the partitions that it was assigned and those that it has still to give up. No partition is ever owned
twice; a record that would break this raises ``ContradictoryRecords``.

Source: Kafka's ModernGroup, ConsumerGroup and the ``replay`` methods of GroupMetadataManager.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, KeysView, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)
from trio_broker.coordinator.consumer.member import (
    EMPTY_TARGET,
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Target,
)
from trio_broker.coordinator.consumer.records import partition_epochs
from trio_broker.coordinator.consumer.topic_patterns import ResolvedPattern
from trio_broker.coordinator.runtime.errors import ContradictoryRecords

FIRST_EPOCH = 1
"""The epoch of a group before its first member; members without an assignment get this one."""

MAX_SMALL_GROUP = 1000
"""Topics and members of a group that one event changes, assigns and lets a member follow; each takes some ten
microseconds."""

NOTHING_OWNED: Mapping[int, str] = MappingProxyType({})


class ConsumerGroupState(enum.Enum):
    """The state of a consumer group; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group's epoch."""
    RECONCILING = "Reconciling"
    """Some member has not reached its target."""
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.define
class Subscription:
    """The topic names that some members subscribe to, all of which have the one set: there may be 20,000 names."""

    names: frozenset[str]
    members: int = 0


class StoredConsumerGroup:
    """The fold. ``exists``: whether any record of the group is in the log."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.exists = False
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        """When the target was computed; 0 for never."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Target] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.has_partition_metadata = False
        """Whether the log has a record that Kafka before 4.1 wrote in place of the hash."""
        self.member_ids_by_instance: dict[str, str] = {}
        self.subscriptions: dict[frozenset[str], Subscription] = {}
        self.subscribed_names: Counter[str] = Counter()
        """In how many of ``subscriptions`` each name is."""
        self.pattern_subscribers: Counter[str] = Counter()
        self.assignor_votes: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.classic_member_count = 0
        self.unreconciled_count = 0
        self._owners: dict[bytes, dict[int, str]] = {}

    # ---- looking --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        return self.state_with(len(self.members), self.group_epoch, self.target_epoch, self.unreconciled_count)

    @staticmethod
    def state_with(members: int, group_epoch: int, target_epoch: int, unreconciled: int) -> ConsumerGroupState:
        """The state of a group with these figures, which an update computes before its records are folded in."""
        if members == 0:
            return ConsumerGroupState.EMPTY
        if group_epoch > target_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if unreconciled else ConsumerGroupState.STABLE

    def owners(self, topic_id: bytes) -> Mapping[int, str]:
        """The ids of the members that own partitions of the topic."""
        return self._owners.get(topic_id, NOTHING_OWNED)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.member_ids_by_instance.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def known_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member of a request: a dynamic one by its member id, a static one by both ids.

        Raises:
            KafkaError: ``UNKNOWN_MEMBER_ID``; ``FENCED_INSTANCE_ID``: another member has the instance id now.
        """
        if instance_id is None:
            member = self.members.get(member_id)
            unknown = f"{member_id} is no member of group {self.group_id}"
        else:
            member = self.static_member(instance_id)
            unknown = f"no member of group {self.group_id} has the instance id {instance_id}"
        if member is None:
            raise KafkaError(unknown, code=ErrorCode.UNKNOWN_MEMBER_ID)
        if member.member_id != member_id:
            text = f"instance id {instance_id} is member {member.member_id}'s now, not {member_id}'s"
            raise KafkaError(text, code=ErrorCode.FENCED_INSTANCE_ID)
        return member

    def target_of(self, member: ConsumerMember) -> Target:
        """The target of ``member``; a static member with a new id has that of the one that it replaces."""
        if member.instance_id is None:
            return self.targets.get(member.member_id, EMPTY_TARGET)
        return self.targets.get(self.member_ids_by_instance.get(member.instance_id, ""), EMPTY_TARGET)

    def is_large_with(self, member: ConsumerMember) -> bool:
        """Whether the group with ``member`` in it is too large to be changed, assigned and followed in one event."""
        names = max(len(self.subscribed_names), len(member.subscribed_topic_names))
        matched = sum(len(resolved.topics) for resolved in self.patterns.values())
        return names + matched + len(self.members) > MAX_SMALL_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_names or any(topic in pattern.topics for pattern in self.patterns.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Names of the topics that ``member`` is subscribed to, by name and by its pattern."""
        resolved = None if member.pattern is None else self.patterns.get(member.pattern)
        return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics

    def subscribed_topics(
        self,
        existing: KeysView[str],
        without: Iterable[ConsumerMember] = (),
        plus: ConsumerMember | None = None,
        without_patterns: Iterable[str] = (),
    ) -> set[str]:
        """Names of all ``existing`` topics with subscribers, as if these members had joined and left."""
        gained = frozenset() if plus is None else plus.subscribed_topic_names
        lost: Counter[str] = Counter()
        for names, members in Counter(member.subscribed_topic_names for member in without).items():
            if self.subscriptions[names].members == members:
                lost.update(names - gained)
        topics = existing & self.subscribed_names.keys()
        topics -= {name for name, count in lost.items() if count == self.subscribed_names[name]}
        topics |= existing & gained
        gone = set(without_patterns)
        for pattern, resolved in self.patterns.items():
            if pattern not in gone:
                topics |= existing & resolved.topics
        return topics

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of its target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {}) and partition in self.owners(topic_id)
            for topic_id, partitions in self.targets.get(member.member_id, EMPTY_TARGET).items()
            for partition in partitions
        )

    # ---- folding --------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Fold one record in."""
        value: Any = record.value
        if value is not None:
            self.exists = True
        match record.key:
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                self._apply_member(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                self._apply_current_assignment(member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self._apply_target(member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self._apply_target_epoch(value)
            case ConsumerGroupMetadataKey():
                self._apply_group_epoch(value)
            case ConsumerGroupRegularExpressionKey(regular_expression=pattern):
                self._apply_pattern(pattern, value)
            case ConsumerGroupPartitionMetadataKey():
                known: ConsumerGroupPartitionMetadataValue | None = value
                self.has_partition_metadata = known is not None
            case _:
                raise AssertionError(f"no record of a consumer group: {record.key}")

    def _apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        old = self.members.get(member_id)
        if value is None:
            if old is not None:
                self._drop(old)
            return
        new = attrs.evolve(
            old or ConsumerMember(member_id=member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=self._shared(frozenset(value.subscribed_topic_names)),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
        self._put(old, new)

    def _apply_current_assignment(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        old = self.members.get(member_id)
        if value is None:
            if old is not None:
                gone = attrs.evolve(
                    old,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned={},
                    pending_revocation={},
                )
                self._put(old, gone)
            return
        new = attrs.evolve(
            old or ConsumerMember(member_id=member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partition_epochs(value.assigned_partitions, value.member_epoch),
            pending_revocation=partition_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
        self._put(old, new)

    def _apply_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}

    def _apply_target_epoch(self, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.target_epoch = LEAVE_EPOCH if value is None else value.assignment_epoch
        self.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
        self.unreconciled_count = sum(
            not member.is_reconciled_to(self.target_epoch) for member in self.members.values()
        )

    def _apply_group_epoch(self, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.group_epoch = value.epoch
            self.metadata_hash = value.metadata_hash
            return
        # The last of the tombstones that end a group.
        self.exists = False
        self.group_epoch = self.target_epoch = FIRST_EPOCH
        self.metadata_hash = self.target_timestamp_ms = 0

    def _apply_pattern(self, pattern: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.patterns.pop(pattern, None)
        else:
            self.patterns[pattern] = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)

    def _put(self, old: ConsumerMember | None, new: ConsumerMember) -> None:
        """Put ``new`` in the place of ``old``, and keep the counts and indexes in step."""
        # Before the end of the old subscription: one that goes on is not counted anew.
        self._subscribe(new)
        if old is not None:
            self._uncount(old)
        self.members[new.member_id] = new
        if new.instance_id is not None:
            self.member_ids_by_instance[new.instance_id] = new.member_id
        self._count(new, 1)
        self._own(new)

    def _drop(self, member: ConsumerMember) -> None:
        self._uncount(member)
        del self.members[member.member_id]

    def _shared(self, names: frozenset[str]) -> frozenset[str]:
        """``names``, as the one object that all members with this subscription have."""
        known = self.subscriptions.get(names)
        return names if known is None else known.names

    def _subscribe(self, member: ConsumerMember) -> None:
        names = member.subscribed_topic_names
        subscription = self.subscriptions.get(names)
        if subscription is None:
            subscription = self.subscriptions[names] = Subscription(names)
            self.subscribed_names.update(names)
        subscription.members += 1

    def _unsubscribe(self, member: ConsumerMember) -> None:
        names = member.subscribed_topic_names
        subscription = self.subscriptions[names]
        subscription.members -= 1
        if not subscription.members:
            del self.subscriptions[names]
            if self.subscriptions:
                _reduce(self.subscribed_names, names)
            else:
                # A dictionary whose keys are deleted keeps its table: a megabyte after 20,000 names.
                self.subscribed_names = Counter()

    def _uncount(self, member: ConsumerMember) -> None:
        self._count(member, -1)
        self._unsubscribe(member)
        self._disown(member)
        # A static member may have been replaced before its tombstones come: then the instance id is its successor's.
        instance_id = member.instance_id or ""
        if self.member_ids_by_instance.get(instance_id) == member.member_id:
            del self.member_ids_by_instance[instance_id]

    def _count(self, member: ConsumerMember, step: int) -> None:
        counts: list[tuple[Counter[str], Iterable[str]]] = []
        if member.pattern is not None:
            counts.append((self.pattern_subscribers, [member.pattern]))
        if member.server_assignor is not None:
            counts.append((self.assignor_votes, [member.server_assignor]))
        if member.classic is not None:
            self.classic_member_count += step
            counts.append((self.classic_protocols, {item.name for item in member.classic.supported_protocols}))
        for counter, names in counts:
            if step > 0:
                counter.update(names)
            else:
                _reduce(counter, names)
        if not member.is_reconciled_to(self.target_epoch):
            self.unreconciled_count += step

    def _disown(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _own(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                if not partitions:
                    continue
                owners = self._owners.setdefault(topic_id, {})
                for partition in partitions:
                    owner = owners.setdefault(partition, member.member_id)
                    if owner != member.member_id:
                        text = f"{self.group_id}: {topic_id.hex()}-{partition} is {owner}'s, not {member.member_id}'s"
                        raise ContradictoryRecords(text)


def _reduce(counter: Counter[str], names: Iterable[str]) -> None:
    """Count each of ``names`` once less, and forget those that do not occur any more."""
    # By the methods of a dictionary: there may be 20,000 names, and those of a Counter are in Python.
    for name in names:
        if count := counter[name] - 1:
            counter[name] = count
        else:
            del counter[name]
