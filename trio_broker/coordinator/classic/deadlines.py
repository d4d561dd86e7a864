"""What the passing of time does to a classic group: rebalances go on, and members that are silent are removed.

Source: the timers of Kafka's GroupMetadataManager: classicGroupJoinKey, classicGroupSyncKey,
classicGroupHeartbeatKey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from trio_broker.coordinator.classic.group_metadata import COMPLETING_REBALANCE, STABLE, GroupMetadata
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.classic.rebalance import (
    complete_join,
    complete_join_if_everyone_has_joined,
    extend_initial_delay,
    prepare_rebalance,
)
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.result import Now

MAX_DUE_AT_ONCE: Final = 500
"""Members whose sessions have ended that one ``tick`` removes; the next one removes others. Without a limit a thousand
that fall silent at once would delay other groups."""


def tick(group: GroupMetadata, now: Now) -> GroupResult:
    """Do what is due, in the order of the deadlines, or a part of it, and more when called again."""
    update = ClassicGroupUpdate(group, now)
    for _, act in sorted(_due(update, now.monotonic_seconds), key=lambda due: due[0])[:MAX_DUE_AT_ONCE]:
        act()
        if update.result.records:
            break  # What else is due is so in the state that the record makes.
    if group.next_session_deadline <= now.monotonic_seconds:
        group.next_session_deadline = group.earliest_session_deadline()
    return update.result


def _due(update: ClassicGroupUpdate, seconds: float) -> Iterable[tuple[float, Callable[[], None]]]:
    """The deadlines that have passed, each with what is to be done unless an earlier one takes the reason away."""
    group = update.group
    if group.join_deadline <= seconds:
        yield group.join_deadline, partial(_join_deadline_passed, update)
    if group.sync_deadline <= seconds:
        yield group.sync_deadline, partial(_sync_deadline_passed, update)
    if group.next_session_deadline <= seconds:
        for member in group.members.values():
            if member.has_session_timeout and member.session_deadline <= seconds:
                yield member.session_deadline, partial(_session_ended, update, member.member_id)
        for member_id, deadline in group.member_table.pending_joins.items():
            if deadline <= seconds:
                yield deadline, partial(_pending_join_ended, update, member_id)


def _join_deadline_passed(update: ClassicGroupUpdate) -> None:
    group = update.group
    if group.join_deadline <= group.now.monotonic_seconds and not extend_initial_delay(group):
        complete_join(update)


def _sync_deadline_passed(update: ClassicGroupUpdate) -> None:
    group, pending = update.group, update.group.member_table.pending_syncs
    if group.sync_deadline > group.now.monotonic_seconds:
        return
    group.sync_deadline = math.inf
    silent = [member for member_id, member in group.members.items() if member_id in pending]
    if not silent:
        return
    reason = "did not ask for its assignment within the rebalance timeout"
    for member in silent:
        update.remove(member, GroupEventKind.MEMBER_TIMED_OUT, reason)
    prepare_rebalance(update, f"{silent[0].member_id}: {reason}")


def _session_ended(update: ClassicGroupUpdate, member_id: str) -> None:
    group, member = update.group, update.group.members.get(member_id)
    if member is None or not member.has_session_timeout or member.session_deadline > group.now.monotonic_seconds:
        return
    reason = "the join timeout of a new member passed" if member.is_new else "the session timeout passed"
    update.remove(member, GroupEventKind.MEMBER_TIMED_OUT, reason)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        prepare_rebalance(update, f"{member_id}: {reason}")
    else:
        complete_join_if_everyone_has_joined(update)


def _pending_join_ended(update: ClassicGroupUpdate, member_id: str) -> None:
    group = update.group
    if group.member_table.pending_joins.get(member_id, math.inf) <= group.now.monotonic_seconds:
        group.member_table.remove(member_id)
        complete_join_if_everyone_has_joined(update)
