"""DescribeGroups (api key 15): the state and the members of classic groups.

Version notes:

* 1: throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: authorized operations on request (KIP-430).
* 4: static members show their instance id (KIP-345).
* 5: flexible versions.
* 6: a missing group is GROUP_ID_NOT_FOUND with a message (KIP-1043); before, it was in state ``Dead``.

Source: Kafka's DescribeGroupsRequest.json and DescribeGroupsResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from kafka_wire.primitives import Boolean, Bytes, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct

DEAD: Final = "Dead"
"""The state before version 6 of a group that does not exist (KIP-1043)."""


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """The groups to describe."""

    groups: list[String]
    include_authorized_operations: Boolean = field("3+", default=False)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """One description for each group asked for."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]


@struct
class DescribedGroup:
    """One group. ``group_state`` is empty beside an error; ``protocol_data`` is the chosen assignment strategy, in a
    stable group only.

    ``authorized_operations`` is a bit field, or ``OPERATIONS_NOT_REQUESTED``.
    """

    error_code: Int16 = field(default=0)
    error_message: String | None = field("6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field("3+", default=OPERATIONS_NOT_REQUESTED)


@struct
class DescribedGroupMember:
    """One member; ``client_host`` starts with a slash, as Java writes addresses. Metadata and assignment are the
    member's own bytes, given in a stable group only.
    """

    member_id: String
    group_instance_id: String | None = field("4+", default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes
