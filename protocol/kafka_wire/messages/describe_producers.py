"""DescribeProducers (api key 61): the producers that a partition remembers, and their open transactions (KIP-664).

One version, flexible from the start.

Source: Kafka's DescribeProducersRequest.json and DescribeProducersResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """The partitions whose producers are asked for; each is asked of its leader."""

    topics: list[TopicRequest]


@struct
class TopicRequest:
    name: String
    partition_indexes: list[Int32]


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers of each partition."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TopicResponse]


@struct
class TopicResponse:
    name: String
    partitions: list[PartitionResponse]


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    active_producers: list[ProducerState]


@struct
class ProducerState:
    """One producer. -1 for a sequence or a timestamp that is not known, and for no open transaction.

    ``coordinator_epoch`` is that of the transaction coordinator that wrote the producer's last marker.
    """

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)
