"""Whether the aborted transactions in the index of a segment are those of its batches.

An entry is compared with the marker that it names and with the first batch of its transaction. That no entry is
missing, and that no batch of the transaction comes before the first, only a walk over all batches could tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.storage.batch_headers import header_at
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.segment import Segment
from trio_broker.storage.transaction_index import AbortedTransaction


def check(segment: Segment, segments: Sequence[Segment]) -> None:
    """Compare the transaction index of one of the ``segments`` of a log with them.

    Raises:
        CorruptIndex: the file cannot be read, or an entry contradicts the log.
    """
    for transaction in segment.transaction_index.transactions:
        try:
            problem = _problem_with(transaction, segment, segments)
        except CorruptRecordBatch:
            # What damages the log proves nothing against its index.
            continue
        if problem is not None:
            raise CorruptIndex(f"{segment.transaction_index.path}: {transaction}: {problem}")


def _problem_with(transaction: AbortedTransaction, segment: Segment, segments: Sequence[Segment]) -> str | None:
    first, last = transaction.first_offset, transaction.last_offset
    if first < 0 or transaction.last_stable_offset > last + 1:
        return "its offsets cannot be right"
    marker = header_at([segment], last)
    if marker is None:
        return "its marker is not there"
    # Otherwise compaction has taken it.
    holds_marker = marker.base_offset <= last
    if holds_marker and (marker.producer_id != transaction.producer_id or not marker.is_control):
        return "another batch is at the place of its marker"
    beginning = header_at(segments, first) if first >= segments[0].base_offset else None
    if beginning is not None and beginning.base_offset <= first:
        is_its_own = beginning.producer_id == transaction.producer_id and beginning.is_transactional
        if beginning.base_offset != first or not is_its_own or beginning.is_control:
            return "another batch is at the place of its first"
    return None
