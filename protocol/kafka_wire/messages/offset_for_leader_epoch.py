"""OffsetForLeaderEpoch (api key 23): where a leader epoch ended, to find out what was truncated (KIP-101, KIP-320).

Version notes:

* 2: the oldest one served; has the current leader epoch for fencing.
* 3: the replica id.
* 4: flexible versions.

Source: Kafka's OffsetForLeaderEpochRequest.json and OffsetForLeaderEpochResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """The epochs to look up.

    ``replica_id`` is -1 for consumers, -2 (also read from versions without the field) for a tool that may see past the
    high watermark.
    """

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


@struct
class OffsetForLeaderTopic:
    topic: String
    partitions: list[OffsetForLeaderPartition]


@struct
class OffsetForLeaderPartition:
    """One lookup; ``current_leader_epoch`` -1 means "do not check"."""

    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """Where the epochs end."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetForLeaderTopicResult]


@struct
class OffsetForLeaderTopicResult:
    topic: String
    partitions: list[EpochEndOffset]


@struct
class EpochEndOffset:
    """The largest epoch up to the one asked for, and the offset after its last record; -1 and -1 for none."""

    error_code: Int16 = field(default=0)
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)
