"""The state of one transactional id, and the transitions that lead from one state to the next.

    EMPTY ──▶ ONGOING ──▶ PREPARE_COMMIT ──▶ COMPLETE_COMMIT ─┐
      ▲          │                                            ├──▶ ONGOING, or EMPTY when a producer begins anew
      │          └──────▶ PREPARE_ABORT ───▶ COMPLETE_ABORT ──┘
      └── InitProducerId

A ``TransactionMetadata`` is a value: each transition is a function that returns the next one, which goes into the log.
Whether a request may make a transition is decided in ``transaction_machine``.

Two protocols stand side by side. In the first a producer keeps its epoch until it begins anew. In the second (KIP-890,
``client_transaction_version`` 2) each end of a transaction raises the epoch, so that a batch that arrives late is
fenced, and ids that have used up their epochs are replaced at the end of a transaction.

Source: Kafka's TransactionMetadata; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from kafka_wire.limits import MAX_PRODUCER_EPOCH
from kafka_wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from kafka_wire.stored.transactions import PartitionsSchema, TransactionLogValue, TransactionStatus
from trio_broker.common.topic_partition import TopicPartition, by_topic
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.partition.transaction_end import EPOCH_BUMP_VERSION

MAX_EPOCH: Final = MAX_PRODUCER_EPOCH
"""No client gets it: it is left for fencing the producer that has the epoch before it, so only markers have it. A
transaction that ends with it replaces the producer id.
"""

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

COMPLETED: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)

PREPARED: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


def is_epoch_exhausted(epoch: int) -> bool:
    """Whether no client may have an epoch after ``epoch``."""
    return epoch >= MAX_EPOCH - 1


def supports_epoch_bump(transaction_version: int) -> bool:
    """Whether a transaction of this version ends with a raised epoch."""
    return transaction_version >= EPOCH_BUMP_VERSION


@attrs.frozen(kw_only=True)
class TransactionMetadata:
    """A transactional id: the producer that has it, and its newest transaction.

    ``last_producer_epoch`` is the epoch before the current one if the same producer has raised it itself, so that its
    repeated request is recognised; it is not in the log, as in Kafka, and -1 after a restart. ``start_ms`` is when the
    transaction began, in milliseconds since 1970.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int
    client_transaction_version: int = 0

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def lacks_next_producer_id(self) -> bool:
        """Whether no epoch is left for a producer, and no id has been set aside that follows."""
        return self.producer_epoch == MAX_EPOCH and self.next_producer_id == NO_PRODUCER_ID

    @property
    def is_past_last_epoch(self) -> bool:
        """Whether a client may have the epoch that none may have: an earlier version has given it out."""
        return self.producer_epoch == MAX_EPOCH and not self.is_prepared

    @property
    def is_prepared(self) -> bool:
        """Whether the end of the transaction is decided and its markers are not all written yet."""
        return self.status in PREPARED

    def is_ending_for(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether ``producer`` goes on with the transactional id once the markers are written."""
        if not self.is_prepared:
            return False
        if producer.producer_id == self.producer_id:
            return producer.epoch == self.producer_epoch
        # Known to the client from the end of the transaction on (KIP-890).
        return producer.producer_id == self.next_producer_id != NO_PRODUCER_ID and producer.epoch == 0

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, so that the transactional id may expire."""
        return self.status is TransactionStatus.EMPTY or self.status in COMPLETED

    # ---- a producer begins ----------------------------------------------------------------------------------------

    def with_next_epoch(self, timeout_ms: int, now_ms: int, *, is_same_producer: bool) -> TransactionMetadata:
        """A producer takes the transactional id, and all with an older epoch are fenced. With ``is_same_producer`` it
        is the one that has it already and goes on after an error.
        """
        last_epoch = self.producer_epoch if is_same_producer else NO_PRODUCER_EPOCH
        return self._begun_anew(self.producer_id, self.producer_epoch + 1, last_epoch, timeout_ms, now_ms)

    def with_same_epoch(self, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """A producer repeats the request that has raised its epoch."""
        return self._begun_anew(self.producer_id, self.producer_epoch, self.last_producer_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, is_same_producer: bool
    ) -> TransactionMetadata:
        """As ``with_next_epoch``, when the epochs of the old id are used up."""
        last_epoch = self.producer_epoch if is_same_producer else NO_PRODUCER_EPOCH
        return self._begun_anew(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _begun_anew(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        return attrs.evolve(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            status=TransactionStatus.EMPTY,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    # ---- a transaction --------------------------------------------------------------------------------------------

    def with_partitions(
        self, added: Iterable[TopicPartition], client_transaction_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Partitions are added to the transaction, which begins if none is ongoing."""
        return attrs.evolve(
            self,
            previous_producer_id=self.producer_id,
            status=TransactionStatus.ONGOING,
            partitions=self.partitions.union(added),
            start_ms=self.start_ms if self.status is TransactionStatus.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )

    def prepared(
        self,
        status: TransactionStatus,
        client_transaction_version: int,
        now_ms: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> TransactionMetadata:
        """The end of the transaction is decided; ``status`` is PREPARE_COMMIT or PREPARE_ABORT. Of the second protocol
        a producer may abort before it has written anything. An epoch that cannot be raised ends as in the first one.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if epoch == MAX_EPOCH:
            client_transaction_version = 0
        if supports_epoch_bump(client_transaction_version):
            epoch, last_epoch = epoch + 1, epoch
        return attrs.evolve(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            status=status,
            start_ms=self.start_ms if self.status is TransactionStatus.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )

    def aborted_by_fencing(self, transaction_version: int, now_ms: int) -> TransactionMetadata:
        """The abort of a transaction is decided by another than its producer, which can then do no more in it. The
        raised epoch is that of the abort, or if aborts have none, one that nobody is given.
        """
        aborted = self.prepared(TransactionStatus.PREPARE_ABORT, transaction_version, now_ms)
        if supports_epoch_bump(aborted.client_transaction_version):
            return aborted
        epoch = min(self.producer_epoch + 1, MAX_EPOCH)
        return attrs.evolve(aborted, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)

    def with_previous_producer_id(self) -> TransactionMetadata:
        """The complete transaction as it was before its end has replaced the producer id; itself if none was."""
        if self.producer_epoch or self.previous_producer_id in (NO_PRODUCER_ID, self.producer_id):
            return self
        return attrs.evolve(
            self,
            producer_id=self.previous_producer_id,
            producer_epoch=MAX_EPOCH,
            next_producer_id=self.producer_id,
        )

    def prepared_again(self, partitions: Iterable[TopicPartition], now_ms: int) -> TransactionMetadata:
        """The complete transaction lacks its marker in ``partitions``; everything else of it stays as it is."""
        is_commit = self.status is TransactionStatus.COMPLETE_COMMIT
        return attrs.evolve(
            self,
            status=TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT,
            partitions=frozenset(partitions),
            last_update_ms=now_ms,
            client_transaction_version=0 if self.producer_epoch == MAX_EPOCH else self.client_transaction_version,
        )

    def completed(self, now_ms: int, new_producer_id: int = NO_PRODUCER_ID) -> TransactionMetadata:
        """All markers are written. Where no epoch is left, the producer id is replaced: by the one that was set aside
        when the end was decided, or by ``new_producer_id``.
        """
        producer_id, epoch = self.producer_id, self.producer_epoch
        next_producer_id = new_producer_id if self.lacks_next_producer_id else self.next_producer_id
        if next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = next_producer_id, 0
        assert epoch < MAX_EPOCH, f"producer {producer_id} would go on with epoch {epoch}"
        is_commit = self.status is TransactionStatus.PREPARE_COMMIT
        return attrs.evolve(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=epoch,
            status=TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT,
            partitions=NO_PARTITIONS,
            last_update_ms=now_ms,
        )


# ---- in the log ---------------------------------------------------------------------------------------------------


def to_log_value(metadata: TransactionMetadata) -> TransactionLogValue:
    """What the log keeps of ``metadata``."""
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.status,
        transaction_partitions=(
            None
            if metadata.status is TransactionStatus.EMPTY
            else [
                PartitionsSchema(topic=topic, partition_ids=indexes)
                for topic, indexes in by_topic(metadata.partitions).items()
            ]
        ),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_transaction_version,
    )


def from_log_value(value: TransactionLogValue) -> TransactionMetadata:
    """What a record of the log says.

    Raises:
        ValueError: its status is none that is written.
    """
    return TransactionMetadata(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=TransactionStatus(value.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )
