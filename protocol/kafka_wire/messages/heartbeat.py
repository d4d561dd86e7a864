"""Heartbeat (api key 12): a member of a classic group is alive, and learns of a rebalance.

Version notes:

* 1: throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: static members (KIP-345).
* 4: flexible versions.

Source: Kafka's HeartbeatRequest.json and HeartbeatResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """A sign of life from one member in one generation."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS tells the member to join again."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
