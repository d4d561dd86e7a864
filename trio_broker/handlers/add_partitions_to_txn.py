"""AddPartitionsToTxn: name partitions before a transaction writes to them.

A transaction takes all the partitions of a request or none: if one does not exist, the others get
OPERATION_NOT_ATTEMPTED. From version 4 on a request has many transactions, each with an outcome of its own, and may ask
only whether partitions are in one.

Source: Kafka's KafkaApis.handleAddPartitionsToTxnRequest; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.add_partitions_to_txn import (
    BATCHED_SINCE_VERSION,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from trio_broker.common.topic_names import is_internal_topic
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, list_in_turns
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, InHandler
from trio_broker.handlers.support.transactions import in_version
from trio_broker.partition.transaction_end import EPOCH_BUMP_VERSION

FENCED_SINCE_VERSION: Final = 2

Codes = Mapping[TopicPartition, ErrorCode]


def error_response(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_topic_v3_and_below=failed(request.v3_and_below_topics, error.code),
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=failed(each.topics, error.code)
            )
            for each in request.transactions
        ],
    )


def failed(topics: Sequence[AddPartitionsToTxnTopic], code: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Codes, otherwise: ErrorCode
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """The outcome of each partition: its own code, or ``otherwise``."""
    budget, answers = YieldBudget(), []
    for topic in topics:
        partitions = (
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=codes.get(TopicPartition(topic.name, index), otherwise)
            )
            for index in topic.partitions
        )
        results_by_partition = yield from list_in_turns(partitions)
        answers.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results_by_partition))
        if budget.is_spent:
            yield budget.renewed
    return answers


@handles(
    AddPartitionsToTxnRequest,
    error_response=error_response,
    requires=[
        InHandler([CLUSTER_ACTION], "of brokers, the request: CLUSTER_AUTHORIZATION_FAILED"),
        InHandler([WRITE_TRANSACTIONAL_ID], "all partitions: TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        InHandler(
            [WRITE_TOPIC],
            "the partitions of a topic: TOPIC_AUTHORIZATION_FAILED, and all others OPERATION_NOT_ATTEMPTED",
        ),
    ],
)
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: Context) -> Steps[AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction, or say which of them it has."""
    if context.version < BATCHED_SINCE_VERSION:
        context.require(WRITE_TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from outcome(transaction, context)))
    context.require(CLUSTER_ACTION)
    budget = YieldBudget()
    outcomes = []
    for transaction in request.transactions:
        topic_results = yield from outcome(transaction, context)
        outcomes.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topic_results)
        )
        if budget.is_spent:
            yield budget.renewed
    return AddPartitionsToTxnResponse(results_by_transaction=outcomes)


def outcome(transaction: AddPartitionsToTxnTransaction, context: Context) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """What became of one transaction's partitions."""
    topics, services = transaction.topics, context.services
    is_client = context.version < BATCHED_SINCE_VERSION
    partitions, refused = yield from existing(topics, context, is_client=is_client)
    if refused:
        return (yield from results(topics, refused, ErrorCode.OPERATION_NOT_ATTEMPTED))
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    transactional_id, caller = transaction.transactional_id, (context.request_context, context.release_handler)
    # Only brokers were meant to send the newer versions, and those that do know the second protocol.
    version = 0 if is_client else EPOCH_BUMP_VERSION
    codes: Codes = {}
    try:
        if transaction.verify_only:
            yield from services.transactions.verify_steps(transactional_id, producer, *caller)
            codes = yield from not_added(transactional_id, producer, partitions, context)
        else:
            yield from services.transactions.add_partitions_steps(
                transactional_id, producer, partitions, version, *caller
            )
    except KafkaError as error:
        code = in_version(error, context.version, fenced_since=FENCED_SINCE_VERSION).code
        return (yield from results(topics, {}, code))
    return (yield from results(topics, codes, ErrorCode.NONE))


def existing(
    topics: Sequence[AddPartitionsToTxnTopic], context: Context, *, is_client: bool
) -> Steps[tuple[dict[TopicPartition, None], dict[TopicPartition, ErrorCode]]]:
    """What may be added, each once, and the others with their code. Clients write to no internal topic."""
    budget, image = YieldBudget(), context.services.metadata_cache.image
    there: dict[TopicPartition, None] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        known = image.topics.get(topic.name)
        is_denied = is_client and (is_internal_topic(topic.name) or not context.may(WRITE_TOPIC, topic.name))
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            if is_denied:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or index not in known.partitions:
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                there[partition] = None
            if budget.is_spent:
                yield budget.renewed
        if budget.is_spent:  # a topic may be named without partitions
            yield budget.renewed
    return there, refused


def not_added(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], context: Context
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """The partitions that are not in the transaction, each with its code."""
    budget, codes = YieldBudget(), {}
    for partition in partitions:
        try:
            context.services.transactions.require_added(transactional_id, producer, partition)
        except KafkaError as error:
            codes[partition] = error.code
        if budget.is_spent:
            yield budget.renewed
    return codes
