"""SyncGroup: the leader of a classic group sends all assignments, and each member receives its own.

The answers of the other members are delayed until the leader's request.

Source: Kafka's KafkaApis.handleSyncGroupRequest.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trio_broker.concurrency.steps import Steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_GROUP, for_group

PROTOCOL_SINCE_VERSION = 5
"""Since this version a member states the protocol that it takes the group to use (KIP-559)."""


def error_response(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


@handles(SyncGroupRequest, error_response=error_response, requires=[for_group(READ_GROUP)])
def sync_group(request: SyncGroupRequest, context: Context) -> Steps[SyncGroupResponse]:
    """Answer with the member's assignment, once the leader has sent it."""
    # Before the group is looked for, as in Kafka (SyncGroupRequest.areMandatoryProtocolTypeAndNamePresent).
    if context.version >= PROTOCOL_SINCE_VERSION and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError("protocol type and name are mandatory", code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return context.call_group(request.group_id, request)
