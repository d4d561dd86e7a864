"""LeaveGroup in a classic group: members go, at their own request or an administrator's.

Source: Kafka's GroupMetadataManager (classicGroupLeaveToClassicGroup); KIP-345 for administrators.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from trio_broker.coordinator.classic.group_metadata import DEAD, EMPTY, GroupMetadata
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.classic.rebalance import rebalance_or_complete_join
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID, leave_result
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.result import CoordinatorEvent


def leave(group: GroupMetadata, event: CoordinatorEvent[LeaveGroupRequest]) -> GroupResult:
    """Remove the members that the request names; the response has a code for each."""
    update, left = ClassicGroupUpdate(group, event.now), event.request.members
    if group.state is DEAD:
        update.result.complete(event.future, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return update.result
    codes = [_leave_one(update, member) for member in left]
    if ErrorCode.NONE in codes and group.state is not EMPTY:
        gone = left[codes.index(ErrorCode.NONE)]
        rebalance_or_complete_join(update, f"{gone.member_id or gone.group_instance_id} left")
    response = LeaveGroupResponse(members=[leave_result(*each) for each in zip(left, codes, strict=True)])
    update.result.complete(event.future, response)
    return update.result


def _leave_one(update: ClassicGroupUpdate, identity: MemberIdentity) -> ErrorCode:
    table, member_id = update.group.member_table, identity.member_id
    if member_id in table.pending_joins:
        table.remove(member_id)
        return ErrorCode.NONE
    if member_id == NO_MEMBER_ID and identity.group_instance_id is not None:
        # An administrator removes the member that has the instance id.
        member_id = table.static_member_id(identity.group_instance_id) or NO_MEMBER_ID
    code = table.membership_error(member_id, identity.group_instance_id)
    if not code:
        update.remove(table.members[member_id], GroupEventKind.MEMBER_LEFT, identity.reason)
    return code
