"""Selects the batches that have rows: in the range, no control batches, no aborted transactions.

A batch does not say whether its transaction was aborted. A fetch response or the transaction index does, by a
producer's id and the offset where the transaction began. From there on everything that this producer wrote in
transactions is void, until its abort marker; behind that a new transaction may begin. So all batches are walked in the
order of their offsets, also those before the range.

Source: Kafka's CompletedFetch.nextFetchedRecord, consumeAbortedTransactionsUpTo, containsAbortMarker.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import attrs
import numpy as np

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import BATCH_HEADER_BYTES, CONTROL_BIT, TRANSACTIONAL_BIT
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from trio_broker.spark.batch_table import Int64Array
from trio_broker.spark.chunk import AbortedTransactionStart, Decoding
from trio_broker.spark.decoder.corruption import PartitionChunk
from trio_broker.spark.ranges import OffsetRange


@attrs.define
class AbortedProducers:
    """The producers in an aborted transaction, at the position of the walk."""

    active: set[int] = attrs.field(factory=set)
    ahead: list[tuple[int, int]] = attrs.field(factory=list)
    """Aborted transactions that begin later: a heap of first offset and producer id."""
    known: set[AbortedTransactionStart] = attrs.field(factory=set)
    """All transactions that were added. A later fetch may name one again that has ended by then; it must not begin
    again."""

    def add(self, transactions: Iterable[AbortedTransactionStart]) -> None:
        """Add aborted transactions."""
        for transaction in transactions:
            if transaction not in self.known:
                self.known.add(transaction)
                heappush(self.ahead, (transaction.first_offset, transaction.producer_id))

    def advance(self, last_offset: int) -> None:
        """Start the aborted transactions that begin at ``last_offset`` or before."""
        while self.ahead and self.ahead[0][0] <= last_offset:
            self.active.add(heappop(self.ahead)[1])

    def clear(self) -> None:
        """Remove all transactions: the markers that would have ended them may be lost."""
        self.active.clear()
        self.ahead.clear()
        self.known.clear()

    @property
    def is_empty(self) -> bool:
        """Whether no aborted transaction is known, here or ahead."""
        return not self.active and not self.ahead


def select_batches(
    source: PartitionChunk, offsets: OffsetRange, decoding: Decoding, aborted: AbortedProducers
) -> Int64Array:
    """Return the rows of the chunk's table whose batches may hold wanted records of ``offsets``.

    Raises:
        CorruptData: a control batch cannot be read where it matters.
    """
    table = source.chunk.table
    wanted = (table.last_offsets >= offsets.start_offset) & (table.base_offsets < offsets.end_offset)
    wanted &= table.attributes & CONTROL_BIT == 0
    wanted &= (table.record_counts > 0) | (table.sizes > BATCH_HEADER_BYTES)
    if decoding.read_committed:
        aborted.add(source.chunk.aborted)
        if not aborted.is_empty:
            wanted &= ~_is_aborted(source, decoding, aborted)
    return np.flatnonzero(wanted).astype(np.int64)


def _is_aborted(source: PartitionChunk, decoding: Decoding, aborted: AbortedProducers) -> np.typing.NDArray[np.bool_]:
    """Return for each batch whether it belongs to an aborted transaction."""
    table = source.chunk.table
    found = np.zeros(len(table), np.bool_)
    rows = np.flatnonzero(table.attributes & TRANSACTIONAL_BIT != 0)
    columns = (table.producer_ids[rows], table.last_offsets[rows], table.attributes[rows] & CONTROL_BIT)
    for row, producer_id, last_offset, control in zip(rows.tolist(), *(c.tolist() for c in columns), strict=True):
        aborted.advance(last_offset)
        if producer_id in aborted.active:
            if not control:
                found[row] = True
            elif _is_abort_marker(source, row, decoding):
                aborted.active.discard(producer_id)
    return found


def _is_abort_marker(source: PartitionChunk, row: int, decoding: Decoding) -> bool:
    batch = source.batch(row)
    try:
        if decoding.verify_crc:
            batch.verify_crc()
        controls = [read_control_record(one) for one in batch.records(max_bytes=decoding.max_inflated_bytes)]
    except KafkaError as error:
        raise source.corrupt(row, error) from None
    return any(isinstance(control, EndTransactionMarker) and not control.committed for control in controls)
