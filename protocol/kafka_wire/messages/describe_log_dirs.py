"""DescribeLogDirs (api key 35): a broker's log directories, the sizes of the partitions in them, the room left.

Version notes:

* 1: the oldest one served; a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.
* 3: an error for the whole request.
* 4: the size of each directory's volume and what is usable of it (KIP-827).
* 5: whether a directory is cordoned, that is closed to new partitions (KIP-1066).

Source: Kafka's DescribeLogDirsRequest.json and DescribeLogDirsResponse.json; KIP-113.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct

UNKNOWN_BYTES = -1
"""The size of a volume that could not be measured."""


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """The partitions to describe; null means all. Every log directory is in the answer either way."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribableLogDirTopic:
    topic: String
    partitions: list[Int32]


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """The log directories, in any order."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


@struct
class DescribeLogDirsResult:
    """One log directory by its absolute path. With an error it has no topics.

    ``total_bytes`` and ``usable_bytes`` are those of the volume that the directory is on.
    """

    error_code: Int16 = field(default=0)
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field("4+", default=UNKNOWN_BYTES, ignorable=True)
    usable_bytes: Int64 = field("4+", default=UNKNOWN_BYTES, ignorable=True)
    is_cordoned: Boolean = field("5+", default=False, ignorable=True)


@struct
class DescribeLogDirsTopic:
    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsPartition:
    """One replica in the directory. ``partition_size`` counts the bytes of its segments' records, without indexes.

    ``offset_lag`` is how far its log end is behind the partition's high watermark. ``is_future_key`` marks the copy of
    a partition that moves here from another directory; its lag is that behind the log it will replace.
    """

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Boolean
