"""What compaction knows of transactions while it walks through a log from front to back.

Records of an aborted transaction never happened, so they go at once, whatever their keys. Its marker must stay as long
as any batch of it does, and so must its entry in the transaction index: without them a reader would take the records
for committed ones. The same goes for the marker of a commit, which ends the reader's waiting. A marker whose
transaction has nothing left may go; the caller gives readers that are on their way some time first.

Which transactions were aborted is known before their markers are met: nothing beyond the last stable offset is
compacted, so the indexes hold all of them.

Source: Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import attrs

from kafka_wire.records.batch import BatchHeader, RecordBatch
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.transaction_index import AbortedTransaction


@attrs.define
class _OngoingAbort:
    """An aborted transaction that has begun and whose marker lies ahead."""

    transaction: AbortedTransaction
    has_batches: bool = False


class CleanedTransactions:
    """Fed with every batch in log order. ``retained`` collects the aborted transactions that still have batches."""

    def __init__(self) -> None:
        self.retained: list[AbortedTransaction] = []
        # By first offset; the second number only keeps transactions with the same one from being compared.
        self._ahead: list[tuple[int, int, AbortedTransaction]] = []
        self._added = 0
        self._aborts: dict[int, _OngoingAbort] = {}
        self._committing: set[int] = set()

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that overlap what comes next; one that was added before does no harm."""
        for transaction in transactions:
            heapq.heappush(self._ahead, (transaction.first_offset, self._added, transaction))
            self._added += 1

    def may_discard(self, batch: RecordBatch) -> bool:
        """Take note of a batch; return whether its transaction lets it go.

        For records: their transaction was aborted. For a marker: no batch of its transaction was met.

        Raises:
            CorruptRecordBatch: a control batch cannot be read.
        """
        header = batch.header
        self._begin_up_to(header.last_offset)
        if header.is_control:
            return self._may_discard_marker(batch)
        return header.is_transactional and self._is_aborted(header)

    def _begin_up_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            transaction = heapq.heappop(self._ahead)[2]
            self._aborts.setdefault(transaction.producer_id, _OngoingAbort(transaction))

    def _is_aborted(self, header: BatchHeader) -> bool:
        ongoing = self._aborts.get(header.producer_id)
        if ongoing is None:
            self._committing.add(header.producer_id)
            return False
        ongoing.has_batches = True
        return True

    def _may_discard_marker(self, batch: RecordBatch) -> bool:
        if not batch.header.record_count:
            return True  # emptied before, and kept for its producer's sake
        marker = read_transaction_marker(batch)
        if marker is None:
            return False
        if not marker.aborted:
            had_batches = marker.producer_id in self._committing
            self._committing.discard(marker.producer_id)
            return not had_batches
        ongoing = self._aborts.pop(marker.producer_id, None)
        if ongoing is None or not ongoing.has_batches:
            return True
        self.retained.append(ongoing.transaction)
        return False
