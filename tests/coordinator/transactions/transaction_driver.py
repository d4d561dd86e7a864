"""Speaks to one machine of transactions as a shard does, without a log: each record is applied at once, and kept."""

from __future__ import annotations

from typing import Any

from kafka_wire.messages.end_txn import EndTxnResponse
from kafka_wire.messages.init_producer_id import InitProducerIdResponse
from trio_broker.cluster.features import TRANSACTION_VERSION
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.transaction_coordinator_config import TransactionCoordinatorConfig
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorEvent, Now, RequestContext
from trio_broker.coordinator.transactions.requests import (
    AddPartitions,
    CompleteTransaction,
    EndTransaction,
    InitProducerId,
    OpenEpochs,
    VerifyTransaction,
)
from trio_broker.coordinator.transactions.transaction_machine import (
    NOTHING_OPEN,
    TransactionMachine,
    TransactionResult,
)
from trio_broker.coordinator.transactions.transaction_metadata import NO_PARTITIONS, TransactionMetadata

START_MS = 1_700_000_000_000
CLIENT = RequestContext("client", "/127.0.0.1", 0)
SETTINGS = TransactionCoordinatorConfig()
FIRST_ID = 4000
TIMEOUT_MS = 60_000
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class TransactionDriver:
    """One machine. ``log`` has its records as they are encoded; ``prepared`` the ids whose markers it has asked for."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.log: list[EncodedRecord] = []
        self.prepared: list[str] = []
        self.machine = TransactionMachine(SETTINGS, self.prepared.append)
        self.image = MetadataImage(features={TRANSACTION_VERSION: transaction_version})
        self.monotonic_seconds = 10.0
        self.wall_ms = self.expiry_ms = START_MS
        self._next_id = FIRST_ID

    # ---- what a shard does ----------------------------------------------------------------------------------------

    @property
    def now(self) -> Now:
        return Now(self.monotonic_seconds, self.wall_ms, self.expiry_ms)

    def advance(self, seconds: float) -> None:
        self.monotonic_seconds += seconds
        self.wall_ms += round(seconds * 1000)
        self.expiry_ms += round(seconds * 1000)

    def call(self, request: Any) -> Any:
        """The response to a request, whose record is applied.

        Raises:
            KafkaError: the machine refused it.
        """
        event = CoordinatorEvent(request, CLIENT, ResponseFuture(), self.now, self.image)
        if (result := self.machine.decide(event)) is not None:
            self._commit(request.transactional_id, result)
        assert event.future.is_done
        return event.future.response

    def _commit(self, key: str, result: TransactionResult) -> None:
        for record in result.records:
            self.log.append(self.machine.encode(record))
            self.machine.apply(record)
        for completion in result.completions:
            completion.future.set_result(completion.response)
        if not result.is_routine:
            self.machine.observe(key, result)

    def tick(self, key: str = "id") -> bool:
        """Let the timer of ``key`` run; whether anything was due."""
        result = self.machine.on_timeout(key, self.now, self.image)
        if result is None:
            return False
        self._commit(key, result)
        return True

    def restart(self, open_epochs: OpenEpochs = NOTHING_OPEN) -> None:
        """Load another machine from the records."""
        self.prepared.clear()
        self.machine = replayed(self.log, self.prepared, open_epochs)
        for key, result in self.machine.loaded(self.now, self.image).items():
            self._commit(key, result)

    # ---- what clients ask -----------------------------------------------------------------------------------------

    def init(
        self, key: str = "id", *, expected: ProducerIdAndEpoch | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> InitProducerIdResponse:
        """InitProducerId, with a fresh id wherever the coordinator would allocate one."""
        response: InitProducerIdResponse = self.call(InitProducerId(key, timeout_ms, expected, self.new_id(key)))
        return response

    def begin(self, key: str = "id") -> ProducerIdAndEpoch:
        """A producer takes the id; the producer."""
        response = self.init(key)
        assert response.error_code == 0
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, key: str = "id", version: int = 0) -> None:
        self.call(AddPartitions(key, producer, partitions or (T0,), version))

    def verify(self, producer: ProducerIdAndEpoch, key: str = "id") -> None:
        self.call(VerifyTransaction(key, producer))

    def end(
        self, producer: ProducerIdAndEpoch, *, commits: bool = True, version: int = 0, key: str = "id"
    ) -> EndTxnResponse:
        response: EndTxnResponse = self.call(EndTransaction(key, producer, commits, version, self.new_id(key)))
        return response

    def complete(self, key: str = "id") -> None:
        """All markers are written."""
        self.complete_as(self.state(key).producer, key)

    def complete_as(self, producer: ProducerIdAndEpoch, key: str = "id") -> None:
        """All markers of the transaction that ended as ``producer`` are written, wherever it has partitions now."""
        metadata = self.machine.transactions.get(key)
        partitions = NO_PARTITIONS if metadata is None else metadata.partitions
        self.call(CompleteTransaction(key, producer, partitions, self.new_id(key)))

    def state(self, key: str = "id") -> TransactionMetadata:
        return self.machine.transactions[key]

    def new_id(self, key: str) -> int | None:
        if not self.machine.needs_producer_id(key):
            return None
        self._next_id += 1
        return self._next_id - 1


def replayed(
    log: list[EncodedRecord], prepared: list[str], open_epochs: OpenEpochs = NOTHING_OPEN
) -> TransactionMachine:
    """The machine that a restart makes of the records."""
    machine = TransactionMachine(SETTINGS, prepared.append, lambda: open_epochs)
    for record in log:
        machine.replay(record)
    return machine


def producer_of(response: InitProducerIdResponse | EndTxnResponse) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
