"""What a classic group is: its members, its generation, its state, and until when it waits for them.

The log has the generation that was stable last: its members with their assignments, or that none is left. Only
``apply`` brings the group to that. From there to the next generation everything is in memory only.

Source: Kafka's ClassicGroup, which was GroupMetadata before it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from kafka_wire.messages.join_group import JoinGroupResponse
from kafka_wire.stored.groups import GroupMetadataKey, GroupMetadataValue, GroupRecord
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.member_table import MemberTable
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, topics_of_all
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID
from trio_broker.coordinator.runtime.errors import ContradictoryRecords
from trio_broker.coordinator.runtime.result import Now

MAX_GENERATION: Final = 2**31 - 1


class ClassicGroupState(enum.Enum):
    """What the group does; the values are the words of DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState

PREVIOUS_STATES: Final = {
    PREPARING_REBALANCE: {EMPTY, COMPLETING_REBALANCE, STABLE},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    DEAD: set(ClassicGroupState),
}
"""From which states each may follow that no record brings: Kafka's ClassicGroupState.addValidPreviousStates."""


@attrs.define
class InitialDelay:
    """The wait for more members of a group that was empty. Both times are in milliseconds."""

    delay_ms: int
    remaining_ms: int
    """How much longer the delay may still become: the rebalance timeout bounds it."""
    has_grown: bool = False
    """Whether a member has joined since the delay began."""


class GroupMetadata:
    """The state of one classic group. Deadlines are in seconds of the clock that never goes back."""

    def __init__(self, group_id: str, settings: GroupCoordinatorConfig, now: Now) -> None:
        self.group_id = group_id
        self.settings = settings
        self.now = now
        """The time of the last update, which is never before that of the one before it."""
        self.state = EMPTY
        self.state_since_ms = now.wall_ms
        """When the group came into its state, by the wall clock; -1 if its record does not say."""
        self.exists = False
        """Whether the log has a record of the group."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.member_table = MemberTable()
        self.members = self.member_table.members
        self._subscriptions: list[bytes] | None = None
        """The subscriptions of the generation, if they can be known. Decoded on demand, which is seldom."""
        self._subscribed_topics: frozenset[str] | None = None
        """The decoded ``_subscriptions``."""
        self.replacement: ClassicMember | None = None
        """The static member whose record is being appended, with what the record does not have."""
        self.initial_delay: InitialDelay | None = None
        """Set while the first rebalance of an empty group waits for more members."""
        self.join_deadline = math.inf
        """When the group stops waiting for JoinGroup requests."""
        self.sync_deadline = math.inf
        """When the group stops waiting for SyncGroup requests."""
        self.next_session_deadline = math.inf
        """At or before the earliest session deadline. Heartbeats only move those on, so it is made exact when it
        passes, not each time."""

    # --- Questions ---

    @property
    def leader_id(self) -> str | None:
        return self.member_table.leader_id

    @property
    def is_deserted(self) -> bool:
        """Whether the group has neither members nor pending ones."""
        return self.state is EMPTY and not self.member_table.pending_joins

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the generation's subscriptions, or None if they are not known: before the first generation, for
        other protocol types than ``consumer``, and for bytes that are no subscription.
        """
        if self._subscriptions is not None:
            self._subscribed_topics = topics_of_all(self._subscriptions)
            self._subscriptions = None
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Where subscriptions cannot be known, a group of consumers counts as subscribed to everything."""
        topics = self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE if topics is None else topic in topics

    def next_deadline(self) -> float | None:
        """When something may be due, in seconds; None without members and pending members."""
        deadline = min(self.join_deadline, self.sync_deadline, self.next_session_deadline)
        return None if deadline == math.inf else deadline

    def earliest_session_deadline(self) -> float:
        sessions = (member.session_deadline for member in self.members.values() if member.has_session_timeout)
        return min(min(sessions, default=math.inf), min(self.member_table.pending_joins.values(), default=math.inf))

    def joined(self, member_id: str) -> JoinGroupResponse:
        """The generation as it is; the leader also learns who the members are."""
        members = self.members.values() if member_id == self.leader_id else ()
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or NO_MEMBER_ID,
            member_id=member_id,
            members=[each.for_leader(self.protocol_name) for each in members],
        )

    # --- Changes ---

    def extend_session(self, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Begin a session of ``timeout_ms``, by default the member's own timeout."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline = deadline = self.now.monotonic_seconds + timeout_ms / 1000
        if deadline < self.next_session_deadline:
            self.next_session_deadline = deadline

    def move_to(self, state: ClassicGroupState) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = self.now.wall_ms

    def next_generation(self) -> None:
        self.generation_id = 0 if self.generation_id >= MAX_GENERATION else self.generation_id + 1

    def keep_subscriptions(self) -> None:
        """Keep the subscriptions of this generation's members: they may join the next one with others."""
        self._subscriptions = self._subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and not (self.members and self.protocol_name is None):
            self._subscriptions = [member.metadata(self.protocol_name) for member in self.members.values()]

    # --- Records ---

    def metadata_record(self) -> GroupRecord:
        """The group as it is now, for the log."""
        return self.record_of(self.members.values(), self.leader_id, self.state_since_ms)

    def record_of(
        self,
        members: Iterable[ClassicMember],
        leader_id: str | None,
        since_ms: int,
        assignments: Mapping[str, bytes] = MappingProxyType({}),
    ) -> GroupRecord:
        """The generation with ``members``; those in ``assignments`` have these instead of their own."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=leader_id,
            current_state_timestamp=since_ms,
            members=[member.stored(self.protocol_name, assignments.get(member.member_id)) for member in members],
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    def tombstones(self) -> list[GroupRecord]:
        """The records that remove the group from the log; its offsets have records of their own."""
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)]

    def apply(self, record: GroupRecord) -> None:
        """Bring the group to the generation that ``record`` describes, or with a tombstone to its end.

        A member that was there before keeps what no record has: its other strategies, its session, its requests.

        Raises:
            ContradictoryRecords: two members have the same member id or instance id.
        """
        value = record.value
        self.exists = value is not None
        if value is None:
            return
        assert isinstance(value, GroupMetadataValue), f"no record of a classic group: {record.key}"
        self.generation_id, self.protocol_type = value.generation, value.protocol_type or None
        self.protocol_name, self.state_since_ms = value.protocol, value.current_state_timestamp
        self._apply_members(value)
        if value.leader in self.members:
            self.member_table.leader_id = value.leader
        self.keep_subscriptions()
        self.state = STABLE if self.members else EMPTY

    def _apply_members(self, value: GroupMetadataValue) -> None:
        table, stored_ids = self.member_table, {stored.member_id for stored in value.members}
        if len(stored_ids) < len(value.members):
            raise ContradictoryRecords(f"group {self.group_id}: two members have the same member id")
        for stored in value.members:
            if (member := self.members.get(stored.member_id)) is not None:
                member.assignment = bytes(stored.assignment)
                continue
            member, self.replacement = self.replacement, None
            if member is None or member.member_id != stored.member_id:
                member = ClassicMember.restored(stored, value.protocol or "")
            holder = None if member.instance_id is None else table.static_member_id(member.instance_id)
            if holder is None:
                table.add(member)
            elif holder in stored_ids:
                raise ContradictoryRecords(f"group {self.group_id}: {member.instance_id} is of two members")
            else:
                table.replace(self.members[holder], member)
            self.extend_session(member)
        for member_id in [each for each in self.members if each not in stored_ids]:
            table.remove(member_id)
