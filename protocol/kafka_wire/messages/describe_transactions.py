"""DescribeTransactions (api key 65): the state of transactions, by transactional id (KIP-664).

Source: Kafka's DescribeTransactionsRequest.json and DescribeTransactionsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    """None are described where ``transactional_ids`` is empty."""

    transactional_ids: list[String]


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[TransactionState]


@struct
class TransactionState:
    """One transaction. The start is in milliseconds since 1970, and -1 where none has begun; ``topics`` has the
    partitions that are in the transaction and have no marker yet.
    """

    error_code: Int16 = field(default=0)
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


@struct
class TopicData:
    topic: String
    partitions: list[Int32]
