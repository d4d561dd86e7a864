"""One event of a consumer group: the records, events and timers that follow from it.

An update reads the group as its records describe it, and collects what follows. Nothing is folded in before it is
appended: what one step makes of a member is passed to the next step as a value. Timers that a request extends, whatever
becomes of it, are set at once; those that follow from a record begin when it is folded in.

The epochs are at the centre. Whenever a member joins, leaves or changes its subscription, and whenever a subscribed
topic changes, the group's epoch rises. The next heartbeat of any member then computes a new target for it, but not
more often than ``group.consumer.assignment.interval.ms``. Every member moves to the target with its own heartbeats.

Source: Kafka's GroupMetadataManager; KIP-848, KIP-1263 for the interval, KIP-345 for static members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import TopicPartitions
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.consumer import records
from trio_broker.coordinator.consumer.current_assignment import Reconciliation
from trio_broker.coordinator.consumer.downgrade import Downgrade
from trio_broker.coordinator.consumer.member import STATIC_LEAVE_EPOCH, ConsumerMember, Target
from trio_broker.coordinator.consumer.member_timers import MemberTimers
from trio_broker.coordinator.consumer.stored_group import ConsumerGroupState, StoredConsumerGroup
from trio_broker.coordinator.consumer.target_assignment import (
    TopicIds,
    changed_targets,
    computed_target,
    metadata_hash,
    preferred_assignor,
)
from trio_broker.coordinator.consumer.topic_patterns import ResolvedPattern
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult, group_event
from trio_broker.coordinator.runtime.result import Now

DOWNGRADING_POLICIES = ("downgrade", "bidirectional")
"""Values of ``group.consumer.migration.policy`` that let a consumer group become a classic one."""


@attrs.frozen
class _PendingEvent:
    """An event without the epoch that the group will have after it."""

    kind: GroupEventKind
    member: ConsumerMember | None
    reason: str


class ConsumerGroupUpdate:
    """What follows from one event. ``knows_topics``: whether the group's epoch is for the topics as they are.

    ``may_see`` is the ``RequestContext``'s of a request that may begin a resolution of patterns.
    """

    def __init__(
        self,
        stored: StoredConsumerGroup,
        timers: MemberTimers,
        settings: GroupCoordinatorConfig,
        now: Now,
        topic_ids: TopicIds,
        *,
        knows_topics: bool,
        may_see: Callable[[str], bool] | None = None,
    ) -> None:
        self.stored = stored
        self.timers = timers
        self.settings = settings
        self.now = now
        self.image = topic_ids.image
        self.topic_ids = topic_ids
        self.knows_topics = knows_topics
        self.may_see = may_see
        self.result = GroupResult()
        self.group_epoch = stored.group_epoch
        self.target_epoch = stored.target_epoch
        self.downgrade: Downgrade | None = None
        """Set when the group is to become a classic one."""
        self._changed: dict[str, ConsumerMember | None] = {}
        self._pending_events: list[_PendingEvent] = []

    def record_event(self, kind: GroupEventKind, member: ConsumerMember | None, reason: str = "") -> None:
        self._pending_events.append(_PendingEvent(kind, member, reason))

    # ---- members --------------------------------------------------------------------------------------------------

    def require_room(self, member_id: str) -> None:
        """Let no new member into a full group.

        Raises:
            KafkaError: ``GROUP_MAX_SIZE_REACHED``.
        """
        members, max_size = self.stored.members, self.settings.group_consumer_max_size
        if len(members) >= max_size and member_id not in members:
            text = f"group {self.stored.group_id} has {len(members)} members, and may have {max_size}"
            raise KafkaError(text, code=ErrorCode.GROUP_MAX_SIZE_REACHED)

    def joining_member(self, member_id: str) -> ConsumerMember:
        """The dynamic member that joins, or joins again."""
        member = self.stored.members.get(member_id)
        if member is None:
            member = ConsumerMember(member_id=member_id)
            self.record_event(GroupEventKind.MEMBER_JOINED, member)
        else:
            self.record_event(GroupEventKind.MEMBER_REJOINED, member)
        return member

    def joining_static_member(self, member_id: str, instance_id: str, *, is_classic: bool) -> ConsumerMember:
        """The static member that joins, and replaces the one that had its instance id.

        In the classic protocol a member cannot leave for a while, so there one that lives is replaced, too.

        Raises:
            KafkaError: ``UNRELEASED_INSTANCE_ID``.
        """
        existing = self.stored.static_member(instance_id)
        if existing is None:
            member = self.stored.members.get(member_id) or ConsumerMember(member_id=member_id)
            self.record_event(GroupEventKind.MEMBER_JOINED, attrs.evolve(member, instance_id=instance_id))
            return member
        if not (is_classic or existing.uses_classic_protocol or existing.member_epoch == STATIC_LEAVE_EPOCH):
            text = f"instance id {instance_id} is in use by member {existing.member_id}"
            raise KafkaError(text, code=ErrorCode.UNRELEASED_INSTANCE_ID)
        member = existing.replaced_by(member_id)
        self._replace(existing, member)
        self.record_event(GroupEventKind.MEMBER_REPLACED, member, f"in the place of {existing.member_id}")
        return member

    def _replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        group_id = self.stored.group_id
        self.result.records += [
            *records.member_tombstones(group_id, old.member_id),
            records.member_record(group_id, new),
            records.target_record(group_id, new.member_id, self.stored.targets.get(old.member_id, {})),
            records.current_assignment_record(group_id, new),
        ]
        self._changed[old.member_id] = None
        self._changed[new.member_id] = new

    def upsert_member(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Record what ``updated`` says of itself; return whether it subscribes to other names than ``member``."""
        if updated == member:
            return False
        self.result.records.append(records.member_record(self.stored.group_id, updated))
        self._changed[updated.member_id] = updated
        return updated.subscribed_topic_names != member.subscribed_topic_names

    def mark_static_leave(self, member: ConsumerMember) -> None:
        """A static member leaves for a while: its partitions wait for it, and it may not commit."""
        away = member.away()
        self.result.records.append(records.current_assignment_record(self.stored.group_id, away))
        self._changed[away.member_id] = away

    def remove(self, members: Sequence[ConsumerMember]) -> None:
        """Remove members; if all others speak the classic protocol, the group becomes a classic one instead."""
        if self._may_downgrade(members):
            reason = "the last member that spoke the consumer protocol is gone"
            leaving = frozenset(member.member_id for member in members)
            self.downgrade = Downgrade(leaving=leaving, rebalance=True, reason=reason)
        elif members:
            self._remove(members)

    def _remove(self, members: Sequence[ConsumerMember]) -> None:
        for member in members:
            self.result.records += records.member_tombstones(self.stored.group_id, member.member_id)
            self._changed[member.member_id] = None
        lost = Counter(member.pattern for member in members if member.pattern is not None)
        patterns = [pattern for pattern, count in lost.items() if self.stored.pattern_subscribers[pattern] == count]
        self.result.records += [records.pattern_tombstone(self.stored.group_id, pattern) for pattern in patterns]
        topics = self.stored.subscribed_topics(self.image.topics.keys(), without=members, without_patterns=patterns)
        self._bump(metadata_hash(topics, self.image))
        if len(members) == len(self.stored.members):
            self._record_target_epoch(records.NEVER_COMPUTED)  # nobody is left to compute a target for

    # ---- becoming a classic group ---------------------------------------------------------------------------------

    def _may_downgrade(self, without: Sequence[ConsumerMember]) -> bool:
        left = len(self.stored.members) - len(without)
        classic_left = self.stored.classic_member_count - sum(member.uses_classic_protocol for member in without)
        return 0 < left == classic_left and self._allows_classic_group_of(left)

    def may_downgrade_by_replacing(self, instance_id: str | None) -> bool:
        """Whether the group may become a classic one when a classic member replaces the one with ``instance_id``."""
        existing, count = self.stored.static_member(instance_id), len(self.stored.members)
        return (
            existing is not None
            and not existing.uses_classic_protocol
            and self.stored.classic_member_count == count - 1
            and self._allows_classic_group_of(count)
        )

    def _allows_classic_group_of(self, members: int) -> bool:
        return (
            self.settings.group_consumer_migration_policy in DOWNGRADING_POLICIES
            and members <= self.settings.group_max_size
        )

    # ---- epochs ---------------------------------------------------------------------------------------------------

    def follow_topics(self, member: ConsumerMember, updated: ConsumerMember, *, subscription_changed: bool) -> None:
        """Raise the group's epoch if the subscription changed, or the topics that it is about."""
        if not subscription_changed and self.knows_topics:
            return
        lost = member.pattern
        if lost is not None and (lost == updated.pattern or self.stored.pattern_subscribers[lost] != 1):
            lost = None
        before = self.stored.members.get(member.member_id) or self.stored.static_member(updated.instance_id)
        topics = self.stored.subscribed_topics(
            self.image.topics.keys(),
            without=[] if before is None else [before],
            plus=updated,
            without_patterns=[] if lost is None else [lost],
        )
        new_hash = metadata_hash(topics, self.image)
        if subscription_changed:
            self._bump(new_hash)
        elif new_hash != self.stored.metadata_hash:
            self.record_event(GroupEventKind.PARTITIONS_CHANGED, None)
            self._bump(new_hash)
        self.knows_topics = True
        if self.stored.has_partition_metadata:
            self.result.records.append(records.partition_metadata_tombstone(self.stored.group_id))

    def _bump(self, new_hash: int) -> None:
        self.group_epoch += 1
        self.result.records.append(records.group_epoch_record(self.stored.group_id, self.group_epoch, new_hash))

    def resolved(self, resolved: Iterable[tuple[str, ResolvedPattern]]) -> None:
        """Record what regular expressions were resolved to, and raise the group's epoch if that changed."""
        group_id = self.stored.group_id
        fresh = {pattern: result for pattern, result in resolved if self.stored.pattern_subscribers[pattern] > 0}
        topics = self.stored.subscribed_topics(self.image.topics.keys(), without_patterns=fresh)
        changed = False
        for pattern, result in fresh.items():
            topics |= result.topics
            known = self.stored.patterns.get(pattern)
            changed |= result.topics != (frozenset() if known is None else known.topics)
            self.result.records.append(records.pattern_record(group_id, pattern, result))
        new_hash = metadata_hash(topics, self.image)
        if changed or new_hash != self.stored.metadata_hash:
            reason = "regular expressions were matched with the topics"
            self.record_event(GroupEventKind.PARTITIONS_CHANGED, None, reason)
            self._bump(new_hash)
            self.knows_topics = True

    # ---- assignments ----------------------------------------------------------------------------------------------

    @property
    def has_new_epoch(self) -> bool:
        """Whether the group's epoch rises with this event."""
        return self.group_epoch > self.stored.group_epoch

    @property
    def has_new_target(self) -> bool:
        """Whether this event computes a target."""
        return self.target_epoch > self.stored.target_epoch

    def target_for(self, updated: ConsumerMember) -> Target:
        """The target of ``updated``, from a new target for all if the group's epoch rose and it is time for one."""
        if self.stored.target_epoch >= self.group_epoch or not self._may_compute():
            return self.stored.target_of(updated)
        members = {**self.stored.members, updated.member_id: updated}
        replaced = self.stored.member_ids_by_instance.get(updated.instance_id or "")
        if replaced is not None and replaced != updated.member_id:
            del members[replaced]
        votes = Counter(member.server_assignor for member in members.values() if member.server_assignor is not None)
        assignor = preferred_assignor(votes, self.settings.group_consumer_assignors)
        target = computed_target(self.stored, members, assignor, self.topic_ids)
        self.result.records += changed_targets(self.stored, target)
        self._record_target_epoch(self.now.wall_ms)
        return target[updated.member_id]

    def _record_target_epoch(self, timestamp_ms: int) -> None:
        self.target_epoch = self.group_epoch
        self.result.records.append(records.target_epoch_record(self.stored.group_id, self.target_epoch, timestamp_ms))

    def _may_compute(self) -> bool:
        computed_at_ms = self.stored.target_timestamp_ms
        # A clock that was put back must not keep the group from its target until it has caught up.
        elapsed_ms = self.now.wall_ms - computed_at_ms
        return not 0 <= elapsed_ms < self.settings.group_consumer_assignment_interval_ms

    def reconcile(
        self,
        updated: ConsumerMember,
        target: Target,
        owned: Sequence[TopicPartitions] | None,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Move ``updated`` one step towards ``target``.

        Raises:
            KafkaError: ``FENCED_MEMBER_EPOCH``: the member is in a state that this broker does not know.
        """
        if not subscription_changed and updated.is_reconciled_to(self.target_epoch):
            return updated
        stepped = Reconciliation(
            target_epoch=self.target_epoch,
            target=target,
            subscription_changed=subscription_changed,
            subscribed_topic_ids=self.topic_ids.of(self.stored.topics_of(updated)),
            owners=self.stored.owners,
            owned=owned,
        ).next_step(updated)
        if stepped == updated:
            return updated
        self.result.records.append(records.current_assignment_record(self.stored.group_id, stepped))
        self._changed[stepped.member_id] = stepped
        return stepped

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> GroupResult:
        """Return the result, with the events."""
        for pending in self._pending_events:
            # The latest state of the member: one that joins says who it is only after the event of its joining.
            member = pending.member
            latest = member if member is None else self._changed.get(member.member_id) or member
            self._add_event(pending.kind, latest, pending.reason)
        if not self._changed and self.group_epoch == self.stored.group_epoch:
            return self.result
        if self.has_new_epoch:
            self._add_event(GroupEventKind.REBALANCE_STARTED)
        at_rest = (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
        if self._state_after() in at_rest and (self.has_new_epoch or self.stored.state not in at_rest):
            self._add_event(GroupEventKind.REBALANCE_COMPLETED)
        return self.result

    def _add_event(self, kind: GroupEventKind, member: ConsumerMember | None = None, reason: str = "") -> None:
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
            # No other member can have reached an epoch that this event made.
            unreconciled = len(stored.members) - len(before)
        unreconciled += self._unreconciled(after)
        return stored.state_with(count, self.group_epoch, self.target_epoch, unreconciled)

    def _unreconciled(self, members: Iterable[ConsumerMember]) -> int:
        return sum(not member.is_reconciled_to(self.target_epoch) for member in members)
