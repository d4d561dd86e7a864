"""DescribeTransactions: the state of transactions, by transactional id.

Source: Kafka's TransactionCoordinator.handleDescribeTransactions; KIP-664.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kafka_wire.stored.transactions import STATE_NAMES
from trio_broker.common.topic_partition import by_topic
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID, ForEach, InHandler, itself


def failed(transactional_id: str, error: KafkaError) -> TransactionState:
    return TransactionState(
        error_code=error.code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def error_response(request: DescribeTransactionsRequest, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[failed(each, error) for each in request.transactional_ids])


@handles(
    DescribeTransactionsRequest,
    error_response=error_response,
    requires=[
        ForEach([DESCRIBE_TRANSACTIONAL_ID], "transactional_ids", "transaction_states", itself),
        InHandler([DESCRIBE_TOPIC], "the partitions of the topic are left out"),
    ],
)
async def describe_transactions(request: DescribeTransactionsRequest, context: Context) -> DescribeTransactionsResponse:
    """Describe each transactional id, or say why it is not known."""
    # One that is named twice is described once: its partitions take more bytes than its name.
    ids = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=[described(each, context) async for each in InTurns(ids)])


def described(transactional_id: str, context: Context) -> TransactionState:
    try:
        known = context.services.transactions.describe(transactional_id)
    except KafkaError as error:
        return failed(transactional_id, error)
    metadata = known.metadata
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[metadata.status],
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(known.partitions).items()
            if context.may(DESCRIBE_TOPIC, topic, is_audited=False)
        ],
    )
