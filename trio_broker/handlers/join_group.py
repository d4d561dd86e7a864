"""JoinGroup: a member enters a classic group, or stays in it through a rebalance.

The answer is delayed until all members have joined or the rebalance timeout ends, which may be minutes; the handler
slot is given back for that time. A first join without a member id is answered with one (KIP-394).

Source: Kafka's KafkaApis.handleJoinGroupRequest and JoinGroupResponse.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_GROUP, InHandler

NULL_PROTOCOL_SINCE_VERSION = 7
"""KIP-559: since this version the protocol is null beside an error; before, it is the empty string."""

NO_PROTOCOL = ""
NO_LEADER = ""


def error_response(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error.code, protocol_name=NO_PROTOCOL, leader=NO_LEADER, member_id=NO_MEMBER_ID, members=[]
    )


@handles(
    JoinGroupRequest,
    error_response=error_response,
    requires=[InHandler([READ_GROUP], "the request: GROUP_AUTHORIZATION_FAILED")],
)
def join_group(request: JoinGroupRequest, context: Context) -> Steps[JoinGroupResponse]:
    """Join a group, and answer when its rebalance has a generation."""
    # Caught here and not in ``dispatch``: the null protocol of version 7 belongs beside these errors as well.
    try:
        context.require(READ_GROUP, request.group_id)
        response = yield from context.call_group(request.group_id, request)
    except KafkaError as error:
        response = error_response(request, error)
    if response.error_code:
        response.protocol_name = None if context.version >= NULL_PROTOCOL_SINCE_VERSION else NO_PROTOCOL
    return response
