"""One event in the life of a consumer group, while it is being thought about.

A decision looks at the group as its records tell it, and collects the records, events and timers that follow. Nothing
is folded in before it is written: what a step of the decision makes of a member is handed to the next step as a value.

The epochs are the heart of it. Whenever a member comes, goes or changes its subscription, and whenever a subscribed
topic changes, the group's epoch rises. The next heartbeat of any member then computes a new target for it, but not
more often than ``group.consumer.assignment.interval.ms``. Every member walks to the target at the pace of its own
heartbeats.

Source: Kafka's GroupMetadataManager; KIP-848, KIP-1263 for the interval.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from kafka_wire.messages.consumer_group_heartbeat import TopicPartitions
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.consumer import records
from trio_broker.coordinator.consumer.current_assignment import Reconciliation
from trio_broker.coordinator.consumer.member import ConsumerMember, MemberState, Target
from trio_broker.coordinator.consumer.member_timers import MemberTimer
from trio_broker.coordinator.consumer.stored_group import ConsumerGroupState
from trio_broker.coordinator.consumer.target_assignment import (
    changed_targets,
    computed_target,
    metadata_hash,
    preferred_assignor,
    topic_ids_of,
)
from trio_broker.coordinator.consumer.topic_patterns import ResolvedPattern
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEvent, GroupEventKind, Now

if TYPE_CHECKING:
    from trio_broker.coordinator.consumer.group import ConsumerGroup


MAX_REASON_CHARACTERS = 255
"""Clients cut their reasons there (KIP-800); one that does not may not fill the timeline."""


class PatternChange(enum.Enum):
    """What a heartbeat did to the member's regular expression."""

    NONE = enum.auto()
    UNRESOLVED = enum.auto()
    """It changed, and what it stands for is not known yet."""
    RESOLVED = enum.auto()
    """It changed, and what it stands for is known: it went, or others had subscribed to it before."""


@attrs.frozen
class _PendingEvent:
    """An event that still lacks the epoch that the group will have after it."""

    kind: GroupEventKind
    member: ConsumerMember | None
    reason: str


def group_event(
    kind: GroupEventKind, now: Now, group_epoch: int, member: ConsumerMember | None, reason: str
) -> GroupEvent:
    """Something that happened, to ``member`` or to all."""
    return GroupEvent(
        kind=kind,
        at_ms=now.wall_ms,
        generation=group_epoch,
        member_id=None if member is None else member.member_id,
        group_instance_id=None if member is None else member.instance_id,
        client_id=None if member is None else member.client_id,
        client_host=None if member is None else member.client_host,
        reason=reason[:MAX_REASON_CHARACTERS],
    )


class ConsumerGroupUpdate:
    """What follows from one event."""

    def __init__(self, group: ConsumerGroup, now: Now, image: MetadataImage) -> None:
        self.group = group
        self.stored = group.stored
        self.now = now
        self.image = image
        self.result = CoordinatorResult()
        self.group_epoch = self.stored.group_epoch
        self.target_epoch = self.stored.target_epoch
        self._changed: dict[str, ConsumerMember | None] = {}
        self._pending_events: list[_PendingEvent] = []
        self._looked_at_topics = False

    # ---- members --------------------------------------------------------------------------------------------------

    def record_event(self, kind: GroupEventKind, member: ConsumerMember | None, reason: str = "") -> None:
        """Have people read of it."""
        self._pending_events.append(_PendingEvent(kind, member, reason))

    def upsert_member(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Write down what ``updated`` says of itself; return whether it subscribes to other names than ``member``."""
        if updated == member:
            return False
        self.result.records.append(records.member_record(self.stored.group_id, updated))
        self._changed[updated.member_id] = updated
        return updated.subscribed_topic_names != member.subscribed_topic_names

    def mark_static_leave(self, member: ConsumerMember) -> None:
        """Let a static member go for a while: others may not have what it had, and it may not commit for it."""
        away = member.away()
        self.result.records.append(records.current_assignment_record(self.stored.group_id, away))
        self._changed[away.member_id] = away

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Put a static member under its new id in the place of its former life."""
        group_id = self.stored.group_id
        self.result.records += [
            *records.member_tombstones(group_id, old.member_id),
            records.member_record(group_id, new),
            records.target_record(group_id, new.member_id, self.stored.targets.get(old.member_id, {})),
            records.current_assignment_record(group_id, new),
        ]
        self._changed[old.member_id] = None
        self._changed[new.member_id] = new

    def remove(self, members: Sequence[ConsumerMember]) -> None:
        """Take members out of the group, with what they owned."""
        for member in members:
            self.result.records += records.member_tombstones(self.stored.group_id, member.member_id)
            self._changed[member.member_id] = None
        lost = Counter(member.pattern for member in members if member.pattern is not None)
        patterns = [pattern for pattern, count in lost.items() if self.stored.pattern_subscribers[pattern] == count]
        for pattern in patterns:
            self.result.records.append(records.pattern_tombstone(self.stored.group_id, pattern))
        topics = self.stored.subscribed_topics(without=members, without_patterns=patterns)
        self._bump(metadata_hash(topics, self.image))
        for member in members:
            self.group.timers.cancel_all(member.member_id)

    # ---- epochs ---------------------------------------------------------------------------------------------------

    def follow_topics(self, member: ConsumerMember, updated: ConsumerMember, *, subscription_changed: bool) -> None:
        """Raise the group's epoch if the subscription changed, or the topics that it is about."""
        if not subscription_changed and self.group.knows_topics:
            return
        lost = member.pattern
        if lost is not None and (lost == updated.pattern or self.stored.pattern_subscribers[lost] != 1):
            lost = None
        before = self.stored.members.get(member.member_id) or self.stored.static_member(updated.instance_id)
        topics = self.stored.subscribed_topics(
            without=[] if before is None else [before], plus=updated, without_patterns=[] if lost is None else [lost]
        )
        new_hash = metadata_hash(topics, self.image)
        if subscription_changed:
            self._bump(new_hash)
        elif new_hash != self.stored.metadata_hash:
            self.record_event(GroupEventKind.PARTITIONS_CHANGED, None)
            self._bump(new_hash)
        self._looked_at_topics = True
        if self.stored.has_partition_metadata:
            self.result.records.append(records.partition_metadata_tombstone(self.stored.group_id))

    def _bump(self, new_hash: int) -> None:
        self.group_epoch += 1
        self.result.records.append(records.group_epoch_record(self.stored.group_id, self.group_epoch, new_hash))

    # ---- assignments ----------------------------------------------------------------------------------------------

    def target_for(self, updated: ConsumerMember) -> Target:
        """What ``updated`` shall have, by a new target for all if the group's epoch rose and it is time for one."""
        if self.stored.target_epoch >= self.group_epoch or not self._may_compute():
            return self.stored.target_of(updated)
        members = {**self.stored.members, updated.member_id: updated}
        replaced = self.stored.member_ids_by_instance.get(updated.instance_id or "")
        if replaced is not None and replaced != updated.member_id:
            del members[replaced]
        votes = Counter(member.server_assignor for member in members.values() if member.server_assignor is not None)
        assignor = preferred_assignor(votes, self.group.settings.group_consumer_assignors)
        target = computed_target(self.stored, members, assignor, self.image)
        self.result.records += changed_targets(self.stored, target)
        self.result.records.append(
            records.target_epoch_record(self.stored.group_id, self.group_epoch, self.now.wall_ms)
        )
        self.target_epoch = self.group_epoch
        return target[updated.member_id]

    def _may_compute(self) -> bool:
        computed_at_ms = self.stored.target_timestamp_ms
        # A clock that was put back must not keep the group from its target until it has caught up.
        return (
            not computed_at_ms
            <= self.now.wall_ms
            < computed_at_ms + self.group.settings.group_consumer_assignment_interval_ms
        )

    def reconcile(
        self,
        updated: ConsumerMember,
        target: Target,
        owned: Sequence[TopicPartitions] | None,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Take ``updated`` one step towards ``target``.

        Raises:
            Refused: ``FENCED_MEMBER_EPOCH``: the member is in a state that we do not know.
        """
        if not subscription_changed and updated.is_reconciled_to(self.target_epoch):
            return updated
        stepped = Reconciliation(
            target_epoch=self.target_epoch,
            target=target,
            subscription_changed=subscription_changed,
            subscribed_topic_ids=topic_ids_of(self.stored.topics_of(updated), self.image),
            owner=self.stored.owner,
            owned=owned,
        ).next_step(updated)
        if stepped == updated:
            return updated
        self.result.records.append(records.current_assignment_record(self.stored.group_id, stepped))
        self._changed[stepped.member_id] = stepped
        if not stepped.uses_classic_protocol:
            self._time_revocation(stepped)
        return stepped

    def _time_revocation(self, member: ConsumerMember) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            deadline = self.now.monotonic_seconds + member.rebalance_timeout_ms / 1000
            self.group.timers.start(MemberTimer.REVOCATION, member.member_id, deadline)
        else:
            self.group.timers.cancel(MemberTimer.REVOCATION, member.member_id)

    # ---- regular expressions --------------------------------------------------------------------------------------

    def resolved(self, resolved: Iterable[tuple[str, ResolvedPattern]]) -> None:
        """Write down what regular expressions stand for, and raise the group's epoch if that is news."""
        fresh = {pattern: result for pattern, result in resolved if self.stored.pattern_subscribers[pattern] > 0}
        changed = False
        topics = self.stored.subscribed_topics(without_patterns=fresh)
        for pattern, result in fresh.items():
            topics |= result.topics
            known = self.stored.patterns.get(pattern)
            changed |= result.topics != (frozenset() if known is None else known.topics)
            self.result.records.append(records.pattern_record(self.stored.group_id, pattern, result))
        new_hash = metadata_hash(topics, self.image)
        if changed or new_hash != self.stored.metadata_hash:
            self.record_event(
                GroupEventKind.PARTITIONS_CHANGED, None, "regular expressions were matched with the topics"
            )
            self._bump(new_hash)
            self._looked_at_topics = True

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> CoordinatorResult:
        """All that follows, with the events that people read."""
        if self._looked_at_topics:
            self.group.knows_topics = True
        for pending in self._pending_events:
            told = pending.member
            # By now it may be known better: a member that joins has said who it is only after it was let in.
            latest = told if told is None else self._changed.get(told.member_id) or told
            self._add_event(pending.kind, latest, pending.reason)
        if not self._changed and self.group_epoch == self.stored.group_epoch:
            return self.result
        bumped = self.group_epoch > self.stored.group_epoch
        if bumped:
            self._add_event(GroupEventKind.REBALANCE_STARTED, None, "")
        at_rest = (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
        if self._state_after() in at_rest and (bumped or self.stored.state not in at_rest):
            self._add_event(GroupEventKind.REBALANCE_COMPLETED, None, "")
        return self.result

    def _add_event(self, kind: GroupEventKind, member: ConsumerMember | None, reason: str) -> None:
        self.result.events.append(group_event(kind, self.now, self.group_epoch, member, reason))

    def _state_after(self) -> ConsumerGroupState:
        """The state in which the group will be once the records are folded in."""
        stored = self.stored
        before = [stored.members[member_id] for member_id in self._changed if member_id in stored.members]
        after = [member for member in self._changed.values() if member is not None]
        count = len(stored.members) - len(before) + len(after)
        if self.target_epoch == stored.target_epoch:
            unreconciled = stored.unreconciled_count - self._unreconciled(before)
        else:
            # Nobody else can have come to an epoch that was made this moment.
            unreconciled = len(stored.members) - len(before)
        unreconciled += self._unreconciled(after)
        return stored.state_with(count, self.group_epoch, self.target_epoch, unreconciled)

    def _unreconciled(self, members: Iterable[ConsumerMember]) -> int:
        return sum(not member.is_reconciled_to(self.target_epoch) for member in members)
