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

While it prepares, JoinGroup requests wait until every member has sent one, or the longest rebalance timeout has passed:
then members that have not joined are removed, except static ones, which have until their session ends. The first
rebalance of an empty group waits for a fixed delay instead, and for another one while members keep joining, so that the
consumers of an application that starts do not rebalance once for each of them. While it completes, SyncGroup requests
wait for the leader's, which brings the assignment of all members.

A dynamic member without an id is given one and has to join again with it (KIP-394); before version 4 it is added at
once. A member that joins again takes part in a rebalance, or starts one because its strategies changed or because it
leads, or has merely missed a response and gets the state as it is.

Static members (KIP-345) come back under a new member id within their session. The old id is fenced with
FENCED_INSTANCE_ID, requests of it that wait included, and in a stable group no other member notices: the new id gets
the same assignment, unless its strategies would make the group choose another one. If it leads, it learns so from
version 9 on, and that it need not assign anew (KIP-814); older clients get another member as the leader, because they
would assign.

Where this differs from Kafka: a request that is sent again while the first one waits does not leave the first one
without a response, nor does a member that leaves while its SyncGroup waits; a group that is full and rejects the last
member it has waited for goes on at once; a SyncGroup in a stable group extends the session; and after the greatest
generation comes 0, where Kafka's int would turn negative, which clients take for none.

Source: Kafka's GroupMetadataManager (classicGroup…) and ClassicGroup, 4.3.1; KIP-62, KIP-134 for the delay, KIP-345,
KIP-394, KIP-814.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_groups import DescribedGroup
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_wire.stored.groups import GroupMetadataKey, GroupMetadataValue, GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.member import NO_ASSIGNMENT, ClassicMember
from trio_broker.coordinator.classic.member_table import MemberTable
from trio_broker.coordinator.classic.protocols import (
    CONSUMER_PROTOCOL_TYPE,
    are_same,
    assigned_partitions,
    choose_protocol,
    protocols_of,
    topics_of_all,
)
from trio_broker.coordinator.classic.responses import (
    FIRST_JOIN_WITH_KNOWN_MEMBER_ID,
    NO_MEMBER_ID,
    join_error,
    leave_result,
    rebalance_timeout_ms,
    refused_completions,
    sync_error,
)
from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.group_result import GroupResult, group_event
from trio_broker.coordinator.offsets.expiry import OffsetRetention
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType
from trio_broker.coordinator.runtime.errors import ContradictoryRecords
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, Now
from trio_broker.topic_partition import TopicPartition

MAX_GENERATION: Final = 2**31 - 1

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long the first JoinGroup of a member waits at most, as in Kafka: its client may be gone, which nothing else would
show, and a client that is there asks again."""

MIN_REBALANCE_RETRY_MS: Final = 1_000
"""A group whose static members are all missing is looked at again after its rebalance timeout, but no sooner than this:
a client may set that timeout to 0, and the broker would then do nothing else."""

MAX_DUE_AT_ONCE: Final = 500
"""Members whose sessions have ended that one ``tick`` removes; the next one removes others. Without a limit a thousand
that fall silent at once would delay other groups."""

FIRST_JOIN_WITH_SKIP_ASSIGNMENT: Final = 9
"""From this version of JoinGroup on, a static leader that returns learns that it need not assign (KIP-814)."""

UNKNOWN_TIMESTAMP_MS: Final = -1
"""The time of the last change of state in records from before Kafka 2.1."""


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

# Heartbeats are the most frequent requests of a group, and members of an enum class are slow to look up.
_NONE: Final = ErrorCode.NONE
_REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS


@attrs.define
class InitialDelay:
    """The wait for more members of a group that was empty. Both times are in milliseconds."""

    delay_ms: int
    remaining_ms: int
    """How much longer the delay may still become: the rebalance timeout bounds it."""
    has_grown: bool = False
    """Whether a member has joined since the delay began."""


_Join = CoordinatorEvent[JoinGroupRequest]


class ClassicGroup:
    """One classic group. Takes events and returns what follows from each; errors are responses.

    An event sets the time, collects what follows in ``_result`` and hands that out at its end. The time of an event is
    never before that of the last one.

    The log has the generation that was stable last: its members with their assignments, or that none is left. Only
    ``apply`` brings the group to that. From there to the next generation everything is in memory only. An event has at
    most one record, as the last thing that it decides.
    """

    type: Final = GroupType.CLASSIC

    def __init__(self, group_id: str, settings: GroupCoordinatorConfig, now: Now) -> None:
        self.group_id = group_id
        self.settings = settings
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
        """Those of the generation, if they can be known. Decoded on demand, which is seldom."""
        self._subscribed_topics: frozenset[str] | None = None
        """The decoded ``_subscriptions``."""
        self._replacement: ClassicMember | None = None
        """The static member whose record is being appended, with what the record does not have."""
        self._initial_delay: InitialDelay | None = None
        """Set while the first rebalance of an empty group waits for more members."""
        self._join_deadline = math.inf
        """When the group stops waiting for JoinGroup requests."""
        self._sync_deadline = math.inf
        """When the group stops waiting for SyncGroup requests."""
        self._next_session_deadline = math.inf
        """At or before the earliest session deadline. Heartbeats only move those on, so it is made exact when it
        passes, not each time."""
        self._now = now
        self._result = GroupResult()

    def _take_result(self) -> GroupResult:
        # Not kept until the next event: responses hold the assignments of all members.
        result, self._result = self._result, GroupResult()
        return result

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
            group._extend_session(member)
        if members:
            group.protocol_name = choose_protocol(member.protocols for member in members)
        group.apply(group.metadata_record())
        return group

    # --- JoinGroup ---

    def join(self, join: _Join) -> GroupResult:
        """Add a member, or let it take part in a rebalance. The request has passed ``join_request_error``."""
        self._now, request = join.now, join.request
        if not self._has_room_for(request.member_id):
            self._reject_for_size(join)
        elif self.state is DEAD:
            self._fail(join, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(request):
            self._fail(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == NO_MEMBER_ID:
            self._join_without_id(join)
        elif request.member_id in self.member_table.pending_joins and request.group_instance_id is None:
            self._add(join, request.member_id)
        elif request.member_id in self.member_table.pending_joins:
            # Ids are given to dynamic members only, so this client is in error. Kafka says no more than this either.
            self._fail(join, ErrorCode.UNKNOWN_SERVER_ERROR)
        elif code := self.member_table.membership_error(request.member_id, request.group_instance_id):
            self._fail(join, code)
        else:
            self._join_again(join, self.members[request.member_id])
        return self._take_result()

    def _fail(self, join: _Join, code: ErrorCode, member_id: str | None = None) -> None:
        """Complete ``join`` with an error; the member id is the request's, unless another is given."""
        self._result.complete(join.future, join_error(code, join.request.member_id if member_id is None else member_id))

    def _has_room_for(self, member_id: str) -> bool:
        """Whether ``group.max.size`` allows it. While the group prepares a rebalance only the members that have joined
        count, so that a group that is too large loses the last ones.
        """
        match self.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                member = self.members.get(member_id)
                is_counted = member is not None and member.awaiting_join is not None
                return is_counted or self.member_table.awaiting_join_count < self.settings.group_max_size
            case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
                return member_id in self.members or len(self.members) < self.settings.group_max_size
            case _:
                return True

    def _reject_for_size(self, join: _Join) -> None:
        self._fail(join, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        if member := self.members.get(join.request.member_id):
            self._remove(member, GroupEventKind.MEMBER_LEFT, "the group is full")
        else:
            self.member_table.remove(join.request.member_id)
        self._complete_join_unless_initial()

    def _supports(self, request: JoinGroupRequest) -> bool:
        if self.state is EMPTY:
            return bool(request.protocol_type) and bool(request.protocols)
        names = (protocol.name for protocol in request.protocols)
        return request.protocol_type == self.protocol_type and self.member_table.supports_any(names)

    def _join_without_id(self, join: _Join) -> None:
        """Replace a static member that has its instance id, else add the member or give it an id."""
        instance_id = join.request.group_instance_id
        old_member_id = None if instance_id is None else self.member_table.static_member_id(instance_id)
        if old_member_id is not None:
            self._replace(join, self.members[old_member_id])
        elif instance_id is None and join.context.version >= FIRST_JOIN_WITH_KNOWN_MEMBER_ID:
            deadline = self._now.monotonic_seconds + join.request.session_timeout_ms / 1000
            self.member_table.add_pending(join.new_id, deadline)
            self._next_session_deadline = min(self._next_session_deadline, deadline)
            self._fail(join, ErrorCode.MEMBER_ID_REQUIRED, join.new_id)
        else:
            self._add(join, join.new_id)

    def _add(self, join: _Join, member_id: str) -> None:
        if not self.members:
            self.protocol_type = join.request.protocol_type
        member = ClassicMember(
            member_id=member_id,
            instance_id=join.request.group_instance_id,
            client_id=join.context.client_id,
            client_host=join.context.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms(join.request),
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=protocols_of(join.request.protocols),
            is_new=True,
        )
        if self._initial_delay is not None:
            self._initial_delay.has_grown = True
        self.member_table.add(member)
        self._await_join(member, join)
        self._extend_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._record_event(GroupEventKind.MEMBER_JOINED, member, join.request.reason)
        self._rebalance_or_complete_join(f"{member_id} joined")

    def _join_again(self, join: _Join, member: ClassicMember) -> None:
        protocols = protocols_of(join.request.protocols)
        is_changed = not are_same(member.protocols, protocols)
        # A leader that joins again wants a new assignment, of other partitions for instance, though it says the same.
        wants_rebalance = self.state is STABLE and member.member_id == self.leader_id
        if self.state is PREPARING_REBALANCE or is_changed or wants_rebalance:
            kind = GroupEventKind.SUBSCRIPTION_CHANGED if is_changed else GroupEventKind.MEMBER_REJOINED
            self.member_table.set_protocols(member, protocols)
            member.rebalance_timeout_ms = rebalance_timeout_ms(join.request)
            member.session_timeout_ms = join.request.session_timeout_ms
            self._await_join(member, join)
            self._record_event(kind, member, join.request.reason)
            self._rebalance_or_complete_join(f"{member.member_id}: {kind.value}")
        else:
            self._extend_session(member)
            self._result.complete(join.future, self._joined(member.member_id))

    def _replace(self, join: _Join, old: ClassicMember) -> None:
        """A static member comes back under a new id."""
        new = old.replaced_by(join.new_id, join.request)
        members = [*(member for member in self.members.values() if member is not old), new]
        if self.state is STABLE and choose_protocol(member.protocols for member in members) == self.protocol_name:
            self._replace_in_generation(join, old, new, members)
            return
        self._fail_join(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        self._fail_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        self.member_table.replace(old, new)
        self._extend_session(new)
        self._record_replacement(join, old, new)
        # While a generation completes, its leader may assign to the old id: no member would get that share.
        self._await_join(new, join)
        self._rebalance_or_complete_join(f"{new.member_id} replaced {old.member_id}")

    def _replace_in_generation(
        self, join: _Join, old: ClassicMember, new: ClassicMember, members: Sequence[ClassicMember]
    ) -> None:
        """Decide that ``new`` has the place of ``old`` in the stable generation."""
        leads, response = old.member_id == self.leader_id, self._joined(NO_MEMBER_ID)
        response.member_id = new.member_id
        if leads and join.context.version >= FIRST_JOIN_WITH_SKIP_ASSIGNMENT:
            # An older client, which does not know the field, would assign anew if it learned that it leads (KIP-814).
            response.leader, response.skip_assignment = new.member_id, True
            response.members = [each.for_leader(self.protocol_name) for each in members]
        self._replacement = new
        self._record_replacement(join, old, new)
        self._result.complete(join.future, response)
        leader_id = new.member_id if leads else self.leader_id
        self._result.records.append(self._record_of(members, leader_id, self.state_since_ms))
        self._result.refused = partial(self._replacement_refused, join, old)

    def _replacement_refused(self, join: _Join, old: ClassicMember, code: ErrorCode) -> GroupResult:
        """The id that the log has stays the valid one. Its client lives: it may need a while to ask again."""
        self._extend_session(old)
        response = self._joined(NO_MEMBER_ID)
        response.error_code = code
        return GroupResult(completions=[Completion(join.future, response)])

    def _record_replacement(self, join: _Join, old: ClassicMember, new: ClassicMember) -> None:
        self._record_event(GroupEventKind.MEMBER_FENCED, old, f"replaced by {new.member_id}")
        self._record_event(GroupEventKind.MEMBER_REPLACED, new, join.request.reason)

    # --- SyncGroup, Heartbeat, LeaveGroup ---

    def sync(self, event: CoordinatorEvent[SyncGroupRequest]) -> GroupResult:
        """Give a member its assignment, once the leader has brought it."""
        self._now, request = event.now, event.request
        if code := self._sync_code(request):
            self._result.complete(event.future, sync_error(code))
            return self._take_result()
        member = self.members[request.member_id]
        self.member_table.pending_syncs.discard(member.member_id)
        if not self.member_table.pending_syncs:
            self._sync_deadline = math.inf
        self._extend_session(member)
        if self.state is STABLE:
            self._result.complete(event.future, self._synced(member.assignment))
            return self._take_result()
        # The request may have been sent before, on a connection that is gone.
        self._fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.awaiting_sync = event.future
        if member.member_id == self.leader_id:
            self._assign({each.member_id: each.assignment for each in request.assignments})
        return self._take_result()

    def _sync_code(self, request: SyncGroupRequest) -> ErrorCode:
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
        if deadline < self._next_session_deadline:
            self._next_session_deadline = deadline
        return _REBALANCE_IN_PROGRESS if self.state is PREPARING_REBALANCE else _NONE

    def leave(self, event: CoordinatorEvent[LeaveGroupRequest]) -> GroupResult:
        """Remove members, at their own request or an administrator's."""
        self._now, left = event.now, event.request.members
        if self.state is DEAD:
            self._result.complete(event.future, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return self._take_result()
        codes = [self._leave_one(member) for member in left]
        if ErrorCode.NONE in codes and self.state is not EMPTY:
            gone = left[codes.index(ErrorCode.NONE)]
            self._rebalance_or_complete_join(f"{gone.member_id or gone.group_instance_id} left")
        response = LeaveGroupResponse(members=[leave_result(*each) for each in zip(left, codes, strict=True)])
        self._result.complete(event.future, response)
        return self._take_result()

    def _leave_one(self, identity: MemberIdentity) -> ErrorCode:
        member_id = identity.member_id
        if member_id in self.member_table.pending_joins:
            self.member_table.remove(member_id)
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID and identity.group_instance_id is not None:
            # An administrator removes the member that has the instance id.
            member_id = self.member_table.static_member_id(identity.group_instance_id) or NO_MEMBER_ID
        code = self.member_table.membership_error(member_id, identity.group_instance_id)
        if not code:
            self._remove(self.members[member_id], GroupEventKind.MEMBER_LEFT, identity.reason)
        return code

    # --- Preparing a rebalance ---

    def start_rebalance(self, reason: str, now: Now) -> GroupResult:
        """Have all members join again; the group is not dead."""
        self._now = now
        self._rebalance_or_complete_join(reason)
        return self._take_result()

    def _rebalance_or_complete_join(self, reason: str) -> None:
        if self.state is PREPARING_REBALANCE:
            self._complete_join_unless_initial()
        else:
            self._prepare_rebalance(reason)

    def _prepare_rebalance(self, reason: str) -> None:
        if self.state is COMPLETING_REBALANCE:
            # Members that wait for an assignment have to join again: it would be one of the old generation.
            for member in self.members.values():
                member.assignment = NO_ASSIGNMENT
            for _, future in self._pop_awaiting_syncs():
                self._result.complete(future, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        self.member_table.pending_syncs.clear()
        self._sync_deadline = math.inf
        was_empty = self.state is EMPTY
        self._move_to(PREPARING_REBALANCE)
        self._record_event(GroupEventKind.REBALANCE_STARTED, reason=reason)
        if was_empty:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._initial_delay = InitialDelay(delay_ms, max(self.member_table.rebalance_timeout_ms - delay_ms, 0))
            self._join_deadline = self._now.monotonic_seconds + delay_ms / 1000
        elif self.member_table.has_everyone_joined:
            self._complete_join()
        else:
            self._join_deadline = self._now.monotonic_seconds + self.member_table.rebalance_timeout_ms / 1000

    def _complete_join_unless_initial(self) -> None:
        if self._initial_delay is None:
            self._complete_join_if_everyone_has_joined()

    def _complete_join_if_everyone_has_joined(self) -> None:
        if self.state is PREPARING_REBALANCE and self.member_table.has_everyone_joined:
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation with the members that have joined, and with static ones."""
        self._join_deadline = math.inf
        self._initial_delay = None
        missing = [each for each in self.members.values() if each.awaiting_join is None and each.instance_id is None]
        for member in missing:
            self._remove(member, GroupEventKind.MEMBER_TIMED_OUT, "the rebalance timeout passed")
        if not self.members:
            self._become_empty()
        elif self.member_table.elect_joined_leader():
            self._begin_generation()
        else:
            # Only static members are left, and none has joined: wait on, until one does or their sessions end.
            wait_ms = max(self.member_table.rebalance_timeout_ms, MIN_REBALANCE_RETRY_MS)
            self._join_deadline = self._now.monotonic_seconds + wait_ms / 1000

    def _become_empty(self) -> None:
        """Decide that no member is left."""
        self._next_generation()
        self.protocol_name = None
        record = self._record_of((), None, self._now.wall_ms)
        self._record_event(GroupEventKind.REBALANCE_COMPLETED, reason="no member is left")
        self._result.records.append(record)
        # Not with the result itself, which would be a cycle that only the collector frees.
        self._result.refused = partial(self._emptiness_refused, record, self._result.completions, self._result.events)

    def _emptiness_refused(
        self, record: GroupRecord, completions: list[Completion], events: list[GroupEvent], code: ErrorCode
    ) -> GroupResult:
        """The group is empty all the same, as in Kafka: nobody is left whom a lost record could harm. After a restart
        the members of the last generation would be back, until their sessions end.
        """
        self.apply(record)
        return GroupResult(completions=refused_completions(completions, code), events=events)

    def _begin_generation(self) -> None:
        self._next_generation()
        self.protocol_name = choose_protocol(member.protocols for member in self.members.values())
        self._keep_subscriptions()
        self._move_to(COMPLETING_REBALANCE)
        for member in self.members.values():
            if (future := self.member_table.pop_awaiting_join(member)) is not None:
                self._result.complete(future, self._joined(member.member_id))
            self._extend_session(member)
            member.is_new = False
        self.member_table.pending_syncs.update(self.members)
        self._sync_deadline = self._now.monotonic_seconds + self.member_table.rebalance_timeout_ms / 1000

    def _next_generation(self) -> None:
        self.generation_id = 0 if self.generation_id >= MAX_GENERATION else self.generation_id + 1

    def _joined(self, member_id: str) -> JoinGroupResponse:
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

    # --- Completing a rebalance ---

    def _assign(self, by_leader: dict[str, bytes]) -> None:
        """Decide what the leader has assigned: members that it left out get nothing, ids of others are ignored."""
        assignments = {member_id: by_leader.get(member_id, NO_ASSIGNMENT) for member_id in self.members}
        for member, future in self._pop_awaiting_syncs():
            self._result.complete(future, self._synced(assignments[member.member_id]))
        self._record_event(GroupEventKind.REBALANCE_COMPLETED)
        record = self._record_of(self.members.values(), self.leader_id, self._now.wall_ms, assignments)
        self._result.records.append(record)
        self._result.refused = partial(self._assignment_refused, self._result.completions)

    def _assignment_refused(self, completions: Iterable[Completion], code: ErrorCode) -> GroupResult:
        """No member gets the assignment, since a restart would bring back another one, and the group rebalances."""
        self._result.completions = refused_completions(completions, code)
        self._record_event(GroupEventKind.ASSIGNMENT_LOST, reason=code.name)
        self._prepare_rebalance("the assignment could not be written down")
        return self._take_result()

    def _pop_awaiting_syncs(self) -> Iterator[tuple[ClassicMember, ResponseFuture]]:
        for member in self.members.values():
            if (future := member.awaiting_sync) is not None:
                member.awaiting_sync = None
                # Its session deadline may have passed without effect while the request waited.
                self._extend_session(member)
                yield member, future

    def _synced(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=assignment
        )

    # --- Time ---

    def next_deadline(self) -> float | None:
        """When ``tick`` may have something to do, in seconds; None without members and pending members."""
        deadline = min(self._join_deadline, self._sync_deadline, self._next_session_deadline)
        return None if deadline == math.inf else deadline

    def tick(self, now: Now, image: MetadataImage) -> GroupResult:
        """Do what is due, in the order of the deadlines, or a part of it, and more when called again."""
        self._now = now
        for _, act in sorted(self._due(now.monotonic_seconds), key=lambda due: due[0])[:MAX_DUE_AT_ONCE]:
            act()
            if self._result.records:
                break  # What else is due is so in the state that the record makes.
        if self._next_session_deadline <= now.monotonic_seconds:
            self._next_session_deadline = self._earliest_session_deadline()
        return self._take_result()

    def _due(self, seconds: float) -> Iterable[tuple[float, Callable[[], None]]]:
        """The deadlines that have passed, each with what is to be done unless an earlier one takes the reason away."""
        if self._join_deadline <= seconds:
            yield self._join_deadline, self._join_deadline_passed
        if self._sync_deadline <= seconds:
            yield self._sync_deadline, self._sync_deadline_passed
        if self._next_session_deadline <= seconds:
            for member in self.members.values():
                if member.has_session_timeout and member.session_deadline <= seconds:
                    yield member.session_deadline, partial(self._session_ended, member.member_id)
            for member_id, deadline in self.member_table.pending_joins.items():
                if deadline <= seconds:
                    yield deadline, partial(self._pending_join_ended, member_id)

    def _join_deadline_passed(self) -> None:
        if self._join_deadline > self._now.monotonic_seconds:
            return
        delay = self._initial_delay
        most_ms = self.settings.initial_rebalance_delay_ms
        if delay is not None and delay.has_grown and (next_delay_ms := min(most_ms, delay.remaining_ms)):
            # Kafka, too, takes off the delay that has passed, not the one that begins (KIP-134).
            self._initial_delay = InitialDelay(next_delay_ms, max(delay.remaining_ms - delay.delay_ms, 0))
            self._join_deadline = self._now.monotonic_seconds + next_delay_ms / 1000
        else:
            self._complete_join()

    def _sync_deadline_passed(self) -> None:
        if self._sync_deadline > self._now.monotonic_seconds:
            return
        self._sync_deadline = math.inf
        silent = [self.members[member_id] for member_id in self.members if member_id in self.member_table.pending_syncs]
        if not silent:
            return
        reason = "did not ask for its assignment within the rebalance timeout"
        for member in silent:
            self._remove(member, GroupEventKind.MEMBER_TIMED_OUT, reason)
        self._prepare_rebalance(f"{silent[0].member_id}: {reason}")

    def _session_ended(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None or not member.has_session_timeout or member.session_deadline > self._now.monotonic_seconds:
            return
        reason = "the join timeout of a new member passed" if member.is_new else "the session timeout passed"
        self._remove(member, GroupEventKind.MEMBER_TIMED_OUT, reason)
        if self.state in (STABLE, COMPLETING_REBALANCE):
            self._prepare_rebalance(f"{member_id}: {reason}")
        else:
            self._complete_join_if_everyone_has_joined()

    def _pending_join_ended(self, member_id: str) -> None:
        if self.member_table.pending_joins.get(member_id, math.inf) <= self._now.monotonic_seconds:
            self.member_table.remove(member_id)
            self._complete_join_if_everyone_has_joined()

    def _earliest_session_deadline(self) -> float:
        sessions = (member.session_deadline for member in self.members.values() if member.has_session_timeout)
        return min(min(sessions, default=math.inf), min(self.member_table.pending_joins.values(), default=math.inf))

    def _extend_session(self, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Begin a session of ``timeout_ms``, by default the member's own timeout."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline = deadline = self._now.monotonic_seconds + timeout_ms / 1000
        if deadline < self._next_session_deadline:
            self._next_session_deadline = deadline

    # --- Members and state ---

    @property
    def leader_id(self) -> str | None:
        return self.member_table.leader_id

    def _remove(self, member: ClassicMember, kind: GroupEventKind, reason: str | None) -> None:
        """Remove ``member``. Its waiting requests get UNKNOWN_MEMBER_ID, upon which a living client joins anew."""
        self._fail_join(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._fail_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.member_table.remove(member.member_id)
        self._record_event(kind, member, reason)

    def _await_join(self, member: ClassicMember, join: _Join) -> None:
        # The request may have been sent before, on a connection that is gone.
        self._fail_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.member_table.await_join(member, join.future)

    def _fail_join(self, member: ClassicMember, code: ErrorCode, member_id: str = NO_MEMBER_ID) -> None:
        """Complete the member's JoinGroup with an error, if one waits."""
        if (future := self.member_table.pop_awaiting_join(member)) is not None:
            self._result.complete(future, join_error(code, member_id))

    def _fail_sync(self, member: ClassicMember, code: ErrorCode) -> None:
        """Complete the member's SyncGroup with an error, if one waits."""
        if (future := member.awaiting_sync) is not None:
            member.awaiting_sync = None
            self._result.complete(future, sync_error(code))

    def _move_to(self, state: ClassicGroupState) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = self._now.wall_ms

    def _keep_subscriptions(self) -> None:
        """Keep the subscriptions of this generation's members: they may join the next one with others."""
        self._subscriptions = self._subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and not (self.members and self.protocol_name is None):
            self._subscriptions = [member.metadata(self.protocol_name) for member in self.members.values()]

    def _record_event(self, kind: GroupEventKind, member: ClassicMember | None = None, reason: str | None = "") -> None:
        self._result.events.append(group_event(kind, self._now, self.generation_id, member, reason))

    # --- Records ---

    def metadata_record(self) -> GroupRecord:
        """The group as it is now, for the log."""
        return self._record_of(self.members.values(), self.leader_id, self.state_since_ms)

    def _record_of(
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
        self._keep_subscriptions()
        self.state = STABLE if self.members else EMPTY

    def _apply_members(self, value: GroupMetadataValue) -> None:
        table, stored_ids = self.member_table, {stored.member_id for stored in value.members}
        if len(stored_ids) < len(value.members):
            raise ContradictoryRecords(f"group {self.group_id}: two members have the same member id")
        for stored in value.members:
            if (member := self.members.get(stored.member_id)) is not None:
                member.assignment = bytes(stored.assignment)
                continue
            member, self._replacement = self._replacement, None
            if member is None or member.member_id != stored.member_id:
                member = ClassicMember.restored(stored, value.protocol or "")
            holder = None if member.instance_id is None else table.static_member_id(member.instance_id)
            if holder is None:
                table.add(member)
            elif holder in stored_ids:
                raise ContradictoryRecords(f"group {self.group_id}: {member.instance_id} is of two members")
            else:
                table.replace(self.members[holder], member)
            self._extend_session(member)
        for member_id in [each for each in self.members if each not in stored_ids]:
            table.remove(member_id)

    def loaded(self, now: Now) -> None:
        """All records are read: every member has a whole session for its next request."""
        self._now, self._next_session_deadline = now, math.inf
        for member in self.members.values():
            self._extend_session(member)
        if len(self.members) > self.settings.group_max_size:
            # The limit was lowered: the members that join again first may stay.
            self.start_rebalance(f"the group is larger than {self.settings.group_max_size}", now)

    def metadata_changed(self) -> None:
        """The members themselves look at topics."""

    def tombstones(self) -> list[GroupRecord]:
        """The records that remove the group from the log; its offsets have records of their own."""
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)]

    def abandon(self, code: ErrorCode) -> Sequence[Completion]:
        """Complete all requests that wait with ``code``. The group is dead: another coordinator or object has it."""
        for member in self.members.values():
            self._fail_join(member, code, member.member_id)
            self._fail_sync(member, code)
        for member_id in list(self.members):
            self.member_table.remove(member_id)
        self.member_table.pending_joins.clear()
        self._move_to(DEAD)
        self._initial_delay = None
        self._join_deadline = self._sync_deadline = self._next_session_deadline = math.inf
        return self._take_result().completions

    # --- Committed offsets ---

    def validate_offset_commit(self, request: OffsetCommitRequest, version: int, now: Now) -> ErrorCode:
        """Whether the offsets may be committed: by a member of this generation or, in an empty group, by a request that
        names no generation (a simple consumer or an administrator). A commit of a member extends its session.
        """
        self._now = now
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
        self._extend_session(self.members[member_id])
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

    @property
    def is_deserted(self) -> bool:
        """Whether the group has neither members nor pending ones."""
        return self.state is EMPTY and not self.member_table.pending_joins

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
