"""Which transactional batches of a Produce request may be appended.

A partition must be part of the producer's transaction before it has records of it, or no marker would ever end them
(KIP-890). The coordinator says so, unless the log has records of the transaction already:

* From version 12 on Produce adds its partitions to the transaction by itself. Before, the client has added them, and
  the coordinator is asked whether it has.
* Either way, what the coordinator knows is durable before the append. Immediately before it, where nothing can come
  between, the coordinator is asked once more: the transaction may have ended while the request waited.

The coordinator may be another broker (``AddPartitionsToTxnManager``).

Source: Kafka's ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager and
UnifiedLog.analyzeAndValidateProducerState.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.produce import (
    ADDS_PARTITIONS_SINCE_VERSION,
    BY_ID_SINCE_VERSION,
    ProduceRequest,
    TopicProduceData,
)
from kafka_wire.records.batch import (
    ATTRIBUTES_LOW_BYTE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PRODUCER_ID_POSITION,
    TRANSACTIONAL_BIT,
)
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions.add_partitions_to_txn_manager import Verification
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.transactions import code_in
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition
from trio_broker.partition.writer import AppendGuard

ABORTABLE_SINCE_VERSION: Final = 11
PRODUCER: Final = struct.Struct(">qh")
"""A batch's producer id and epoch."""

SEQUENCE: Final = struct.Struct(">i")
SEQUENCE_POSITION: Final = PRODUCER_ID_POSITION + PRODUCER.size
"""Where a batch has the sequence of its first record."""

OF_NO_PRODUCER: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST})
"""What is said of a batch that is not the one of a producer which could repeat it."""


class NotInTransaction(KafkaError):
    """A transactional batch that is not part of its producer's transaction, so that the log was not asked."""


def is_transactional(records: memoryview) -> bool:
    """Whether a batch has the transactional bit. One too short to have it is refused by the log."""
    return len(records) > ATTRIBUTES_LOW_BYTE and bool(records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)


def producer_of(records: memoryview) -> ProducerIdAndEpoch:
    """Who has written a batch; nobody has one that is too short to say it."""
    if len(records) < PRODUCER_ID_POSITION + PRODUCER.size:
        return ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return ProducerIdAndEpoch(*PRODUCER.unpack_from(records, PRODUCER_ID_POSITION))


@attrs.define
class TransactionalProduce:
    """The transaction of one Produce request that has a transactional id."""

    transactional_id: str
    context: Context
    refusal: KafkaError | None = None
    """What the coordinator said to all partitions of which the log has no records yet."""
    verification: Verification | None = None
    """What it said of them."""
    producers: set[ProducerIdAndEpoch] = attrs.Factory(set)
    """Who has written the batches of the request, of which there may be one."""

    def begin(self, request: ProduceRequest) -> Steps[None]:
        """Let the coordinator know of the partitions, or learn from it; what it refuses is raised by ``guard``."""
        new = yield from self._new_partitions(request)
        if not new or len(self.producers) > 1:
            return
        [producer] = self.producers
        try:
            yield from self._ask(new, producer)
        except KafkaError as error:
            self.refusal = error.with_traceback(None)  # whose frames hold the request

    def _new_partitions(self, request: ProduceRequest) -> Steps[list[Partition]]:
        """The partitions that exist and have no records of the transaction yet. Notes the producers."""
        budget = YieldBudget()
        new: list[Partition] = []
        for topic in request.topic_data:
            local = self._local(topic)
            for data in topic.partition_data:
                records = data.records
                if local is not None and records is not None and is_transactional(records):
                    partition, producer = local.partitions.get(data.index), producer_of(records)
                    self.producers.add(producer)
                    if partition is not None and not has_open_transaction(partition, producer):
                        new.append(partition)
                if budget.is_spent:
                    yield budget.renewed
            if budget.is_spent:  # a topic may be named without partitions
                yield budget.renewed
        return new

    def _local(self, topic: TopicProduceData) -> LocalTopic | None:
        replicas = self.context.services.replicas
        if self.context.version >= BY_ID_SINCE_VERSION:
            return replicas.topics_by_id.get(topic.topic_id)
        return replicas.topics.get(topic.name)

    def _ask(self, partitions: list[Partition], producer: ProducerIdAndEpoch) -> Steps[None]:
        context = self.context
        self.verification = yield from context.services.transaction_verification.verification_steps(
            self.transactional_id,
            producer,
            partitions,
            adds=context.version >= ADDS_PARTITIONS_SINCE_VERSION,
            context=context.request_context,
            release_handler=context.release_handler,
        )

    def guard(self, partition: Partition, records: memoryview) -> AppendGuard:
        """What is asked immediately before the append of a transactional batch."""
        return partial(self._require_added, partition, records)

    def _require_added(self, partition: Partition, records: memoryview) -> None:
        """Raise what forbids the append, as a producer of this version knows it."""
        producer = producer_of(records)
        if len(self.producers) > 1:
            text = "transactional batches of more than one producer"
            raise NotInTransaction(text, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if has_open_transaction(partition, producer):
            return
        producers, [sequence] = partition.producers, SEQUENCE.unpack_from(records, SEQUENCE_POSITION)
        try:
            if self.refusal is not None:
                raise self.refusal
            verification = self.verification
            if verification is None:
                verification = self.context.services.transaction_verification.unasked(self.transactional_id, producer)
            verification.require_added(partition)
        except KafkaError as error:
            if error.code not in OF_NO_PRODUCER:
                producers.note_refused(producer.producer_id, producer.epoch, sequence)
            raise NotInTransaction(str(error), code=produce_code(self.context.version, error.code)) from None
        if self.context.version >= ADDS_PARTITIONS_SINCE_VERSION:
            producers.check_first_sequence(producer.producer_id, sequence)


def has_open_transaction(partition: Partition, producer: ProducerIdAndEpoch) -> bool:
    """Whether the log has records of the producer's transaction already."""
    return partition.producers.has_open_transaction(producer.producer_id, producer.epoch)


def produce_code(version: int, code: ErrorCode) -> ErrorCode:
    """``code`` as a producer of this version knows it."""
    code = code_in(version, code, abortable_since=ABORTABLE_SINCE_VERSION)
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_PARTITIONS_SINCE_VERSION:
        return code
    # The codes of a coordinator mean nothing in an answer to Produce; after this one every producer tries again.
    return ErrorCode.NOT_ENOUGH_REPLICAS if code.is_retriable else code
