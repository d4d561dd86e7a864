"""SyncGroup in a classic group: while a rebalance completes, members wait for the assignment of all by the leader.

Where this differs from Kafka: a SyncGroup in a stable group extends the session.

Source: Kafka's GroupMetadataManager (classicGroupSyncToClassicGroup).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trio_broker.coordinator.classic.group_metadata import DEAD, PREPARING_REBALANCE, STABLE, GroupMetadata
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.classic.member import NO_ASSIGNMENT
from trio_broker.coordinator.classic.rebalance import prepare_rebalance
from trio_broker.coordinator.classic.responses import refused_completions, sync_error
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent


def sync(group: GroupMetadata, event: CoordinatorEvent[SyncGroupRequest]) -> GroupResult:
    """Give a member its assignment, once the leader has brought it."""
    update, request = ClassicGroupUpdate(group, event.now), event.request
    if code := _sync_code(group, request):
        update.result.complete(event.future, sync_error(code))
        return update.result
    member = group.members[request.member_id]
    group.member_table.pending_syncs.discard(member.member_id)
    if not group.member_table.pending_syncs:
        group.sync_deadline = math.inf
    group.extend_session(member)
    if group.state is STABLE:
        update.result.complete(event.future, _synced(group, member.assignment))
        return update.result
    update.await_sync(member, event.future)
    if member.member_id == group.leader_id:
        assign(update, {each.member_id: each.assignment for each in request.assignments})
    return update.result


def _sync_code(group: GroupMetadata, request: SyncGroupRequest) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code := group.member_table.membership_error(request.member_id, request.group_instance_id):
        return code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE


def assign(update: ClassicGroupUpdate, by_leader: dict[str, bytes]) -> None:
    """Decide what the leader has assigned: members that it left out get nothing, ids of others are ignored."""
    group, result = update.group, update.result
    assignments = {member_id: by_leader.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
    for member, future in update.pop_awaiting_syncs():
        result.complete(future, _synced(group, assignments[member.member_id]))
    update.record_event(GroupEventKind.REBALANCE_COMPLETED)
    members = group.members.values()
    result.records.append(group.record_of(members, group.leader_id, group.now.wall_ms, assignments))
    result.refused = partial(_assignment_refused, group, result.completions)


def _assignment_refused(group: GroupMetadata, completions: Iterable[Completion], code: ErrorCode) -> GroupResult:
    """No member gets the assignment, since a restart would bring back another one, and the group rebalances."""
    update = ClassicGroupUpdate(group, group.now)
    update.result.completions = refused_completions(completions, code)
    update.record_event(GroupEventKind.ASSIGNMENT_LOST, reason=code.name)
    prepare_rebalance(update, "the assignment could not be written down")
    return update.result


def _synced(group: GroupMetadata, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
