"""LeaveGroup (api key 13): leave a classic group, or remove members from it.

Version notes:

* 1: throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: many members at once, static ones by their instance id (KIP-345).
* 4: flexible versions.
* 5: the reason for leaving (KIP-800).

Source: Kafka's LeaveGroupRequest.json and LeaveGroupResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct

MEMBERS_SINCE_VERSION: Final = 3
"""From it on there are many members, which may be named by their group instance ids (KIP-345)."""


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """``member_id`` up to version 2, ``members`` from 3 on."""

    group_id: String
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", factory=list)


@struct
class MemberIdentity:
    """One member; an empty ``member_id`` beside an instance id means the member that holds that instance id."""

    member_id: String
    group_instance_id: String | None = field(default=None)
    reason: String | None = field("5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """How the request fared, and from version 3 on each member."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: list[MemberResponse] = field("3+", factory=list)


@struct
class MemberResponse:
    member_id: String
    group_instance_id: String | None
    error_code: Int16 = field(default=0)
