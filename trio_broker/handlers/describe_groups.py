"""DescribeGroups: the state and the members of classic groups.

A group that is not there, or that speaks the other protocol, is in state ``Dead`` up to version 5, without an error;
from 6 on it is GROUP_ID_NOT_FOUND (KIP-1043).

Source: Kafka's KafkaApis.handleDescribeGroupsRequest and GroupMetadataManager.describeGroups.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_groups import DEAD, DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.group_descriptions import described_groups
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_GROUP, ForEach, itself

ERROR_MESSAGE_SINCE_VERSION = 6


def error_response(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[refused_group(group_id, error) for group_id in request.groups])


def refused_group(group_id: str, error: KafkaError) -> DescribedGroup:
    """The description of a group that cannot be described, for any version."""
    return DescribedGroup(
        error_code=error.code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


@handles(
    DescribeGroupsRequest,
    error_response=error_response,
    requires=[ForEach([DESCRIBE_GROUP], "groups", "groups", itself)],
)
async def describe_groups(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    """Describe each group; an unknown one as ``refused_group``."""
    described = await described_groups(
        request.groups,
        lambda group_id: describe(group_id, context),
        context,
        include_authorized_operations=request.include_authorized_operations,
    )
    return DescribeGroupsResponse(groups=described)


async def describe(group_id: str, context: Context) -> DescribedGroup:
    """Describe one group in the form that this version has for unknown groups."""
    try:
        return context.services.groups.machine(group_id, allow_empty=True).describe(group_id)
    except KafkaError as error:
        group = refused_group(group_id, error)
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            group.group_state = DEAD
        if context.version >= ERROR_MESSAGE_SINCE_VERSION:
            group.error_message = str(error)
        elif error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            group.error_code = ErrorCode.NONE
        return group
