"""ListOffsets (api key 2): find an offset by timestamp, or one end of a log.

Version notes:

* 1: the oldest one served; a single offset with its timestamp for each partition.
* 2: isolation levels: "latest" is the last stable offset for a reader of committed records.
* 3: a throttled broker answers first and then pauses (KIP-219).
* 4: leader epochs both ways (KIP-320).
* 5: OFFSET_NOT_AVAILABLE may be answered (KIP-207).
* 6: flexible versions.
* 7: timestamp -3 asks for the offset of the largest timestamp (KIP-734).
* 8: timestamp -4 asks for the earliest offset on local disk (KIP-405).
* 9: timestamp -5 asks for the latest offset in tiered storage (KIP-1005).
* 10: ``timeout_ms`` for lookups in tiered storage (KIP-1075).
* 11: timestamp -6 asks for the earliest offset not yet copied to tiered storage (KIP-1023).

Source: Kafka's ListOffsetsRequest.json and ListOffsetsResponse.json.
"""

from __future__ import annotations

import enum

from kafka_wire.primitives import Int8, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


class SpecialTimestamp(enum.IntEnum):
    """What stands in the place of a timestamp for a lookup by something else; the file's header has the versions."""

    LATEST = -1
    """The end of the visible log: the high watermark, or for ``read_committed`` the last stable offset."""
    EARLIEST = -2
    """The log start offset."""
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """The partitions to look into and the timestamps to look for.

    ``replica_id`` is -1 for consumers, -2 for tools. ``isolation_level`` is as in Fetch. ``timeout_ms`` bounds
    the wait for tiered storage alone.
    """

    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


@struct
class ListOffsetsTopic:
    name: String
    partitions: list[ListOffsetsPartition]


@struct
class ListOffsetsPartition:
    """One lookup: the first record at or after ``timestamp`` (milliseconds), or one of the special values below zero.

    Those are of ``SpecialTimestamp``. ``current_leader_epoch`` -1 means "do not check".
    """

    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """The offsets found."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


@struct
class ListOffsetsTopicResponse:
    name: String
    partitions: list[ListOffsetsPartitionResponse]


@struct
class ListOffsetsPartitionResponse:
    """One answer. Finding nothing is no error: ``offset`` and ``timestamp`` are then -1."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field("4+", default=-1)
