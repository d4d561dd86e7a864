"""ListTransactions (api key 66): the transactions that a broker coordinates (KIP-664).

Version notes:

* 1: only those that run for longer than a duration (KIP-994).
* 2: only those whose id matches a regular expression (KIP-1152); INVALID_REGULAR_EXPRESSION may be answered.

Source: Kafka's ListTransactionsRequest.json and ListTransactionsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """Each filter lets all transactions pass when it is empty; ``duration_filter``, in milliseconds, when negative."""

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", default=None)


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactions that pass all filters, and the state filters that name no state."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]


@struct
class TransactionState:
    transactional_id: String
    producer_id: Int64
    transaction_state: String
