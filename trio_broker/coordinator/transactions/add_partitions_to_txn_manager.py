"""Asks the coordinator of a transactional id, which may be another broker, about partitions that are written to here.

A partition's leader lets a transactional batch in only when the coordinator knows that the partition is part of the
transaction, or no marker would ever end it (KIP-890). Where the id is coordinated here, the coordinator's own state is
asked once more immediately before the append. The state of another broker cannot be: there a ``VerificationGuard`` is
taken before the question, and a marker that is written meanwhile voids it.

Source: Kafka's AddPartitionsToTxnManager and VerificationGuard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from trio_broker.cluster.broker_clients import BrokerClients
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase
from trio_broker.common.topic_partition import TopicPartition, by_topic
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.coordinator.transactions.inter_broker_sender import REQUEST_TIMEOUT_SECONDS, InterBrokerSender
from trio_broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from trio_broker.coordinator.transactions.transaction_marker_channel_manager import leader_of
from trio_broker.network.errors import RequestFailed
from trio_broker.network.network_client import NetworkClient
from trio_broker.partition.partition import Partition
from trio_broker.partition.transaction_end import EPOCH_BUMP_VERSION
from trio_broker.storage.producer_state import VerificationGuard

PartitionCodes: TypeAlias = Mapping[TopicPartition, ErrorCode]


@attrs.frozen
class AskedTransaction:
    """Partitions of one transaction, to be added to it or only looked for."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    adds: bool

    def on_the_wire(self) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            verify_only=not self.adds,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(self.partitions).items()
            ],
        )

    def codes(self, result: AddPartitionsToTxnResult | None, otherwise: ErrorCode) -> PartitionCodes:
        """The code of each partition, ``otherwise`` for what the answer leaves out."""
        answered = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in (() if result is None else result.topic_results)
            for each in topic.results_by_partition
        }
        return {each: answered.get(each, otherwise) for each in self.partitions}


@attrs.define
class Verification:
    """What the coordinator of a transaction has said of partitions, and what it is worth at the moment of an append."""

    transactions: TransactionCoordinator
    transactional_id: str
    producer: ProducerIdAndEpoch
    codes: PartitionCodes | None = None
    """Of partitions that another broker was asked about; None if the id is coordinated here."""
    guards: Mapping[TopicPartition, VerificationGuard] = attrs.Factory(dict)

    def require_added(self, partition: Partition) -> None:
        """Refuse a partition that is not part of the producer's transaction at this moment.

        For the moment before an append, where nothing can come between: no marker would ever follow a record that is
        appended after the end of its transaction.

        Raises:
            KafkaError: see ``TransactionMachine.require_added``.
        """
        topic_partition = partition.topic_partition
        if self.codes is None:
            self.transactions.require_added(self.transactional_id, self.producer, topic_partition)
            return
        if code := self.codes.get(topic_partition, ErrorCode.NONE):
            text = f"{topic_partition}: the coordinator of {self.transactional_id!r:.200} says {code.name}"
            raise KafkaError(text, code=code)
        guard = self.guards.get(topic_partition)
        if guard is None or not partition.producers.is_verified(self.producer.producer_id, guard):
            # The producer tries again, and then the coordinator is asked about its next transaction.
            text = f"{topic_partition}: the transaction of {self.transactional_id!r:.200} has ended meanwhile"
            raise KafkaError(text, code=ErrorCode.CONCURRENT_TRANSACTIONS)


class AddPartitionsToTxnManager:
    """See the head of the file. ``transactions`` are those that this broker coordinates."""

    def __init__(self, transactions: TransactionCoordinator, clients: BrokerClients) -> None:
        self._transactions = transactions
        self._runtime = transactions.runtime
        self._sender: InterBrokerSender[AskedTransaction, PartitionCodes] = InterBrokerSender(
            "verification of transactions", clients, ask_coordinator, key=lambda asked: asked.transactional_id
        )

    async def run(self) -> None:
        """Ask other brokers until cancelled."""
        await self._sender.run()

    def verification_steps(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[Partition],
        *,
        adds: bool,
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> Steps[Verification]:
        """Ask the coordinator about ``partitions``, which with ``adds`` become part of the transaction. What it says is
        durable there.

        Raises:
            KafkaError: nothing may be appended to any of them; see ``TransactionMachine.add_partitions``.
        """
        coordinator = self._coordinator(transactional_id)
        verification = self.unasked(transactional_id, producer)
        names = [partition.topic_partition for partition in partitions]
        if verification.codes is None:
            caller = (context, release_handler)
            if adds:
                yield from self._transactions.add_partitions_steps(
                    transactional_id, producer, names, EPOCH_BUMP_VERSION, *caller
                )
            else:
                yield from self._transactions.verify_steps(transactional_id, producer, *caller)
            return verification
        verification.guards = {
            partition.topic_partition: partition.producers.verification_guard(producer.producer_id)
            for partition in partitions
        }
        sent = self._sender.send(coordinator, AskedTransaction(transactional_id, producer, names, adds))
        release_handler(RequestPhase.PURGATORY)
        try:
            codes: PartitionCodes = yield sent.result
        except RequestFailed as error:
            raise KafkaError(str(error), code=ErrorCode.NETWORK_EXCEPTION) from None
        verification.codes = codes
        return verification

    def unasked(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Verification:
        """What is known without a question: all if the id is coordinated here, and nothing otherwise."""
        is_here = self._coordinator(transactional_id) == self._runtime.node_id
        return Verification(self._transactions, transactional_id, producer, codes=None if is_here else {})

    def _coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates an id, or may; NO_LEADER if none does now."""
        runtime = self._runtime
        if runtime.topic not in runtime.image.topics:
            return runtime.node_id
        leader = leader_of(runtime.image, runtime.partition_of(transactional_id))
        return NO_LEADER if leader is None else leader


async def ask_coordinator(client: NetworkClient, batch: Sequence[AskedTransaction]) -> list[PartitionCodes]:
    """Have a coordinator add or look for partitions of transactions; return its codes.

    Raises:
        RequestFailed: it has not answered.
    """
    request = AddPartitionsToTxnRequest(transactions=[asked.on_the_wire() for asked in batch])
    response = await client.send(request, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
    results = {result.transactional_id: result for result in response.results_by_transaction}
    otherwise = ErrorCode(response.error_code) if response.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
    return [asked.codes(results.get(asked.transactional_id), otherwise) for asked in batch]
