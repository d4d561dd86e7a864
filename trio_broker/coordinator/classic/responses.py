"""What a JoinGroup must look like before any group sees it, and the error responses of the classic protocol.

Versions differ in the fields that a client reads. Handlers give each version its shape, so nothing here depends on the
version of the request.

Source: Kafka's GroupCoordinatorService.joinGroup, JoinGroupResponse, SyncGroupResponse and LeaveGroupResponse.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import MemberIdentity, MemberResponse
from kafka_wire.messages.sync_group import SyncGroupResponse
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.protocols import are_too_large
from trio_broker.coordinator.runtime.result import Completion

NO_GENERATION = -1
NO_MEMBER_ID = ""

FIRST_JOIN_WITH_KNOWN_MEMBER_ID = 4
"""From this version of JoinGroup on, a dynamic member without an id is given one and asked to come again (KIP-394)."""


def join_request_error(request: JoinGroupRequest, settings: GroupCoordinatorConfig) -> ErrorCode:
    """Why the request is refused whichever group it names, or NONE. Such a request creates no group."""
    if not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if are_too_large(request.protocols) else ErrorCode.NONE


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """How long the member may take to join again. Version 0 has the session timeout for both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def join_error(code: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, generation_id=NO_GENERATION, protocol_name=None, leader="", member_id=member_id, members=[]
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, protocol_type=None, protocol_name=None, assignment=b"")


def leave_result(member: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)


def refused_completions(completions: Iterable[Completion], code: ErrorCode) -> list[Completion]:
    """Error responses with ``code`` in the place of those that are none."""
    return [each if each.response.error_code else _refused(each, code) for each in completions]


def _refused(completion: Completion, code: ErrorCode) -> Completion:
    match completion.response:
        case JoinGroupResponse(member_id=member_id):
            return Completion(completion.future, join_error(code, member_id))
        case SyncGroupResponse():
            return Completion(completion.future, sync_error(code))
        case response:
            return Completion(completion.future, type(response)(error_code=code))
