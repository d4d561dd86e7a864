"""From one generation of a classic group to the next: everyone joins again, then the new generation begins.

While it prepares, JoinGroup requests wait until every member has sent one, or the longest rebalance timeout has passed:
then members that have not joined are removed, except static ones, which have until their session ends. The first
rebalance of an empty group waits for a fixed delay instead, and for another one while members keep joining, so that the
consumers of an application that starts do not rebalance once for each of them.

Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin); KIP-62, KIP-134 for the delay.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.stored.groups import GroupRecord
from trio_broker.coordinator.classic.group_metadata import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    GroupMetadata,
    InitialDelay,
)
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.classic.member import NO_ASSIGNMENT
from trio_broker.coordinator.classic.protocols import choose_protocol
from trio_broker.coordinator.classic.responses import refused_completions, sync_error
from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.result import Completion

MIN_REBALANCE_RETRY_MS: Final = 1_000
"""A group whose static members are all missing is looked at again after its rebalance timeout, but no sooner than this:
a client may set that timeout to 0, and the broker would then do nothing else."""


def rebalance_or_complete_join(update: ClassicGroupUpdate, reason: str) -> None:
    """Have all members join again, or go on if that is under way and everyone has."""
    if update.group.state is PREPARING_REBALANCE:
        complete_join_unless_initial(update)
    else:
        prepare_rebalance(update, reason)


def prepare_rebalance(update: ClassicGroupUpdate, reason: str) -> None:
    group = update.group
    if group.state is COMPLETING_REBALANCE:
        # Members that wait for an assignment have to join again: it would be one of the old generation.
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
        for _, future in update.pop_awaiting_syncs():
            update.result.complete(future, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    group.member_table.pending_syncs.clear()
    group.sync_deadline = math.inf
    was_empty = group.state is EMPTY
    group.move_to(PREPARING_REBALANCE)
    update.record_event(GroupEventKind.REBALANCE_STARTED, reason=reason)
    if was_empty:
        delay_ms = group.settings.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.member_table.rebalance_timeout_ms - delay_ms, 0))
        group.join_deadline = group.now.monotonic_seconds + delay_ms / 1000
    elif group.member_table.has_everyone_joined:
        complete_join(update)
    else:
        group.join_deadline = group.now.monotonic_seconds + group.member_table.rebalance_timeout_ms / 1000


def extend_initial_delay(group: GroupMetadata) -> bool:
    """Whether the delay, which has passed, is followed by another one, since members have joined meanwhile."""
    delay, most_ms = group.initial_delay, group.settings.initial_rebalance_delay_ms
    if delay is None or not delay.has_grown or not (next_delay_ms := min(most_ms, delay.remaining_ms)):
        return False
    # Kafka, too, takes off the delay that has passed, not the one that begins (KIP-134).
    group.initial_delay = InitialDelay(next_delay_ms, max(delay.remaining_ms - delay.delay_ms, 0))
    group.join_deadline = group.now.monotonic_seconds + next_delay_ms / 1000
    return True


def complete_join_unless_initial(update: ClassicGroupUpdate) -> None:
    if update.group.initial_delay is None:
        complete_join_if_everyone_has_joined(update)


def complete_join_if_everyone_has_joined(update: ClassicGroupUpdate) -> None:
    if update.group.state is PREPARING_REBALANCE and update.group.member_table.has_everyone_joined:
        complete_join(update)


def complete_join(update: ClassicGroupUpdate) -> None:
    """Begin the next generation with the members that have joined, and with static ones."""
    group = update.group
    group.join_deadline = math.inf
    group.initial_delay = None
    missing = [each for each in group.members.values() if each.awaiting_join is None and each.instance_id is None]
    for member in missing:
        update.remove(member, GroupEventKind.MEMBER_TIMED_OUT, "the rebalance timeout passed")
    if not group.members:
        _become_empty(update)
    elif group.member_table.elect_joined_leader():
        _begin_generation(update)
    else:
        # Only static members are left, and none has joined: wait on, until one does or their sessions end.
        wait_ms = max(group.member_table.rebalance_timeout_ms, MIN_REBALANCE_RETRY_MS)
        group.join_deadline = group.now.monotonic_seconds + wait_ms / 1000


def _begin_generation(update: ClassicGroupUpdate) -> None:
    group = update.group
    group.next_generation()
    group.protocol_name = choose_protocol(member.protocols for member in group.members.values())
    group.keep_subscriptions()
    group.move_to(COMPLETING_REBALANCE)
    for member in group.members.values():
        if (future := group.member_table.pop_awaiting_join(member)) is not None:
            update.result.complete(future, group.joined(member.member_id))
        group.extend_session(member)
        member.is_new = False
    group.member_table.pending_syncs.update(group.members)
    group.sync_deadline = group.now.monotonic_seconds + group.member_table.rebalance_timeout_ms / 1000


def _become_empty(update: ClassicGroupUpdate) -> None:
    """Decide that no member is left."""
    group, result = update.group, update.result
    group.next_generation()
    group.protocol_name = None
    record = group.record_of((), None, group.now.wall_ms)
    update.record_event(GroupEventKind.REBALANCE_COMPLETED, reason="no member is left")
    result.records.append(record)
    # Not with the result itself, which would be a cycle that only the collector frees.
    result.refused = partial(_emptiness_refused, group, record, result.completions, result.events)


def _emptiness_refused(
    group: GroupMetadata,
    record: GroupRecord,
    completions: list[Completion],
    events: list[GroupEvent],
    code: ErrorCode,
) -> GroupResult:
    """The group is empty all the same, as in Kafka: nobody is left whom a lost record could harm. After a restart the
    members of the last generation would be back, until their sessions end.
    """
    group.apply(record)
    return GroupResult(completions=refused_completions(completions, code), events=events)
