"""AlterPartitionReassignments (api key 45): move partitions to other brokers, or end a move under way (KIP-455).

Version notes:

* 0: flexible from the start.
* 1: a move that changes the number of replicas may be forbidden (KIP-860).

Source: Kafka's AlterPartitionReassignmentsRequest.json and AlterPartitionReassignmentsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """The partitions to move. ``timeout_ms`` is how long the answer may take, not the move."""

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Boolean = field("1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignableTopic:
    name: String
    partitions: list[ReassignablePartition]


@struct
class ReassignablePartition:
    """The brokers to hold the partition, preferred leader first; null ends the move that is under way."""

    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """How each partition fared, if the request as a whole was taken."""

    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Boolean = field("1+", default=True, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None
    responses: list[ReassignableTopicResponse]


@struct
class ReassignableTopicResponse:
    name: String
    partitions: list[ReassignablePartitionResponse]


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None
