"""Produce (api key 0): append record batches to partitions.

A client has several of these under way on one connection and relies on their answers coming in request order. With
``acks`` 0 there is no answer at all, not even for an error.

Version notes:

* 3: the oldest one served; record batches (magic 2) and transactional ids (KIP-98). ApiVersions nevertheless offers
  0, because older librdkafka takes a higher minimum for a broker without compression (KAFKA-18659).
* 4: KAFKA_STORAGE_ERROR may be answered.
* 5: the response carries ``log_start_offset``.
* 7: batches may be compressed with zstd (KIP-110).
* 8: the response says which records of a batch were refused (KIP-467).
* 9: flexible versions (KIP-482).
* 10: the response names the new leader beside NOT_LEADER_OR_FOLLOWER (KIP-951).
* 11: TRANSACTION_ABORTABLE may be answered (KIP-890).
* 12: inside a transaction, the request itself adds its partitions to it (KIP-890).
* 13: topics go by id alone (KIP-516); UNKNOWN_TOPIC_ID may be answered.

Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.primitives import NO_UUID, Int16, Int32, Int64, Records, String, Uuid
from kafka_wire.schema import Request, field, message, struct

ACKS_NONE: Final = 0
"""The value of ``acks`` with which the broker sends no answer, so a lost record is not noticed."""

ACKS_LEADER: Final = 1

ACKS_ALL: Final = -1
"""The value of ``acks`` with which the broker answers when every in-sync replica has the records."""

ADDS_PARTITIONS_SINCE_VERSION: Final = 12
"""From it on the request itself adds its partitions to the transaction (KIP-890)."""

BY_ID_SINCE_VERSION: Final = 13
"""From it on topics have their id in place of their name."""


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    """Record batches to append, by topic and partition.

    ``acks`` counts the replicas that must hold the batches before the answer: 0 (no answer at all), 1 (the leader), -1
    (every in-sync replica). ``timeout_ms`` is how long to wait for them. ``transactional_id`` is None outside
    transactions.
    """

    transactional_id: String | None = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class TopicProduceData:
    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@struct
class PartitionProduceData:
    """The batches for one partition.

    ``records`` is a view into the request's frame; exactly one batch is allowed, which the log checks, not the codec.
    """

    index: Int32
    records: Records | None


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """Where each batch went, or why it was refused.

    ``node_endpoints`` gives the addresses of the leaders that ``current_leader`` names.
    """

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: list[NodeEndpoint] = field("10+", factory=list, tag=0)


@struct
class TopicProduceResponse:
    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@struct
class LeaderIdAndEpoch:
    """The leader the client should go to instead; -1 in both fields says nothing."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class PartitionProduceResponse:
    """The fate of one partition's batch.

    ``base_offset`` is the offset of its first record, -1 with an error. ``log_append_time_ms`` is -1 when the topic
    keeps the producer's timestamps. ``record_errors`` and ``error_message`` explain INVALID_RECORD and its kin.
    """

    index: Int32
    error_code: Int16 = field(default=0)
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", factory=list, ignorable=True)
    error_message: String | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", factory=LeaderIdAndEpoch, tag=0)


@struct
class BatchIndexAndErrorMessage:
    """A record that made the broker refuse its batch; ``batch_index`` counts from the batch's first record."""

    batch_index: Int32
    batch_index_error_message: String | None = field(default=None)


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
