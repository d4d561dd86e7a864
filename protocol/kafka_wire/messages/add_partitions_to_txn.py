"""AddPartitionsToTxn (api key 24): name partitions before a transaction writes to them.

A producer of the first transaction protocol sends it; with ``transaction.version`` 2 the first Produce to a partition
does the same (KIP-890).

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: PRODUCER_FENCED may be answered (KIP-588).
* 3: flexible versions.
* 4: many transactions in one request, and ``verify_only``, which asks whether the partitions are in the transaction
  (KIP-890). Meant for brokers; some clients send it all the same.
* 5: TRANSACTION_ABORTABLE may be answered (KIP-890).

Source: Kafka's AddPartitionsToTxnRequest.json and AddPartitionsToTxnResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.primitives import Boolean, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct

BATCHED_SINCE_VERSION: Final = 4
"""From it on there are many transactions, as brokers ask; the versions before it are those of clients."""


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """Partitions of one transaction up to version 3, of many from 4 on."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", factory=list)
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", factory=list)


@struct
class AddPartitionsToTxnTransaction:
    """Partitions to add to one transaction, or with ``verify_only`` to look for in it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Boolean = field(default=False)
    topics: list[AddPartitionsToTxnTopic]


@struct
class AddPartitionsToTxnTopic:
    name: String
    partitions: list[Int32]


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """How each partition fared. ``error_code`` refuses the whole request."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", factory=list)


@struct
class AddPartitionsToTxnResult:
    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


@struct
class AddPartitionsToTxnTopicResult:
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16
