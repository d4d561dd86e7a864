"""OffsetFetch (api key 9): read back what OffsetCommit remembered.

Version notes:

* 1: the oldest one served.
* 2: null topics ask for everything the group has; an error code for the group.
* 3: throttle time.
* 4: a throttled broker answers first and then pauses (KIP-219).
* 5: the leader epoch of the committed position (KIP-320).
* 6: flexible versions.
* 7: UNSTABLE_OFFSET_COMMIT on request while a transaction is pending (KIP-447).
* 8: many groups at once (KIP-709): ``groups`` both ways in place of the single fields.
* 9: may come from a KIP-848 member; STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID may be answered.
* 10: topics go by id (KIP-848); UNKNOWN_TOPIC_ID may be answered.

Source: Kafka's OffsetFetchRequest.json and OffsetFetchResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.primitives import NO_UUID, Boolean, Int16, Int32, Int64, String, Uuid
from kafka_wire.schema import Request, field, message, struct

GROUPS_SINCE_VERSION: Final = 8
"""From it on there are many groups (KIP-709)."""


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """``group_id`` and ``topics`` up to version 7, ``groups`` from 8 on.

    ``require_stable`` asks for an error rather than an offset that a pending transaction may still replace.
    """

    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", factory=list)
    require_stable: Boolean = field("7+", default=False)


@struct
class OffsetFetchRequestTopic:
    """Partitions of one topic, in versions 1 to 7."""

    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    """One group. Null ``topics`` ask for everything it has; ``member_id`` and ``member_epoch`` are None and -1 unless a
    KIP-848 member asks for itself.
    """

    group_id: String
    member_id: String | None = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@struct
class OffsetFetchRequestTopics:
    """Partitions of one topic, from version 8 on."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partition_indexes: list[Int32]


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The offsets, in ``topics`` and ``error_code`` up to version 7, in ``groups`` from 8 on."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", factory=list)
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", factory=list)


@struct
class OffsetFetchResponseTopic:
    name: String
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartition:
    """One position, in versions 1 to 7; ``committed_offset`` -1 without an error means that there is none."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None
    error_code: Int16 = field(default=0)


@struct
class OffsetFetchResponseGroup:
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


@struct
class OffsetFetchResponseTopics:
    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponsePartitions:
    """One position, from version 8 on; ``committed_offset`` -1 without an error means that there is none."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String | None
    error_code: Int16 = field(default=0)
