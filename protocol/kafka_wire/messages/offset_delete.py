"""OffsetDelete (api key 47): forget a group's offsets for some partitions (KIP-496).

Version notes:

* 0: the only one, and never flexible.

Source: Kafka's OffsetDeleteRequest.json and OffsetDeleteResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """The partitions whose offsets to forget."""

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteRequestTopic:
    name: String
    partitions: list[OffsetDeleteRequestPartition]


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    """How each partition fared. The error code comes before the throttle time here, unlike anywhere else."""

    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetDeleteResponseTopic]


@struct
class OffsetDeleteResponseTopic:
    name: String
    partitions: list[OffsetDeleteResponsePartition]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16 = field(default=0)
