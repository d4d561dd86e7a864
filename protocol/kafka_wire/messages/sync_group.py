"""SyncGroup (api key 14): hand the leader's assignment to every member of a classic group.

The answers of the others are held until the leader has sent its own request.

Version notes:

* 1: throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: static members (KIP-345).
* 4: flexible versions.
* 5: protocol type and name both ways, and INCONSISTENT_GROUP_PROTOCOL when they differ from the group's (KIP-559).

Source: Kafka's SyncGroupRequest.json and SyncGroupResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """A member asking for its assignment; the leader brings everybody's, the others an empty list."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


@struct
class SyncGroupRequestAssignment:
    member_id: String
    assignment: Bytes


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's assignment, opaque to the broker."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignment: Bytes
