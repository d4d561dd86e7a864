"""Who may join a classic group, and what a JoinGroup sets off.

A dynamic member without an id is given one and asked to come again with it (KIP-394), before version 4 it is let in at
once. A member that joins again either takes part in a rebalance, sets one off because its strategies changed or because
it leads, or has merely missed an answer and is told how things stand.

Static members (KIP-345) come back under a new member id within their session. The old id is fenced with
FENCED_INSTANCE_ID, requests of it that wait included, and in a stable group nobody else notices: the new self is given
the same assignment, unless its strategies would make the group choose another one. Should it have led the group, it
learns so from version 9 on, and that it need not assign anew (KIP-814); older clients are told that the leader is
someone else, because they would assign.

Source: Kafka's GroupMetadataManager (classicGroupJoin…), 4.3.1.
"""

from __future__ import annotations

from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.stored.groups import GroupRecord
from trio_broker.coordinator.classic import protocols as classic_protocols
from trio_broker.coordinator.classic import responses as classic_responses
from trio_broker.coordinator.classic.member import ClassicMember, PendingResponse
from trio_broker.coordinator.classic.protocols import Protocols
from trio_broker.coordinator.classic.rebalance import (
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupState,
    ClassicRebalance,
)
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEventKind, Now, RequestContext

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long the first JoinGroup of a member waits at most, as in Kafka: its client may be gone and have left it behind,
which nobody would notice, and if it is there it asks again.
"""


@attrs.frozen
class StaticReplacement:
    """A static member that quietly took the place of its old self, and the record that says so."""

    record: GroupRecord
    old: ClassicMember
    new: ClassicMember


@attrs.frozen
class _Join:
    """One JoinGroup: what it asks for, and where its effects go."""

    request: JoinGroupRequest
    context: RequestContext
    pending: PendingResponse
    now: Now
    new_member_id: str
    protocols: Protocols
    result: CoordinatorResult

    @property
    def rebalance_timeout_ms(self) -> int:
        return classic_responses.rebalance_timeout_ms(self.request, self.context.version)

    def fail(self, code: ErrorCode, member_id: str | None = None) -> None:
        """Answer with an error; the member id is the one that asks, unless another is given."""
        named = self.request.member_id if member_id is None else member_id
        self.result.complete(self.pending.future, classic_responses.join_error(self.context.version, code, named))


class ClassicJoining(ClassicRebalance):
    """The part of a classic group that lets members in."""

    _replacement: StaticReplacement | None = None
    """The latest, in case the record about it cannot be written."""

    def join(
        self,
        request: JoinGroupRequest,
        context: RequestContext,
        future: ResponseFuture,
        now: Now,
        *,
        new_member_id: str,
    ) -> CoordinatorResult:
        """Let a member in, or have it take part in a rebalance; ``new_member_id`` is for one that has no id yet."""
        protocols = classic_protocols.protocols_of(request.protocols)
        result = CoordinatorResult()
        join = _Join(request, context, PendingResponse(future, context.version), now, new_member_id, protocols, result)
        if code := classic_responses.session_timeout_error(request, self.settings):
            join.fail(code)
        elif not self._has_room_for(request.member_id):
            self._reject_for_size(join)
        elif self.state is DEAD:
            join.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(request.protocol_type, protocols):
            join.fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == NO_MEMBER_ID:
            self._join_without_id(join)
        elif request.member_id in self.member_table.pending_joins:
            self._join_pending(join)
        elif code := self.member_table.membership_error(request.member_id, request.group_instance_id):
            join.fail(code)
        else:
            self._join_again(join, self.members[request.member_id])
        return result

    # --- Who may ---

    def _has_room_for(self, member_id: str) -> bool:
        """Whether ``group.max.size`` allows it. While members join again only those who have come count, so that a
        group that is too large sheds the last ones.
        """
        match self.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                member = self.members.get(member_id)
                is_counted = member is not None and member.awaiting_join is not None
                return is_counted or self.member_table.joined_count < self.settings.group_max_size
            case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
                return member_id in self.members or len(self.members) < self.settings.group_max_size
            case _:
                return True

    def _reject_for_size(self, join: _Join) -> None:
        join.fail(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        if member := self.members.get(join.request.member_id):
            self._remove(member, GroupEventKind.MEMBER_LEFT, "the group is full", join.now, join.result)
        else:
            self.member_table.remove(join.request.member_id)
        self._complete_join_unless_initial(join.now, join.result)

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.member_table.supports_any(protocols)

    # --- New members ---

    def _join_without_id(self, join: _Join) -> None:
        """A static member may have been here before; others are new."""
        instance_id = join.request.group_instance_id
        old_member_id = None if instance_id is None else self.member_table.static_member_id(instance_id)
        if old_member_id is not None:
            self._replace(join, self.members[old_member_id])
        elif instance_id is None and join.context.version >= classic_responses.FIRST_JOIN_WITH_KNOWN_MEMBER_ID:
            deadline = join.now.monotonic_seconds + join.request.session_timeout_ms / 1000
            self.member_table.add_pending(join.new_member_id, deadline)
            self._note_session_deadline(deadline)
            join.fail(ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)
        else:
            self._add(join, join.new_member_id)

    def _join_pending(self, join: _Join) -> None:
        if join.request.group_instance_id is None:
            self._add(join, join.request.member_id)
        else:
            # Ids are given to dynamic members only, so this client is in error. Kafka says no more than this either.
            join.fail(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _add(self, join: _Join, member_id: str) -> None:
        if not self.members:
            self.protocol_type = join.request.protocol_type
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=join.request.group_instance_id,
            client_id=join.context.client_id,
            client_host=join.context.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
        )
        if self._initial_delay is not None:
            self._initial_delay.has_grown = True
        self.member_table.add(member)
        self._await_join(member, join.pending, join.result)
        self._set_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS, join.now)
        self._record_event(
            join.result, GroupEventKind.MEMBER_JOINED, join.now, member=member, reason=join.request.reason
        )
        self._rebalance_or_complete_join(f"{member_id} joined", join.now, join.result)

    # --- Members ---

    def _join_again(self, join: _Join, member: ClassicMember) -> None:
        is_changed = not classic_protocols.are_same(member.protocols, join.protocols)
        # A leader that joins again wants a new assignment, of other partitions for instance, though it says the same.
        wants_rebalance = self.state is STABLE and member.member_id == self.leader_id
        if self.state is PREPARING_REBALANCE or is_changed or wants_rebalance:
            kind = GroupEventKind.SUBSCRIPTION_CHANGED if is_changed else GroupEventKind.MEMBER_REJOINED
            self._update(join, member)
            self._await_join(member, join.pending, join.result)
            self._record_event(join.result, kind, join.now, member=member, reason=join.request.reason)
            self._rebalance_or_complete_join(f"{member.member_id}: {kind.value}", join.now, join.result)
        else:
            self._extend_session(member, join.now)
            join.result.complete(join.pending.future, self._joined(member, join.pending.version))

    def _update(self, join: _Join, member: ClassicMember) -> None:
        self.member_table.set_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms

    # --- Static members that were here before ---

    def _replace(self, join: _Join, old: ClassicMember) -> None:
        now, result = join.now, join.result
        old_leader_id = self.leader_id
        self._answer_join(old, ErrorCode.FENCED_INSTANCE_ID, result, old.member_id)
        self._answer_sync(old, ErrorCode.FENCED_INSTANCE_ID, result)
        new = old.replaced_by(join.new_member_id)
        self.member_table.replace(old, new)
        self._update(join, new)
        self._extend_session(new, now)
        self._record_event(result, GroupEventKind.MEMBER_FENCED, now, member=old, reason=f"replaced by {new.member_id}")
        self._record_event(result, GroupEventKind.MEMBER_REPLACED, now, member=new, reason=join.request.reason)
        if self.state is STABLE and self._next_protocol() == self.protocol_name:
            self._go_on_quietly(join, old, new, old_leader_id)
        else:
            # While a generation completes, its leader may be assigning to the old id: nobody would get that share.
            self._await_join(new, join.pending, result)
            self._rebalance_or_complete_join(f"{new.member_id} took the place of {old.member_id}", now, result)

    def _next_protocol(self) -> str:
        return classic_protocols.choose_protocol(member.protocols for member in self.members.values())

    def _go_on_quietly(self, join: _Join, old: ClassicMember, new: ClassicMember, old_leader_id: str | None) -> None:
        """No rebalance: the new member id is written down, and its client goes on in the same generation."""
        response = self._joined(new, join.pending.version)
        if join.context.version >= classic_responses.FIRST_JOIN_WITH_SKIP_ASSIGNMENT:
            response.skip_assignment = new.member_id == self.leader_id
        else:
            response.leader = old_leader_id or NO_MEMBER_ID
            response.members = []
        record = self.metadata_record()
        join.result.records.append(record)
        join.result.complete(join.pending.future, response)
        self._replacement = StaticReplacement(record, old, new)
