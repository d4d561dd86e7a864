"""What the machine of the transaction coordinator is asked: the client's requests, and the broker's own.

Several APIs come to one of these: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit 5 and Produce 12 all add
partitions. ``new_producer_id`` is an id that nobody has, where the request may need one: ids are allocated by the
controller, which a machine cannot wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

import attrs

from kafka_wire.messages.end_txn import EndTxnResponse
from kafka_wire.messages.init_producer_id import InitProducerIdResponse
from kafka_wire.schema import Request
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.result import RequestContext

THE_BROKER: Final = RequestContext(client_id="", client_host="", version=0)
"""Who asks what no client has asked."""


@attrs.frozen
class Ack:
    """The response to a request that has no other answer than an error."""


@attrs.frozen
class InitProducerId(Request[InitProducerIdResponse]):
    """A producer takes a transactional id. ``expected`` is the producer that it was until now, if it was one."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    new_producer_id: int | None


@attrs.frozen
class AddPartitions(Request[Ack]):
    """Partitions become part of the transaction, which begins with the first."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    client_transaction_version: int


@attrs.frozen
class VerifyTransaction(Request[Ack]):
    """The producer may write in its transaction. Answered once all that is known of it is durable."""

    transactional_id: str
    producer: ProducerIdAndEpoch


@attrs.frozen
class EndTransaction(Request[EndTxnResponse]):
    """Commit or abort. ``client_transaction_version`` says which of the two protocols the producer follows."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commits: bool
    client_transaction_version: int
    new_producer_id: int | None


@attrs.frozen
class AbortTransaction(Request[Ack]):
    """An administrator aborts the transaction that ``producer`` began at ``start_ms``, and fences the producer."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    start_ms: int


OpenEpochs: TypeAlias = Mapping[int, Mapping[TopicPartition, int]]
"""Transactions that are open in the logs: by producer id the partitions, each with the producer's epoch there."""


@attrs.frozen
class EndHanging(Request[Ack]):
    """What the logs have open of the producer, and its transactional id has not, is ended."""

    transactional_id: str
    open_epochs: OpenEpochs


@attrs.frozen
class CompleteTransaction(Request[Ack]):
    """The markers of the transaction that ended as ``producer`` are durable in ``partitions``."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    new_producer_id: int | None = None
