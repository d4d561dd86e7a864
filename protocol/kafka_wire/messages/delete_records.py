"""DeleteRecords (api key 21): move the log start offset of partitions forward (KIP-107).

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.

Source: Kafka's DeleteRecordsRequest.json and DeleteRecordsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """The offsets to delete up to.

    ``timeout_ms`` is how long the answer may wait for every replica to have moved.
    """

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsTopic:
    name: String
    partitions: list[DeleteRecordsPartition]


@struct
class DeleteRecordsPartition:
    """One partition: everything before ``offset`` goes; -1 stands for the high watermark."""

    partition_index: Int32
    offset: Int64


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """How each partition fared."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult]


@struct
class DeleteRecordsTopicResult:
    name: String
    partitions: list[DeleteRecordsPartitionResult]


@struct
class DeleteRecordsPartitionResult:
    """The log start offset as it is now, -1 with an error."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = field(default=0)
