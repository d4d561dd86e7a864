"""ConsumerGroupHeartbeat (api key 68): join, stay in, move through and leave a KIP-848 group, all in one request.

Version notes:

* 0: the member may leave its id empty when it joins, and the broker makes one.
* 1: regular expressions (KIP-848); the member makes its own id (KIP-1082).

Source: Kafka's ConsumerGroupHeartbeatRequest.json and ConsumerGroupHeartbeatResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """A sign of life from one member, with what has changed since the one before.

    ``member_epoch`` is the one the last answer gave, or 0 to join, -1 to leave, -2 for a static member that leaves for
    a while. A field at None, and a ``rebalance_timeout_ms`` of -1, say that nothing changed; when joining, all are
    given. ``topic_partitions`` are the partitions that the member has at this moment.
    """

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and, when it changed, its assignment. UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH tell the
    member to drop its partitions and join anew.

    ``assignment`` None means the one before; an empty one takes all partitions away.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: Assignment | None = field(default=None)


@struct
class Assignment:
    """The partitions that the member may use from now on; those it has and does not find here it must give up."""

    topic_partitions: list[TopicPartitions]


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]
