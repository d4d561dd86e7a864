"""OffsetCommit (api key 8): remember how far a group has come.

Version notes:

* 2: the oldest one served; its retention time is read and has no effect.
* 3: throttle time.
* 4: a throttled broker answers first and then pauses (KIP-219).
* 5: no retention time any more; the broker's config decides (KIP-211).
* 6: the leader epoch of the committed position (KIP-320).
* 7: static members (KIP-345).
* 8: flexible versions.
* 9: may come from a KIP-848 member; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may be answered.
* 10: topics go by id (KIP-848); UNKNOWN_TOPIC_ID may be answered.

Source: Kafka's OffsetCommitRequest.json and OffsetCommitResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import NO_UUID, Int16, Int32, Int64, String, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """Positions to remember.

    ``generation_id_or_member_epoch`` is the generation of a classic member, the epoch of a KIP-848 member, and -1
    beside an empty ``member_id`` for a consumer that assigns its partitions itself.
    """

    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitRequestTopic:
    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@struct
class OffsetCommitRequestPartition:
    """The next offset to read in one partition; ``committed_leader_epoch`` is -1 when the consumer does not know it."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: String | None


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """How each partition fared."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetCommitResponseTopic:
    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16 = field(default=0)
