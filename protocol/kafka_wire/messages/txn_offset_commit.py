"""TxnOffsetCommit (api key 28): commit a group's offsets as part of a transaction.

They count when the transaction is committed, and never if it is aborted.

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: the leader epoch of the committed position (KIP-320).
* 3: flexible versions; the member that commits, so that one whose partitions another has is fenced (KIP-447).
* 4: TRANSACTION_ABORTABLE may be answered (KIP-890).
* 5: adds the group to the transaction by itself, in the second transaction protocol (KIP-890).
* 6: topics have ids instead of names; GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH and UNKNOWN_TOPIC_ID may be answered
  (KIP-1319).

Source: Kafka's TxnOffsetCommitRequest.json and TxnOffsetCommitResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import NO_UUID, Int16, Int32, Int64, String, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    """Positions to remember. Where no member commits, its generation or epoch is -1 and its id empty."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitRequestTopic:
    name: String = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=NO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


@struct
class TxnOffsetCommitRequestPartition:
    """The next offset to read in one partition; ``committed_leader_epoch`` is -1 when the consumer does not know it."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    """How each partition fared."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponseTopic]


@struct
class TxnOffsetCommitResponseTopic:
    name: String = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=NO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16 = field(default=0)
