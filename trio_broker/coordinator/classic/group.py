"""A classic consumer group: the requests of its members, and what becomes of them.

The group whose assignment is computed by one of its members, as all clients did before KIP-848 and most still do. What
the members agree on is theirs: the strategies' names, the bytes that go with them, even what kind of group it is
(``consumer``, ``connect``, …). The broker counts who is there.

This is the whole of it, from two parts below: how one generation follows another is in ``classic_rebalance``, who may
join in ``classic_joining``. Here are the other requests, what committed offsets ask of a group, and how others see it.

Source: Kafka's GroupMetadataManager (classicGroup…) and ClassicGroup, 4.3.1; KIP-62, KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_groups import DescribedGroup
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafka_wire.messages.list_groups import ListedGroup
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_wire.stored.groups import GroupMetadataKey, GroupMetadataValue, GroupRecord
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic import protocols as classic_protocols
from trio_broker.coordinator.classic import responses as classic_responses
from trio_broker.coordinator.classic.joining import ClassicJoining, StaticReplacement
from trio_broker.coordinator.classic.member import ClassicMember, PendingResponse
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.classic.rebalance import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupState,
)
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID
from trio_broker.coordinator.reporting.description import GroupProtocol, GroupSnapshot
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEventKind, Now, RequestContext

__all__ = ["ClassicGroup", "ClassicGroupState"]


class ClassicGroup(ClassicJoining):
    """One classic group. An event in, its effects out; refusals are answers."""

    # --- How a group comes to be ---

    @classmethod
    def restored(
        cls, group_id: str, value: GroupMetadataValue, settings: GroupCoordinatorConfig, now: Now
    ) -> ClassicGroup:
        """The group as its last record left it. Every member has a whole session to show that it lives."""
        group = cls(group_id, settings, now)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group._enter_all((ClassicMember.restored(member, value.protocol or "") for member in value.members), now)
        if value.leader in group.members:
            group.member_table.leader_id = value.leader
        group.state_since_ms = value.current_state_timestamp
        if len(group.members) > settings.group_max_size:
            # The limit was lowered: the members that join again first may stay.
            group.start_rebalance(f"the group is larger than {settings.group_max_size}", now)
        return group

    @classmethod
    def of_members(
        cls,
        group_id: str,
        settings: GroupCoordinatorConfig,
        now: Now,
        *,
        generation_id: int,
        protocol_type: str,
        members: Iterable[ClassicMember],
    ) -> ClassicGroup:
        """A stable group of ``members``, as a consumer group becomes one; there is a strategy that all support."""
        group = cls(group_id, settings, now)
        group.generation_id = generation_id
        group.protocol_type = protocol_type
        members = list(members)
        if members:
            group.protocol_name = classic_protocols.choose_protocol(member.protocols for member in members)
        group._enter_all(members, now)
        return group

    def _enter_all(self, members: Iterable[ClassicMember], now: Now) -> None:
        for member in members:
            self.member_table.add(member)
            self._extend_session(member, now)
        self._note_subscriptions()
        self.state = STABLE if self.members else EMPTY

    # --- SyncGroup ---

    def sync(
        self, request: SyncGroupRequest, context: RequestContext, future: ResponseFuture, now: Now
    ) -> CoordinatorResult:
        """Give a member its assignment, as soon as the leader has brought it."""
        result = CoordinatorResult()
        if code := self._sync_error(request):
            result.complete(future, classic_responses.sync_error(code))
            return result
        member = self.members[request.member_id]
        self._has_synced(member)
        self._extend_session(member, now)
        if self.state is STABLE:
            result.complete(future, self._synced(member))
            return result
        self._await_sync(member, PendingResponse(future, context.version), result)
        if member.member_id == self.leader_id:
            assignments = {each.member_id: each.assignment for each in request.assignments}
            self._assign(assignments, now, result)
        return result

    def _sync_error(self, request: SyncGroupRequest) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code := self.member_table.membership_error(request.member_id, request.group_instance_id):
            return code
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING_REBALANCE else ErrorCode.NONE

    # --- Heartbeat ---

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext, now: Now) -> ErrorCode:
        """Keep a member's session alive. Called far more often than anything else, so it is written out flat."""
        member = self.members.get(request.member_id)
        if member is None or request.group_instance_id is not None:
            if self.state is DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code := self.member_table.membership_error(request.member_id, request.group_instance_id):
                return code
            member = self.members[request.member_id]
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        deadline = now.monotonic_seconds + member.session_timeout_ms / 1000
        member.session_deadline = deadline
        if deadline < self._next_session_deadline:
            self._next_session_deadline = deadline
        return _REBALANCE_IN_PROGRESS if self.state is PREPARING_REBALANCE else _NONE

    # --- LeaveGroup ---

    def leave(
        self, request: LeaveGroupRequest, context: RequestContext, future: ResponseFuture, now: Now
    ) -> CoordinatorResult:
        """Let members go, by their own wish or an administrator's."""
        result = CoordinatorResult()
        if self.state is DEAD:
            result.complete(future, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return result
        members = classic_responses.leaving_members(request, context.version)
        codes = [self._leave_one(member, now, result) for member in members]
        if ErrorCode.NONE in codes and self.state is not EMPTY:
            gone = members[codes.index(ErrorCode.NONE)]
            self._rebalance_or_complete_join(f"{gone.member_id or gone.group_instance_id} left", now, result)
        responses = [classic_responses.left(member, code) for member, code in zip(members, codes, strict=True)]
        result.complete(future, classic_responses.leave_answer(context.version, responses))
        return result

    def _leave_one(self, identity: MemberIdentity, now: Now, result: CoordinatorResult) -> ErrorCode:
        member_id = identity.member_id
        if member_id in self.member_table.pending_joins:
            self.member_table.remove(member_id)
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID and identity.group_instance_id is not None:
            # An administrator removes whoever has the instance id.
            member_id = self.member_table.static_member_id(identity.group_instance_id) or NO_MEMBER_ID
        code = self.member_table.membership_error(member_id, identity.group_instance_id)
        if not code:
            self._remove(self.members[member_id], GroupEventKind.MEMBER_LEFT, identity.reason or "", now, result)
        return code

    # --- When the log refuses, or the partition moves ---

    def write_failed(self, result: CoordinatorResult, code: ErrorCode, now: Now) -> CoordinatorResult:
        """The records of ``result`` could not be written; nothing of ``result`` was done. What to do instead.

        An assignment that is not written down may not be used: it is taken back, and the group rebalances. A static
        member that came back is undone, so that the id in the log stays the true one. That a group is empty is true all
        the same: if the record is lost, a restart brings members back, and their sessions end.
        """
        replacement, self._replacement = self._replacement, None
        if replacement is not None and any(record is replacement.record for record in result.records):
            return self._replacement_failed(replacement, result, code, now)
        if self.state is STABLE:
            return self._assignment_failed(result, code, now)
        instead = CoordinatorResult(events=result.events)
        for completion in result.completions:
            is_leave = isinstance(completion.response, LeaveGroupResponse)
            instead.complete(
                completion.future, LeaveGroupResponse(error_code=code) if is_leave else completion.response
            )
        return instead

    def _replacement_failed(
        self, replacement: StaticReplacement, result: CoordinatorResult, code: ErrorCode, now: Now
    ) -> CoordinatorResult:
        self.member_table.replace(replacement.new, replacement.old)
        self._extend_session(replacement.old, now)
        instead = CoordinatorResult()
        for completion in result.completions:
            response = completion.response
            if isinstance(response, JoinGroupResponse) and not response.error_code:
                response.error_code = code
                response.member_id = NO_MEMBER_ID
                response.leader = self.leader_id or NO_MEMBER_ID
                response.skip_assignment = False
                response.members = []
            instead.complete(completion.future, response)
        return instead

    def _assignment_failed(self, result: CoordinatorResult, code: ErrorCode, now: Now) -> CoordinatorResult:
        instead = CoordinatorResult()
        for completion in result.completions:
            is_lost = isinstance(completion.response, SyncGroupResponse) and not completion.response.error_code
            instead.complete(completion.future, classic_responses.sync_error(code) if is_lost else completion.response)
        self._take_assignments_back()
        self._record_event(instead, GroupEventKind.ASSIGNMENT_LOST, now, reason=code.name)
        self._prepare_rebalance("the assignment could not be written down", now, instead)
        return instead

    def abandon(self, code: ErrorCode) -> CoordinatorResult:
        """Answer whatever waits with ``code``; the group is dead from now on, and another object may be it."""
        result = CoordinatorResult()
        for member in self.members.values():
            self._answer_join(member, code, result, member.member_id)
            self._answer_sync(member, code, result)
        for member_id in list(self.members):
            self.member_table.remove(member_id)
        self.member_table.pending_joins.clear()
        self.state = DEAD
        self._initial_delay = None
        self._join_deadline = self._sync_deadline = self._next_session_deadline = float("inf")
        return result

    # --- Committed offsets ---

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, version: int, now: Now
    ) -> ErrorCode:
        """Whether these may be committed, by a member of this generation or, in an empty group, by anyone who names
        none (a simple consumer or an administrator). A commit of a member keeps its session alive.
        """
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if code := self.member_table.membership_error(member_id, group_instance_id):
            return code
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is COMPLETING_REBALANCE:
            # The member is of this generation but has no assignment in it: what it has read is not its own any more.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._extend_session(self.members[member_id], now)
        return ErrorCode.NONE

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Anyone may read the offsets of a classic group."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is DEAD else ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        """NONE where ``is_subscribed_to`` decides about each topic: of others than consumers nobody knows what they
        use.
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

    def is_subscribed_to(self, topic: str) -> bool:
        """Where subscriptions cannot be known, a group of consumers counts as subscribed to everything."""
        topics = self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE if topics is None else topic in topics

    # --- What others see ---

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is DEAD

    @property
    def is_deserted(self) -> bool:
        """Whether nobody is here or on the way in."""
        return self.state is EMPTY and not self.member_table.pending_joins

    @property
    def is_unused(self) -> bool:
        """Whether nobody ever was here, either: such a group can be forgotten without a record."""
        return self.is_deserted and self.generation_id == 0

    def listed(self) -> ListedGroup:
        """For ListGroups."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type=GroupProtocol.CLASSIC.value,
        )

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

    def description(self) -> GroupSnapshot:
        """For people."""
        return GroupSnapshot(
            group_id=self.group_id,
            type=GroupProtocol.CLASSIC,
            protocol_type=self.protocol_type or "",
            protocol=self.protocol_name or "",
            state=self.state.value,
            generation=self.generation_id,
            leader=self.leader_id,
            members=tuple(
                member.description(self.protocol_type, self.protocol_name) for member in self.members.values()
            ),
        )

    def tombstones(self) -> list[GroupRecord]:
        """What takes the group out of the log; its offsets have records of their own."""
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)]


_NONE: Final = ErrorCode.NONE
_REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS
