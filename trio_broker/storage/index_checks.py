"""Whether the indexes of a segment say what its log says.

Each check is given the entries of an index file, then every batch header of the log in order, and says at the end
what is wrong, or None. The rules are those of ``kafka-dump-log --verify-index-only``, with two liberties that older
brokers took: an entry may name the last offset of all batches that were appended at once, from the first of them on,
and a time index entry any offset of its batch.

Source: Kafka's DumpLogSegments, OffsetIndex, TimeIndex and TransactionIndex; docs/formats/indexes.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.records.batch import BatchHeader
from trio_broker.storage.offset_index import OffsetPosition
from trio_broker.storage.time_index import TimestampOffset
from trio_broker.storage.transaction_index import AbortedTransaction


class OffsetIndexCheck:
    """Compares the entries of an offset index with the batches."""

    def __init__(self, entries: Sequence[OffsetPosition]) -> None:
        self._entries = entries
        self._next = 0
        # Whether the batch at the next entry's position was met; its offset is yet to be.
        self._is_met = False
        self._problem: str | None = None

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Take the next batch of the log."""
        if self._problem is not None or self._next == len(self._entries):
            return
        entry = self._entries[self._next]
        if position < entry.position:
            return
        if not self._is_met and position > entry.position:
            self._problem = f"no batch begins at position {entry.position}, to which offset {entry.offset} leads"
        elif header.last_offset > entry.offset or self._reaches_following(position):
            self._problem = f"no batch ends at offset {entry.offset}, which leads to position {entry.position}"
        elif header.last_offset == entry.offset:
            self._next += 1
            self._is_met = False
        else:
            self._is_met = True

    def _reaches_following(self, position: int) -> bool:
        following = self._next + 1
        return following < len(self._entries) and position >= self._entries[following].position

    def problem(self) -> str | None:
        """What is wrong, once all batches were given."""
        if self._problem is None and self._next < len(self._entries):
            entry = self._entries[self._next]
            return f"the log ends before offset {entry.offset} at position {entry.position}"
        return self._problem


class TimeIndexCheck:
    """Compares the entries of a time index with the batches."""

    def __init__(self, entries: Sequence[TimestampOffset], *, is_sealed: bool) -> None:
        self._entries = entries
        self._is_sealed = is_sealed
        self._next = 0
        self._largest_timestamp = -1
        self._problem: str | None = None

    def note_batch(self, header: BatchHeader) -> None:
        """Take the next batch of the log."""
        earlier = self._largest_timestamp
        # What compaction has emptied keeps its times in the header, and none in the index.
        if header.record_count:
            self._largest_timestamp = max(earlier, header.max_timestamp)
        while self._next < len(self._entries) and self._entries[self._next].offset <= header.last_offset:
            entry = self._entries[self._next]
            self._next += 1
            is_of_batch = header.base_offset <= entry.offset and header.max_timestamp == entry.timestamp_ms
            if self._problem is None and (not is_of_batch or entry.timestamp_ms < earlier):
                self._problem = (
                    f"timestamp {entry.timestamp_ms} at offset {entry.offset}: that batch's is {header.max_timestamp},"
                    f" and {earlier} comes before it"
                )

    def problem(self) -> str | None:
        """What is wrong, once all batches were given."""
        if self._problem is not None:
            return self._problem
        if self._next < len(self._entries):
            entry = self._entries[self._next]
            return f"timestamp {entry.timestamp_ms} at offset {entry.offset} is behind the end of the log"
        last = self._entries[-1].timestamp_ms if self._entries else -1
        if self._is_sealed and last < self._largest_timestamp:
            return f"ends at timestamp {last}, the segment's largest is {self._largest_timestamp}"
        return None


class TransactionIndexCheck:
    """Compares the aborted transactions of a segment with the markers in it.

    Of a transaction that began before ``log_start_offset`` the index may know a later beginning: a start that has no
    snapshot reads the log from there on.
    """

    def __init__(self, transactions: Sequence[AbortedTransaction], log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        self._transactions = {(each.producer_id, each.last_offset): each for each in transactions}
        self._abort_markers: set[tuple[int, int]] = set()
        self._problem: str | None = None

    def note_abort_marker(self, producer_id: int, offset: int, transaction: AbortedTransaction | None) -> None:
        """Take an abort marker; ``transaction`` is the one that it ends, None where no batch of it is left."""
        key = (producer_id, offset)
        self._abort_markers.add(key)
        if transaction is None or self._problem is not None:
            return
        indexed = self._transactions.get(key)
        if indexed is None:
            self._problem = f"the transaction of producer {producer_id} that was aborted at {offset} is missing"
        elif indexed.first_offset > transaction.first_offset >= self._log_start_offset:
            self._problem = (
                f"the transaction aborted at {offset} began at {transaction.first_offset}, not {indexed.first_offset}"
            )
        elif indexed.last_stable_offset > offset + 1:
            self._problem = f"{indexed}: nothing behind its marker was stable then"

    def problem(self) -> str | None:
        """What is wrong, once all markers were given."""
        if self._problem is None and (strange := self._transactions.keys() - self._abort_markers):
            producer_id, offset = min(strange)
            return f"no transaction of producer {producer_id} was aborted at {offset}"
        return self._problem
