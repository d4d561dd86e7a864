"""JoinGroup (api key 11): enter a classic group, or stay in it through a rebalance.

The answer is held until every member has joined or run out of time. The member named leader then computes the
assignment, which SyncGroup hands out.

Version notes:

* 0, 1: left out of Kafka 4.0.0 and put back after it, as librdkafka looks for version 0 (KAFKA-19444).
* 1: the rebalance timeout apart from the session timeout.
* 2: throttle time.
* 3: a throttled broker answers first and then pauses (KIP-219).
* 4: a member without an id is given one with MEMBER_ID_REQUIRED and asks again (KIP-394).
* 5: static members (KIP-345).
* 6: flexible versions.
* 7: the answer has the protocol type; the protocol name may be null (KIP-559).
* 8: the member's reason for joining (KIP-800).
* 9: a static leader that returns may be asked to skip the assignment (KIP-814).

Source: Kafka's JoinGroupRequest.json and JoinGroupResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Bytes, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """A member and what it can do.

    A ``rebalance_timeout_ms`` of -1, which is also what version 0 reads as, stands for ``session_timeout_ms``.
    ``member_id`` is empty at first. ``protocols`` are in the member's order of preference.
    """

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field("8+", default=None, ignorable=True)


@struct
class JoinGroupRequestProtocol:
    """An assignment strategy, and bytes that mean something to its members alone."""

    name: String
    metadata: Bytes


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation the member is in, and who leads it.

    Only the leader is given ``members``. With an error, ``protocol_name`` is null from version 7 on and empty before.
    """

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None, ignorable=True)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Boolean = field("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]


@struct
class JoinGroupResponseMember:
    member_id: String
    group_instance_id: String | None = field("5+", default=None, ignorable=True)
    metadata: Bytes
