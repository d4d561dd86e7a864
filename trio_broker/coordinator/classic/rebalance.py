"""The rebalance of a classic group: from one generation to the next.

::

                 first member joins                       everyone has joined, or time is up
        EMPTY ────────────────────► PREPARING_REBALANCE ────────────────────► COMPLETING_REBALANCE
          ▲                              │        ▲                                │        │
          └────── nobody is left ────────┘        │    someone joins, leaves,      │        │ the leader
                                                  ├──── is silent for too long ────┘        │ has assigned
                                                  │                                         ▼
                                                  └───────────────────────────────────── STABLE

While it prepares, JoinGroup requests wait until every member has sent one, or the longest rebalance timeout has passed:
then members that have not come are out, except static ones, which have until their session ends. The first rebalance of
an empty group waits for a fixed delay instead, and for another one while members keep coming, so that the consumers of
an application that starts do not rebalance once for each of them. While it completes, SyncGroup requests wait for the
leader's, which brings the assignment of everyone.

Three kinds of deadline end a wait: the sessions of members and of those on the way in, the one for joining, and the one
for asking for the assignment. ``tick`` acts on those that have passed, in the order of time.

Where this differs from Kafka: a request that is sent again while the first one waits does not leave the first one
without an answer, nor does a member that leaves while its SyncGroup waits; a group that is full and turns away the last
one it has waited for goes on at once; a SyncGroup in a stable group extends the session; a group is not written down
before it has had a member; and after the greatest generation comes 0, where Kafka's int would turn negative, which
clients take for none.

Source: Kafka's GroupMetadataManager (classicGroup…) and ClassicGroup; KIP-134 for the delay, KIP-394, KIP-345, KIP-814.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.join_group import JoinGroupResponse
from kafka_wire.messages.sync_group import SyncGroupResponse
from kafka_wire.stored.groups import GroupMetadataKey, GroupMetadataValue, GroupRecord
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic import protocols as classic_protocols
from trio_broker.coordinator.classic import responses as classic_responses
from trio_broker.coordinator.classic.member import NO_ASSIGNMENT, ClassicMember, PendingResponse
from trio_broker.coordinator.classic.member_table import MemberTable
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEvent, GroupEventKind, Now

MAX_GENERATION: Final = 2**31 - 1

MIN_REBALANCE_RETRY_MS: Final = 1_000
"""A group whose static members are all missing is looked at again after its rebalance timeout, but no sooner than this:
a client may set that timeout to 0, and the broker would then do nothing else.
"""

MAX_DUE_AT_ONCE: Final = 500
"""Members whose sessions have ended that one ``tick`` puts out; the next one puts out others. A thousand that fall
silent at once would else keep other groups waiting.
"""

MAX_REASON_CHARS: Final = 255
"""Clients cut their reasons there (KIP-800); one that does not may not fill the timeline."""

UNKNOWN_TIMESTAMP: Final = -1


class ClassicGroupState(enum.Enum):
    """What the group does; the values are the words of DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = ClassicGroupState.EMPTY
PREPARING_REBALANCE = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
DEAD = ClassicGroupState.DEAD


@attrs.define
class InitialDelay:
    """The wait for more members of a group that was empty. Both times are in milliseconds."""

    delay_ms: int
    remaining_ms: int
    """How much longer the delay may still become: the rebalance timeout bounds it."""
    has_grown: bool = False
    """Whether someone has joined since the delay began."""


@attrs.frozen(order=False)
class _Due:
    """Something whose time has come, unless what comes before it takes the reason away."""

    deadline: float
    act: Callable[[Now, CoordinatorResult], None]


class ClassicRebalance:
    """The part of a classic group that moves it on; ``ClassicGroup`` adds the requests that set it off.

    ``state_since_ms`` is -1 if the group was restored from a record that did not say. Every ``now`` is at or after
    that of the event before.
    """

    def __init__(self, group_id: str, settings: GroupCoordinatorConfig, now: Now) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = EMPTY
        self.state_since_ms = now.wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.member_table = MemberTable()
        self.members = self.member_table.members
        self._subscriptions: list[bytes] | None = None
        """Those of the generation, if they can be known; read when somebody asks, which is seldom."""
        self._subscribed_topics: frozenset[str] | None = None
        """What was read of them."""
        self._initial_delay: InitialDelay | None = None
        self._join_deadline = math.inf
        self._sync_deadline = math.inf
        self._next_session_deadline = math.inf
        """At or before the earliest session deadline. Heartbeats only move those on, so it is made exact when it
        passes, not each time."""

    @property
    def leader_id(self) -> str | None:
        return self.member_table.leader_id

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """What the members of the generation subscribe to, or None if that is not known: before the first generation,
        for other protocol types than ``consumer``, and for bytes that are no subscription.
        """
        if self._subscriptions is not None:
            self._subscribed_topics = classic_protocols.topics_of_all(self._subscriptions)
            self._subscriptions = None
        return self._subscribed_topics

    def metadata_record(self) -> GroupRecord:
        """The group as it is now, for the log."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[member.stored(self.protocol_name) for member in self.members.values()],
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    # --- Time ---

    def next_deadline(self) -> float | None:
        """When ``tick`` may have something to do, in seconds; None while nobody is in the group or on the way in."""
        deadline = min(self._join_deadline, self._sync_deadline, self._next_session_deadline)
        return None if deadline == math.inf else deadline

    def tick(self, now: Now) -> CoordinatorResult:
        """Do what is due by ``now``, or a part of it, and more when called again."""
        result = CoordinatorResult()
        for due in self._due(now):
            due.act(now, result)
        if self._next_session_deadline <= now.monotonic_seconds:
            self._next_session_deadline = self._earliest_session_deadline()
        return result

    def _due(self, now: Now) -> list[_Due]:
        due = [_Due(self._join_deadline, self._join_time_is_up), _Due(self._sync_deadline, self._sync_time_is_up)]
        if self._next_session_deadline <= now.monotonic_seconds:
            due += [
                _Due(member.session_deadline, partial(self._session_ended, member.member_id))
                for member in self.members.values()
                if member.is_watched and member.session_deadline <= now.monotonic_seconds
            ]
            due += [_Due(at, partial(self._session_ended, id_)) for id_, at in self.member_table.pending_joins.items()]
        due = [one for one in due if one.deadline <= now.monotonic_seconds]
        return sorted(due, key=lambda one: one.deadline)[:MAX_DUE_AT_ONCE]

    def _earliest_session_deadline(self) -> float:
        watched = (member.session_deadline for member in self.members.values() if member.is_watched)
        return min(min(watched, default=math.inf), min(self.member_table.pending_joins.values(), default=math.inf))

    def _extend_session(self, member: ClassicMember, now: Now) -> None:
        self._set_session(member, member.session_timeout_ms, now)

    def _set_session(self, member: ClassicMember, timeout_ms: int, now: Now) -> None:
        member.session_deadline = now.monotonic_seconds + timeout_ms / 1000
        self._note_session_deadline(member.session_deadline)

    def _note_session_deadline(self, deadline: float) -> None:
        self._next_session_deadline = min(self._next_session_deadline, deadline)

    def _session_ended(self, member_id: str, now: Now, result: CoordinatorResult) -> None:
        if member_id in self.member_table.pending_joins:
            if self.member_table.pending_joins[member_id] <= now.monotonic_seconds:
                self.member_table.remove(member_id)
                self._complete_join_if_everyone_is_here(now, result)
            return
        member = self.members.get(member_id)
        if member is None or not member.is_watched or member.session_deadline > now.monotonic_seconds:
            return
        reason = "the join timeout of a new member passed" if member.is_new else "the session timeout passed"
        self._remove(member, GroupEventKind.MEMBER_TIMED_OUT, reason, now, result)
        if self.state in (STABLE, COMPLETING_REBALANCE):
            self._prepare_rebalance(f"{member_id}: {reason}", now, result)
        else:
            self._complete_join_if_everyone_is_here(now, result)

    # --- Preparing ---

    def start_rebalance(self, reason: str, now: Now) -> CoordinatorResult:
        """Have all members join again; the group is not dead."""
        result = CoordinatorResult()
        self._rebalance_or_complete_join(reason, now, result)
        return result

    def _rebalance_or_complete_join(self, reason: str, now: Now, result: CoordinatorResult) -> None:
        if self.state is PREPARING_REBALANCE:
            self._complete_join_unless_initial(now, result)
        else:
            self._prepare_rebalance(reason, now, result)

    def _prepare_rebalance(self, reason: str, now: Now, result: CoordinatorResult) -> None:
        assert self.state in (EMPTY, COMPLETING_REBALANCE, STABLE), self.state
        if self.state is COMPLETING_REBALANCE:
            # Those who wait for an assignment have to join again: it would be one of the old generation.
            self._take_assignments_back()
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now, result)
        self.member_table.pending_syncs.clear()
        self._sync_deadline = math.inf
        was_empty = self.state is EMPTY
        self._move_to(PREPARING_REBALANCE, now)
        self._record_event(result, GroupEventKind.REBALANCE_STARTED, now, reason=reason)
        if was_empty:
            delay_ms = self.settings.group_initial_rebalance_delay_ms
            self._initial_delay = InitialDelay(delay_ms, max(self.member_table.rebalance_timeout_ms - delay_ms, 0))
            self._join_deadline = now.monotonic_seconds + delay_ms / 1000
        elif self.member_table.has_everyone_joined:
            self._complete_join(now, result)
        else:
            self._join_deadline = now.monotonic_seconds + self.member_table.rebalance_timeout_ms / 1000

    def _complete_join_unless_initial(self, now: Now, result: CoordinatorResult) -> None:
        if self._initial_delay is None:
            self._complete_join_if_everyone_is_here(now, result)

    def _complete_join_if_everyone_is_here(self, now: Now, result: CoordinatorResult) -> None:
        if self.state is PREPARING_REBALANCE and self.member_table.has_everyone_joined:
            self._complete_join(now, result)

    def _join_time_is_up(self, now: Now, result: CoordinatorResult) -> None:
        if self._join_deadline > now.monotonic_seconds:
            return
        delay = self._initial_delay
        if delay is not None and (next_delay_ms := self._next_delay_ms(delay)):
            self._initial_delay = InitialDelay(next_delay_ms, max(delay.remaining_ms - delay.delay_ms, 0))
            self._join_deadline = now.monotonic_seconds + next_delay_ms / 1000
        else:
            self._complete_join(now, result)

    def _next_delay_ms(self, delay: InitialDelay) -> int:
        """How much longer to wait after ``delay``, or 0."""
        return min(self.settings.group_initial_rebalance_delay_ms, delay.remaining_ms) if delay.has_grown else 0

    def _complete_join(self, now: Now, result: CoordinatorResult) -> None:
        """Begin the next generation with those who have joined, and with static members."""
        self._join_deadline = math.inf
        self._initial_delay = None
        missing = [member for member in self.members.values() if member.awaiting_join is None and not member.is_static]
        for member in missing:
            self._remove(member, GroupEventKind.MEMBER_TIMED_OUT, "the rebalance timeout passed", now, result)
        if not self.members:
            self._become_empty(now, result)
        elif self.member_table.elect_joined_leader():
            self._begin_generation(now, result)
        else:
            # Only static members are left, and none is here: wait on, until one comes or their sessions end.
            wait_ms = max(self.member_table.rebalance_timeout_ms, MIN_REBALANCE_RETRY_MS)
            self._join_deadline = now.monotonic_seconds + wait_ms / 1000

    def _become_empty(self, now: Now, result: CoordinatorResult) -> None:
        self._next_generation()
        self.protocol_name = None
        self._note_subscriptions()
        self._move_to(EMPTY, now)
        result.records.append(self.metadata_record())
        self._record_event(result, GroupEventKind.REBALANCE_COMPLETED, now, reason="nobody is left")

    def _begin_generation(self, now: Now, result: CoordinatorResult) -> None:
        self._next_generation()
        self.protocol_name = classic_protocols.choose_protocol(member.protocols for member in self.members.values())
        self._note_subscriptions()
        self._move_to(COMPLETING_REBALANCE, now)
        for member in self.members.values():
            if pending := self.member_table.pop_awaiting_join(member):
                result.complete(pending.future, self._joined(member, pending.version))
            self._extend_session(member, now)
            member.is_new = False
        self.member_table.pending_syncs.update(self.members)
        self._sync_deadline = now.monotonic_seconds + self.member_table.rebalance_timeout_ms / 1000

    def _next_generation(self) -> None:
        self.generation_id = 0 if self.generation_id >= MAX_GENERATION else self.generation_id + 1

    def _joined(self, member: ClassicMember, version: int) -> JoinGroupResponse:
        """The generation as it is; the leader also learns who is in it."""
        leads = member.member_id == self.leader_id
        members = [each.for_leader(self.protocol_name) for each in self.members.values()] if leads else []
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=classic_responses.protocol_name_in(version, self.protocol_name),
            leader=self.leader_id or "",
            member_id=member.member_id,
            members=members,
        )

    # --- Completing ---

    def _assign(self, assignments: dict[str, bytes], now: Now, result: CoordinatorResult) -> None:
        """Take what the leader has decided: members that it forgot get nothing, strangers are passed over."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        result.records.append(self.metadata_record())
        self._answer_syncs(ErrorCode.NONE, now, result)
        self._move_to(STABLE, now)
        self._record_event(result, GroupEventKind.REBALANCE_COMPLETED, now)

    def _answer_syncs(self, code: ErrorCode, now: Now, result: CoordinatorResult) -> None:
        for member in self.members.values():
            if pending := member.awaiting_sync:
                member.awaiting_sync = None
                result.complete(
                    pending.future, self._synced(member) if not code else classic_responses.sync_error(code)
                )
                # Its session may have passed while it waited, unheeded.
                self._extend_session(member, now)

    def _synced(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _take_assignments_back(self) -> None:
        for member in self.members.values():
            member.assignment = NO_ASSIGNMENT

    def _has_synced(self, member: ClassicMember) -> None:
        self.member_table.pending_syncs.discard(member.member_id)
        if not self.member_table.pending_syncs:
            self._sync_deadline = math.inf

    def _sync_time_is_up(self, now: Now, result: CoordinatorResult) -> None:
        if self._sync_deadline > now.monotonic_seconds:
            return
        self._sync_deadline = math.inf
        silent = [self.members[member_id] for member_id in self.members if member_id in self.member_table.pending_syncs]
        if not silent:
            return
        reason = "did not ask for its assignment within the rebalance timeout"
        for member in silent:
            self._remove(member, GroupEventKind.MEMBER_TIMED_OUT, reason, now, result)
        self._prepare_rebalance(f"{silent[0].member_id}: {reason}", now, result)

    # --- Members ---

    def _remove(
        self, member: ClassicMember, kind: GroupEventKind, reason: str, now: Now, result: CoordinatorResult
    ) -> None:
        """Forget ``member``. Its waiting requests learn that it is one no more, so that it begins anew if it lives."""
        self._answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, result)
        self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID, result)
        self.member_table.remove(member.member_id)
        self._record_event(result, kind, now, member=member, reason=reason)

    def _answer_join(
        self,
        member: ClassicMember,
        code: ErrorCode,
        result: CoordinatorResult,
        member_id: str = classic_responses.NO_MEMBER_ID,
    ) -> None:
        """Answer the member's JoinGroup with an error, if one waits."""
        if pending := self.member_table.pop_awaiting_join(member):
            result.complete(pending.future, classic_responses.join_error(pending.version, code, member_id))

    def _answer_sync(self, member: ClassicMember, code: ErrorCode, result: CoordinatorResult) -> None:
        """Answer the member's SyncGroup with an error, if one waits."""
        if pending := member.awaiting_sync:
            member.awaiting_sync = None
            result.complete(pending.future, classic_responses.sync_error(code))

    def _await_join(self, member: ClassicMember, pending: PendingResponse, result: CoordinatorResult) -> None:
        # Sent again, perhaps on another connection: nobody may be there to read the answer to the first.
        self._answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS, result, member.member_id)
        self.member_table.await_join(member, pending)

    def _await_sync(self, member: ClassicMember, pending: PendingResponse, result: CoordinatorResult) -> None:
        self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, result)
        member.awaiting_sync = pending

    # --- The group as a whole ---

    def _move_to(self, state: ClassicGroupState, now: Now) -> None:
        self.state = state
        self.state_since_ms = now.wall_ms

    def _note_subscriptions(self) -> None:
        """Keep what the members of this generation subscribe to, whatever they come with for the next one."""
        self._subscriptions = self._subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and not (self.members and self.protocol_name is None):
            self._subscriptions = [member.metadata(self.protocol_name) for member in self.members.values()]

    def _record_event(
        self,
        result: CoordinatorResult,
        kind: GroupEventKind,
        now: Now,
        *,
        member: ClassicMember | None = None,
        reason: str | None = "",
    ) -> None:
        event = GroupEvent(
            kind=kind, at_ms=now.wall_ms, generation=self.generation_id, reason=(reason or "")[:MAX_REASON_CHARS]
        )
        if member is not None:
            event = attrs.evolve(
                event,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
            )
        result.events.append(event)
