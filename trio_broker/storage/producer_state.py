"""What a log remembers of its producers: enough to tell a repeated batch from a new one, and an open transaction.

For each producer id: its epoch, the last five batches (a client has at most five in flight, so a repeated batch is
one of them), the epoch of the coordinator that wrote its last marker, and where its open transaction began. The
decisions:

* a batch whose epoch and whole sequence range equal one of the five is a duplicate and is answered with its old
  offsets;
* an older epoch is fenced (47); a newer epoch must begin at sequence 0; the same epoch must go on at the next
  sequence, which after 2**31 - 1 is 0; else 45. A producer nobody remembers may begin anywhere: its state was lost,
  not its records;
* these checks are for clients. Batches from a leader or a coordinator are facts and only update the state.

Only the producer id says whether a batch is idempotent (-1: not); clients send junk in epoch and sequence otherwise.

Source: Kafka's ProducerStateManager, ProducerStateEntry, ProducerAppendInfo.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import attrs

from kafka_wire.limits import MAX_SEQUENCE
from kafka_wire.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from trio_broker.storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from trio_broker.storage.open_transactions import OpenTransactions
from trio_broker.storage.transaction_index import AbortedTransaction

REMEMBERED_BATCHES = 5
"""The largest ``max.in.flight.requests.per.connection`` of an idempotent producer."""

MAX_REFUSED = 100
"""Producers of one log of which refused batches are remembered: those that repeat one do so within seconds, and a
client may name any producer."""

NO_COORDINATOR_EPOCH = -1


@attrs.define
class BatchMetadata:
    """One remembered batch: its last sequence and offset, how many records lie before its last one, its timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record; sequences wrap from 2**31 - 1 to 0."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + MAX_SEQUENCE + 1

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


@attrs.define
class ProducerEntry:
    """What is known of one producer. ``batches`` are at most five, oldest first, all of ``producer_epoch``."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: list[BatchMetadata] = attrs.field(factory=list)
    last_timestamp_ms: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record in this epoch, -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def enter_epoch(self, epoch: int) -> None:
        """Sequences begin anew with an epoch, so batches of the old one say nothing any more."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()

    def remember(self, batch: BatchMetadata) -> None:
        """Add a batch, forgetting the oldest of six."""
        if len(self.batches) == REMEMBERED_BATCHES:
            del self.batches[0]
        self.batches.append(batch)


def sequence_after(sequence: int) -> int:
    """The sequence of the next record: after the largest one they begin at 0 again."""
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


@attrs.frozen
class TransactionMarker:
    """An end-of-transaction marker as the log has it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    offset: int
    timestamp_ms: int
    aborted: bool


class VerificationGuard:
    """Held while a coordinator elsewhere is asked whether a partition is part of a producer's transaction, and until
    the batch is appended (KIP-890)."""

    __slots__ = ("__weakref__",)


class ProducerStates:
    """The producers of one log. ``end_offset`` is the log offset up to which the state counts, exclusive."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self.transactions = OpenTransactions()
        # By producer id: of the transactional batches that the coordinator has refused since the producer's last batch,
        # the epoch and the lowest sequence.
        self._refused: dict[int, tuple[int, int]] = {}
        # By producer id, for as long as somebody holds it.
        self._guards: WeakValueDictionary[int, VerificationGuard] = WeakValueDictionary()

    # --- What a leader decides before an append ---

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch that ``header`` repeats, None when it is new."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def check_epoch(self, header: BatchHeader) -> None:
        """Refuse a data batch of a fenced producer, or one that would break into the producer's own transaction.

        Raises:
            InvalidProducerEpoch: an older epoch than the one known.
            InvalidTransactionState: not transactional, while a transaction of this producer is open.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, known is"
                f" {entry.producer_epoch}"
            )
        if entry.transaction_first_offset is not None and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open since {entry.transaction_first_offset}"
            )

    def note_refused(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """A transactional batch is not let in now, and its producer may repeat it: none behind it may come before it.

        Without anything known of a producer its first batch could have any sequence.
        """
        epoch, lowest = self._refused.pop(producer_id, (producer_epoch, sequence))
        if producer_epoch > epoch:
            epoch, lowest = producer_epoch, sequence
        elif producer_epoch == epoch:
            lowest = min(lowest, sequence)
        if len(self._refused) == MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = (epoch, lowest)

    def check_first_sequence(self, producer_id: int, sequence: int) -> None:
        """Refuse the first batch of a transaction of the second protocol, in which each transaction has an epoch of its
        own, if it does not begin at 0.

        Raises:
            OutOfOrderSequence: no batch of the producer is known, and the sequence is not 0.
        """
        entry = self.producers.get(producer_id)
        if sequence and (entry is None or not entry.batches):
            raise OutOfOrderSequence(f"producer {producer_id} begins a transaction at sequence {sequence}, not 0")

    def check_sequence(self, header: BatchHeader) -> None:
        """Refuse a client's batch that does not follow the producer's last one.

        Raises:
            OutOfOrderSequence: a gap, a batch older than the five remembered, or a new epoch not begun at 0.
        """
        if self._refused and (refused := self._refused.get(header.producer_id)) is not None:
            epoch, lowest = refused
            if header.is_transactional and header.producer_epoch == epoch and header.base_sequence > lowest:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} epoch {epoch} sends sequence {header.base_sequence}, and {lowest}"
                    " was refused before"
                )
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != entry.producer_epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} at sequence"
                    f" {header.base_sequence}, not 0"
                )
            return
        expected = sequence_after(entry.last_sequence)
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {header.producer_epoch} sends sequence {header.base_sequence},"
                f" expected {expected}"
            )

    def check_end(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse the end of a transaction of the second protocol (KIP-890) that comes late: the producer has begun
        another one with the epoch that this end has raised it to.

        Raises:
            InvalidProducerEpoch: a transaction is open in that epoch.
        """
        if self.has_open_transaction(producer_id, producer_epoch):
            text = f"the end of an earlier transaction of producer {producer_id}, which has one open in epoch"
            raise InvalidProducerEpoch(f"{text} {producer_epoch}")

    def check_marker(self, marker: TransactionMarker) -> None:
        """Refuse a marker of a fenced producer or of a coordinator that was replaced.

        Raises:
            InvalidProducerEpoch: an older producer epoch than the one known.
            TransactionCoordinatorFenced: an older coordinator epoch than that of the last marker.
        """
        entry = self.producers.get(marker.producer_id)
        if entry is None:
            return
        if marker.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"marker for producer {marker.producer_id} with epoch {marker.producer_epoch}, known is"
                f" {entry.producer_epoch}"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker from coordinator epoch {marker.coordinator_epoch}, known is {entry.coordinator_epoch}"
            )

    def coordinator_epoch(self, producer_id: int) -> int:
        """That of the producer's last marker, -1 without one."""
        entry = self.producers.get(producer_id)
        return NO_COORDINATOR_EPOCH if entry is None else entry.coordinator_epoch

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open here in this epoch."""
        return self.open_epoch(producer_id) == producer_epoch

    def open_epoch(self, producer_id: int) -> int | None:
        """The epoch of the transaction that the producer has open here, None without one."""
        entry = self.producers.get(producer_id)
        return None if entry is None or entry.transaction_first_offset is None else entry.producer_epoch

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """The guard of a producer's transaction: the same one for all who ask, until a marker ends the transaction."""
        if (guard := self._guards.get(producer_id)) is None:
            guard = self._guards[producer_id] = VerificationGuard()
        return guard

    def is_verified(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer has come since ``guard`` was taken."""
        return self._guards.get(producer_id) is guard

    # --- What was appended, or read back ---

    def update(self, header: BatchHeader) -> None:
        """Take note of a data batch that is in the log, with its offsets."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        if self._refused:
            self._refused.pop(header.producer_id, None)
        entry.enter_epoch(header.producer_epoch)
        # Read back: it was appended when the producer was not known any more, so the batches before it say nothing; or
        # compaction has taken what was between.
        if entry.batches and header.base_sequence != sequence_after(entry.last_sequence):
            entry.batches.clear()
        last_offset = header.last_offset
        delta = header.last_offset_delta
        entry.remember(BatchMetadata(header.last_sequence, last_offset, delta, header.max_timestamp))
        entry.last_timestamp_ms = header.max_timestamp
        if header.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = header.base_offset
            self.transactions.begin(header.base_offset, header.producer_id)

    def complete(self, marker: TransactionMarker) -> AbortedTransaction | None:
        """Take note of a marker that is in the log. Returns the transaction that it aborts; None for one that commits,
        and for one without records here.

        The transaction keeps holding the first unstable offset until the high watermark passes its marker.
        """
        aborted = self.aborted_by(marker)
        entry = self.producers.get(marker.producer_id)
        if entry is None:
            entry = self.producers[marker.producer_id] = ProducerEntry(marker.producer_id)
        self._refused.pop(marker.producer_id, None)
        self._guards.pop(marker.producer_id, None)
        entry.enter_epoch(marker.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = marker.timestamp_ms
        if (first_offset := entry.transaction_first_offset) is not None:
            entry.transaction_first_offset = None
            self.transactions.decide(first_offset, marker.offset)
        return aborted

    def aborted_by(self, marker: TransactionMarker) -> AbortedTransaction | None:
        """The transaction that ``marker`` aborts, which comes next in the log; None if it commits, or if there are no
        records of the transaction here.
        """
        entry = self.producers.get(marker.producer_id)
        if not marker.aborted or entry is None or (first_offset := entry.transaction_first_offset) is None:
            return None
        # The next open transaction holds the last stable offset, or nothing does up to the marker.
        others = (offset for offset in self.transactions.undecided if offset != first_offset)
        return AbortedTransaction(
            marker.producer_id, first_offset, marker.offset, min(others, default=marker.offset + 1)
        )

    # --- Time and truncation ---

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers silent for ``expiration_ms`` without an open transaction. Returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.transaction_first_offset is None and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def restore(self, entries: list[ProducerEntry], end_offset: int) -> None:
        """Replace everything by the content of a snapshot taken at ``end_offset``."""
        self.producers = {entry.producer_id: entry for entry in entries}
        self.transactions = OpenTransactions()
        open_transactions = [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in entries
            if entry.transaction_first_offset is not None
        ]
        # Sorted, since the first key must be the oldest and a snapshot is ordered by producer.
        for first_offset, producer_id in sorted(open_transactions):
            self.transactions.begin(first_offset, producer_id)
        self.end_offset = end_offset

    def remember_older(self, header: BatchHeader) -> None:
        """Put back a batch that a snapshot left out: it keeps only the last of five.

        Called with the batches that lie before the snapshot, newest first; those of another epoch, or with a batch
        missing between, are not taken.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch or not entry.batches:
            return
        oldest = entry.batches[0]
        if len(entry.batches) == REMEMBERED_BATCHES or header.last_offset >= oldest.last_offset:
            return
        if sequence_after(header.last_sequence) == oldest.first_sequence:
            batch = BatchMetadata(
                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
            )
            entry.batches.insert(0, batch)
