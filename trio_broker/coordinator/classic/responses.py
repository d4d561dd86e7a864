"""The answers to requests of the classic protocol, in the shape that each version has.

Source: Kafka's JoinGroupResponse, SyncGroupResponse and LeaveGroupResponse.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kafka_wire.messages.sync_group import SyncGroupResponse
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig

NO_GENERATION = -1
NO_MEMBER_ID = ""

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_WITH_KNOWN_MEMBER_ID = 4
"""From this version of JoinGroup on, a dynamic member without an id is given one and asked to come again (KIP-394)."""
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_JOIN_WITH_SKIP_ASSIGNMENT = 9
"""From this version of JoinGroup on, a static leader that returns learns that it need not assign (KIP-814)."""
FIRST_LEAVE_OF_MANY = 3


def join_error(version: int, code: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    """JoinGroup with an error, for a group or in the place of one that does not exist."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=protocol_name_in(version, None),
        leader=NO_MEMBER_ID,
        member_id=member_id,
        members=[],
    )


def protocol_name_in(version: int, name: str | None) -> str | None:
    """The name as that version of JoinGroup's answer can say it."""
    return "" if name is None and version < FIRST_JOIN_WITH_NULL_PROTOCOL else name


def session_timeout_error(request: JoinGroupRequest, settings: GroupCoordinatorConfig) -> ErrorCode:
    """INVALID_SESSION_TIMEOUT if it is out of the broker's range, else NONE."""
    if settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
        return ErrorCode.NONE
    return ErrorCode.INVALID_SESSION_TIMEOUT


def rebalance_timeout_ms(request: JoinGroupRequest, version: int) -> int:
    """How long the member may take to join again; version 0 had the session timeout for both."""
    if version < FIRST_JOIN_WITH_REBALANCE_TIMEOUT or request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """SyncGroup with an error, for a group or in the place of one that does not exist."""
    return SyncGroupResponse(error_code=code, protocol_type=None, protocol_name=None, assignment=b"")


def leaving_members(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """Whom the request names: many from version 3 on, before that one by its member id."""
    return list(request.members) if version >= FIRST_LEAVE_OF_MANY else [MemberIdentity(member_id=request.member_id)]


def leave_answer(version: int, members: Iterable[MemberResponse]) -> LeaveGroupResponse:
    """LeaveGroup with how each member fared; before version 3 the one member's error is that of the request."""
    members = list(members)
    if version >= FIRST_LEAVE_OF_MANY:
        return LeaveGroupResponse(members=members)
    return LeaveGroupResponse(error_code=next((member.error_code for member in members if member.error_code), 0))


def leave_error(request: LeaveGroupRequest, version: int, code: ErrorCode) -> LeaveGroupResponse:
    """LeaveGroup with the same error for every member, as Kafka answers for a group that does not exist."""
    return leave_answer(version, [left(member, code) for member in leaving_members(request, version)])


def left(member: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
