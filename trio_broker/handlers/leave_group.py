"""LeaveGroup: members leave a classic group at once instead of by a session timeout.

Up to version 2 a request is about one member, whose error is the response's; from 3 on it is about many, each with an
error of its own (KIP-345).

Source: Kafka's KafkaApis.handleLeaveGroupRequest, LeaveGroupRequest.normalizedData and LeaveGroupResponse.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.leave_group import MEMBERS_SINCE_VERSION, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from trio_broker.concurrency.steps import Steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_GROUP, for_group


def error_response(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


@handles(LeaveGroupRequest, error_response=error_response, requires=[for_group(READ_GROUP)])
def leave_group(request: LeaveGroupRequest, context: Context) -> Steps[LeaveGroupResponse]:
    """Remove each member from its group, or answer with its error."""
    names_members = context.version >= MEMBERS_SINCE_VERSION
    if not names_members:
        # The coordinator has one form of the request, as LeaveGroupRequest.normalizedData in Kafka.
        request.members = [MemberIdentity(member_id=request.member_id)]
    response = yield from context.call_group(request.group_id, request)
    return response if names_members else of_one_member(response)


def of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The response to a client that asked for one member and knows one error code."""
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return LeaveGroupResponse(error_code=next((code for code in codes if code), 0))
