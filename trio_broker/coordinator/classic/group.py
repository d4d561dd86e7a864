"""A classic consumer group, whose assignment is computed by one of its members.

All clients worked so before KIP-848, and most still do. The members agree on what is theirs: the names of strategies,
the bytes that go with them, even what kind of group it is (``consumer``, ``connect``, …). The broker knows who is a
member, and leads all of them from one generation to the next::

                 first member joins                       everyone has joined, or time is up
        EMPTY ────────────────────► PREPARING_REBALANCE ────────────────────► COMPLETING_REBALANCE
          ▲                              │        ▲                                │        │
          └────── no member is left ─────┘        │    a member joins, leaves,     │        │ the leader
                                                  ├──── is silent for too long ────┘        │ has assigned
                                                  │                                         ▼
                                                  └───────────────────────────────────── STABLE

The state is a ``GroupMetadata``, a fold over the group's records with what is in memory only. Each section of the
protocol is a module of functions that take it (``join_group``, ``sync_group``, ``leave_group``, ``deadlines``, and
``rebalance`` below them), change what is in memory, and return in a ``GroupResult`` what has to be done. What every
member asks again and again is answered here: heartbeats, and whether offsets may be committed.

Where this differs from Kafka: a request that is sent again while the first one waits does not leave the first one
without a response, nor does a member that leaves while its SyncGroup waits; a group that is full and rejects the last
member it has waited for goes on at once; and after the greatest generation comes 0, where Kafka's int would turn
negative, which clients take for none.

Source: Kafka's GroupMetadataManager (classicGroup…) and ClassicGroup, 4.3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_groups import DescribedGroup
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest
from kafka_wire.stored.groups import GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic import deadlines, join_group, leave_group, sync_group
from trio_broker.coordinator.classic.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupMetadata,
)
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, assigned_partitions, choose_protocol
from trio_broker.coordinator.classic.rebalance import rebalance_or_complete_join
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID, join_error
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.offsets.expiry import OffsetRetention
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, Now

UNKNOWN_TIMESTAMP_MS: Final = -1
"""The time of the last change of state in records from before Kafka 2.1."""

# Heartbeats are the most frequent requests of a group, and members of an enum class are slow to look up.
_NONE: Final = ErrorCode.NONE
_REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS


class ClassicGroup(GroupMetadata):
    """One classic group. Takes events and returns what follows from each; errors are responses."""

    type: Final = GroupType.CLASSIC

    @classmethod
    def of_members(
        cls,
        group_id: str,
        settings: GroupCoordinatorConfig,
        now: Now,
        *,
        generation_id: int,
        protocol_type: str,
        members: Sequence[ClassicMember],
    ) -> ClassicGroup:
        """A stable group of ``members``, as a consumer group becomes one; there is a strategy that all support."""
        group = cls(group_id, settings, now)
        group.generation_id, group.protocol_type = generation_id, protocol_type
        for member in members:
            group.member_table.add(member)
            group.extend_session(member)
        if members:
            group.protocol_name = choose_protocol(member.protocols for member in members)
        group.apply(group.metadata_record())
        return group

    # --- Members and time ---

    def join(self, event: CoordinatorEvent[JoinGroupRequest]) -> GroupResult:
        return join_group.join(self, event)

    def sync(self, event: CoordinatorEvent[SyncGroupRequest]) -> GroupResult:
        return sync_group.sync(self, event)

    def heartbeat(self, event: CoordinatorEvent[HeartbeatRequest]) -> ErrorCode:
        """Keep a member's session alive."""
        request = event.request
        # The most frequent request of a group, so the common case is written out: one lookup, and a session that is
        # extended in place.
        member = self.members.get(request.member_id)
        if member is None or request.group_instance_id is not None:
            if self.state is DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code := self.member_table.membership_error(request.member_id, request.group_instance_id):
                return code
            member = self.members[request.member_id]
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        deadline = event.now.monotonic_seconds + member.session_timeout_ms / 1000
        member.session_deadline = deadline
        if deadline < self.next_session_deadline:
            self.next_session_deadline = deadline
        return _REBALANCE_IN_PROGRESS if self.state is PREPARING_REBALANCE else _NONE

    def leave(self, event: CoordinatorEvent[LeaveGroupRequest]) -> GroupResult:
        return leave_group.leave(self, event)

    def tick(self, now: Now, image: MetadataImage) -> GroupResult:
        return deadlines.tick(self, now)

    def start_rebalance(self, reason: str, now: Now) -> GroupResult:
        """Have all members join again; the group is not dead."""
        update = ClassicGroupUpdate(self, now)
        rebalance_or_complete_join(update, reason)
        return update.result

    def metadata_changed(self) -> None:
        """The members themselves look at topics."""

    # --- The life of the object ---

    def loaded(self, now: Now) -> None:
        """All records are read: every member has a whole session for its next request."""
        self.now, self.next_session_deadline = now, math.inf
        for member in self.members.values():
            self.extend_session(member)
        if len(self.members) > self.settings.group_max_size:
            # The limit was lowered: the members that join again first may stay.
            self.start_rebalance(f"the group is larger than {self.settings.group_max_size}", now)

    def abandon(self, code: ErrorCode) -> Sequence[Completion]:
        """Complete all requests that wait with ``code``. The group is dead: another coordinator or object has it."""
        update = ClassicGroupUpdate(self, self.now)
        for member in list(self.members.values()):
            update.fail_requests(member, code, member.member_id)
            self.member_table.remove(member.member_id)
        self.member_table.pending_joins.clear()
        self.move_to(DEAD)
        self.initial_delay = None
        self.join_deadline = self.sync_deadline = self.next_session_deadline = math.inf
        return update.result.completions

    # --- Committed offsets ---

    def validate_offset_commit(self, request: OffsetCommitRequest, version: int, now: Now) -> ErrorCode:
        """Whether the offsets may be committed: by a member of this generation or, in an empty group, by a request that
        names no generation (a simple consumer or an administrator). A commit of a member extends its session.
        """
        member_id, instance_id = request.member_id, request.group_instance_id
        generation_id = request.generation_id_or_member_epoch
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and member_id == NO_MEMBER_ID and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if code := self.member_table.membership_error(member_id, instance_id):
            return code
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is COMPLETING_REBALANCE:
            # The member is of this generation but has no assignment in it: what it has read is no longer its own.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.now = now
        self.extend_session(self.members[member_id])
        return ErrorCode.NONE

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Every request may read the offsets of a classic group."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is DEAD else ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        """NONE where ``is_subscribed_to`` decides about each topic; the topics of other groups than consumers' cannot
        be known.
        """
        if self.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def validate_delete_group(self) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_retention(self) -> OffsetRetention | None:
        """When the group's offsets begin to expire: see ``offsets.expiry``."""
        if self.protocol_type is None:
            return OffsetRetention()
        if self.state is EMPTY:
            return OffsetRetention(None if self.state_since_ms == UNKNOWN_TIMESTAMP_MS else self.state_since_ms)
        return OffsetRetention() if self.state is STABLE and self.subscribed_topics is not None else None

    # --- Reporting ---

    def describe(self) -> DescribedGroup:
        """For DescribeGroups: in a stable group with what its members agreed on."""
        protocol = self.protocol_name if self.state is STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol or "",
            members=[member.described(protocol) for member in self.members.values()],
        )

    def owned_partitions(self, image: MetadataImage) -> Iterator[TopicPartition]:
        """The partitions of the members' assignments, as far as they can be read. Members may change meanwhile."""
        for member in list(self.members.values()) if self.protocol_type == CONSUMER_PROTOCOL_TYPE else ():
            for topic, partitions in (assigned_partitions(member.assignment) or {}).items():
                yield from (TopicPartition(topic, index) for index in partitions)

    def snapshot(self, image: MetadataImage, *, with_members: bool = True) -> GroupSnapshot:
        """The group for lists and the admin API."""
        members = self.members.values() if with_members else ()
        return GroupSnapshot(
            group_id=self.group_id,
            type=self.type,
            protocol_type=self.protocol_type or "",
            protocol=self.protocol_name or "",
            state=self.state.value,
            generation=self.generation_id,
            leader=self.leader_id,
            member_count=len(self.members),
            members=tuple(member.snapshot(self.protocol_type, self.protocol_name) for member in members),
        )


def first_join(
    event: CoordinatorEvent[JoinGroupRequest], settings: GroupCoordinatorConfig, tombstones: Sequence[GroupRecord] = ()
) -> GroupResult:
    """A member joins a group that does not exist, or that ends with ``tombstones``.

    Kafka writes the group before its first member, so that it exists even if no member ever comes. The tombstones are
    in the same batch, so that the log never has two groups of one name.
    """
    group = ClassicGroup(event.request.group_id, settings, event.now)
    record = group.metadata_record()
    group.apply(record)
    result = group.join(event)
    assert not result.records, result.records
    result.records = [*tombstones, record]
    result.replace_with = group
    result.refused = lambda code: GroupResult(completions=[Completion(event.future, join_error(code))])
    return result
