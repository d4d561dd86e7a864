"""One round of compaction over one log: of each key only the newest record stays.

First the dirty part is read and the newest offset of every key in it noted (``index``). Then all segments up to the end
of what was noted are written anew, clean ones too, since their records may have been superseded (``rewrite``), group by
group, oldest first; ``segment_swap`` puts each result into its place before the next group is begun. A record stays if

* it lies behind what was noted (the map was full), or
* it is at least as new as what was noted for its key, and has a value, or is a tombstone whose time is not yet over.

A tombstone's time begins with the first round that writes it anew: that round puts the moment of its end, the delete
horizon, into the batch, and by then every older record of the key is gone from the segments before it. The same goes
for transaction markers. Records without a key are dropped. Offsets never change.

A batch whose records are all gone goes too, with two exceptions: the one with the last offset that an active producer
wrote, for its sequence must be found after a restart; and the last one of the round, so that the end of what was
compacted is still to be seen.

Nothing here trusts what it reads: the checksum of every batch is verified, offsets must grow, batches must fill the
file. A segment that does not pass raises, and then the old ones stay as they are. Nothing is written to them ever.

Both steps are iterators. Each ``next`` does a little and returns how many bytes were read and written, so that the
caller may slow them down or stop; they may be run in any thread, one at a time. The log may be appended
to meanwhile.

Source: Kafka's Cleaner.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import attrs

from kafka_wire.records import compaction
from kafka_wire.records.batch import BatchHeader, RecordBatch, read_batch_header
from kafka_wire.records.compression import decompression_limit
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.config_key import LONG_MAX
from trio_broker.storage import batch_scan, file_names
from trio_broker.storage.batch_scan import LocatedBatch
from trio_broker.storage.cleaned_transactions import CleanedTransactions
from trio_broker.storage.compaction_plan import CompactionRange, group_segments, sealed_from
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.log_reader import ReadableLog
from trio_broker.storage.offset_map import OffsetMap
from trio_broker.storage.segment import Segment

logger = logging.getLogger(__name__)


@attrs.frozen
class LastRecord:
    """The last thing an active producer has in the log: a record at ``data_offset``, or only a marker of its epoch."""

    data_offset: int | None
    producer_epoch: int


@attrs.define
class CleaningStatistics:
    """What a round has done so far. Bytes are those of batches; the dirty part is read twice."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0


@attrs.define
class _Output:
    """Batches on their way into a cleaned segment."""

    headers: list[BatchHeader] = attrs.field(factory=list)
    chunks: list[bytes] = attrs.field(factory=list)
    size: int = 0

    def add(self, header: BatchHeader, data: bytes | memoryview) -> None:
        self.headers.append(header)
        self.chunks.append(bytes(data))  # the buffer it was read into is used again
        self.size += len(data)


class Cleaning:
    """A round over ``compacted.log``; ``offset_map`` is empty and the caller's to close."""

    def __init__(
        self, compacted: CompactionRange, offset_map: OffsetMap, *, now_ms: int, chunk_bytes: int = 1 << 20
    ) -> None:
        self.log: ReadableLog = compacted.log
        self.compacted = compacted
        self.statistics = CleaningStatistics()
        self.cleaned: Segment | None = None
        """The segment being written, or written and not yet swapped in."""
        self._map = offset_map
        self._now_ms = now_ms
        self._chunk_bytes = chunk_bytes
        self._delete_horizon_ms = min(now_ms + self.log.config.delete_retention_ms, LONG_MAX)
        self._transactions = CleanedTransactions()
        self._row = tuple(segment for segment in self.log.segments if segment.base_offset < compacted.end_offset)

    @property
    def end_offset(self) -> int:
        """Where the part ends that is compacted once all groups are swapped in; known after ``index``."""
        return self._map.latest_offset + 1

    # --- What is newest ---

    def index(self) -> Iterator[int]:
        """Note the newest offset of every key in the dirty part, as far as the map has room.

        Raises:
            CorruptRecordBatch: a segment is damaged.
            OSError: the disk refused.
        """
        start, end = self.compacted.first_dirty_offset, self.compacted.end_offset
        dirty = [segment for segment in sealed_from(self.log.segments, start) if segment.base_offset < end]
        transactions = CleanedTransactions()
        transactions.expect(self.log.aborted_transactions(start, end))
        for segment in dirty:
            position = segment.indexed_position(lambda index: index.number_for(start))
            self.log.evict_if_idle(segment)
            for located in self._batches(segment, position):
                if not self._note_keys(RecordBatch(located.header, located.buffer), start, transactions):
                    return
                yield located.header.size_bytes
            # A gap at the end of the segment is as good as read.
            self._map.advance_to(max(self._map.latest_offset, segment.next_offset - 1))

    def _note_keys(self, batch: RecordBatch, start: int, transactions: CleanedTransactions) -> bool:
        """Put one batch into the map; return whether there was room for it."""
        header = batch.header
        discarded = transactions.may_discard(batch)
        if not header.is_control and not discarded:
            columns = self._columns(batch)
            base = header.base_offset
            offsets = [base + delta for delta in columns.offset_deltas]
            keys = columns.keys
            # A batch may straddle the start; a key of None is not noted.
            if base < start:
                keys = [key if offset >= start else None for key, offset in zip(keys, offsets, strict=True)]
            if not self._map.put_all(keys, offsets):
                return False
        if header.last_offset >= start:
            self._map.advance_to(header.last_offset)
        return True

    # --- What stays ---

    def groups(self) -> list[list[Segment]]:
        """Return the segments to be written anew, those that become one together."""
        end = self.end_offset
        segments = [segment for segment in self._row if segment.base_offset < end]
        return group_segments(segments, self.log.config, self.compacted.end_offset)

    def rewrite(self, group: Sequence[Segment]) -> Iterator[int]:
        """Write what stays of ``group`` into ``cleaned``, whose files end in ``.cleaned``. Groups come in log order.

        Raises:
            CorruptRecordBatch, OSError: as ``index``; ``discard`` removes what was written.
        """
        log = self.log
        cleaned = self.cleaned = Segment.create(
            log.disk,
            log.directory,
            group[0].base_offset,
            log.config,
            group[0].created_ms,
            file_suffix=file_names.CLEANED_SUFFIX,
        )
        producers = last_records_of_producers(log)
        output = _Output()
        for segment in group:
            self._transactions.expect(log.aborted_transactions(segment.base_offset, segment.next_offset))
            for located in self._batches(segment, 0):
                self._filter(RecordBatch(located.header, located.buffer), producers, output)
                self._index_aborted(cleaned)
                written = self._flush(output, cleaned) if output.size >= self._chunk_bytes else 0
                yield located.header.size_bytes + written
        yield self._flush(output, cleaned)
        cleaned.next_offset = group[-1].next_offset

    def pop_cleaned(self) -> Segment:
        """Return the segment that ``rewrite`` has finished; it is the caller's now."""
        cleaned, self.cleaned = self.cleaned, None
        assert cleaned is not None, "nothing was rewritten"
        return cleaned

    def discard(self) -> None:
        """Remove what was written and not taken."""
        if self.cleaned is not None:
            remove_files(self.cleaned)
            self.cleaned = None

    def _filter(self, batch: RecordBatch, producers: Mapping[int, LastRecord], output: _Output) -> None:
        """Put what stays of one batch into ``output``."""
        header, statistics = batch.header, self.statistics
        statistics.records_read += header.record_count
        may_discard = self._transactions.may_discard(batch)
        drops_records = may_discard and (not header.is_control or self._is_past_horizon(header))
        must_stay = header.next_offset == self.compacted.end_offset or _is_last_of_producer(header, producers)
        if drops_records and not must_stay:
            return
        columns = self._columns(batch)
        kept: Sequence[int] = range(len(columns))
        if drops_records:
            kept = ()
        elif not header.is_control:
            kept = self._kept(header, columns)
        statistics.records_kept += len(kept)
        if not kept:
            if must_stay:
                emptied = compaction.empty_batch(header)
                output.add(read_batch_header(emptied), emptied)
            return
        has_tombstones = any(columns.tombstones[index] for index in kept)
        begins_horizon = not header.has_delete_horizon and (has_tombstones or (may_discard and header.is_control))
        if len(kept) == len(columns) and not begins_horizon:
            output.add(header, batch.buffer)
            return
        # A batch with a delete horizon stores it in place of its base timestamp (KIP-534).
        horizon = header.base_timestamp if header.has_delete_horizon else None
        rewritten = compaction.rewrite_batch(
            batch, columns, kept, delete_horizon_ms=self._delete_horizon_ms if begins_horizon else horizon
        )
        output.add(read_batch_header(rewritten), rewritten)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms

    def _kept(self, header: BatchHeader, columns: compaction.RecordColumns) -> list[int]:
        base, noted = header.base_offset, self._map.latest_offset
        if base > noted:
            return list(range(len(columns)))
        drops_tombstones = self._is_past_horizon(header)
        newest_offsets = self._map.newest_offsets(columns.keys)
        kept = [
            index
            for index, (delta, newest, is_tombstone) in enumerate(
                zip(columns.offset_deltas, newest_offsets, columns.tombstones, strict=True)
            )
            if base + delta > noted or (base + delta >= newest and not (is_tombstone and drops_tombstones))
        ]
        self.statistics.records_without_key += columns.keys.count(None)
        return kept

    def _index_aborted(self, cleaned: Segment) -> None:
        retained = self._transactions.retained
        for transaction in retained:
            cleaned.transaction_index.append(transaction)
        retained.clear()

    def _flush(self, output: _Output, cleaned: Segment) -> int:
        """Write ``output`` and empty it; return how much that was."""
        size = output.size
        if size:
            cleaned.append(output.headers, b"".join(output.chunks))
            output.headers.clear()
            output.chunks.clear()
            output.size = 0
            self.statistics.bytes_written += size
        return size

    # --- Reading ---

    def _columns(self, batch: RecordBatch) -> compaction.RecordColumns:
        # A batch may be larger than the topic allows by now.
        limit = decompression_limit(max(self.log.config.max_message_bytes, batch.header.size_bytes))
        return compaction.read_columns(batch, max_bytes=limit)

    def _batches(self, segment: Segment, position: int) -> Iterator[LocatedBatch]:
        """Yield the batches of ``segment`` from ``position`` to its end, each of them checked.

        With a descriptor of its own: compaction reads everything, and must not make cold segments warm.
        """
        path = segment.path(file_names.LOG_SUFFIX)
        end, next_offset = position, segment.base_offset
        for located in batch_scan.whole_batches(
            LogFile(segment.disk, path, read_only=True), position, segment.size, chunk_bytes=self._chunk_bytes
        ):
            header = located.header
            RecordBatch(header, located.buffer).verify_crc()
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise CorruptRecordBatch(f"{path}: batch at {header.base_offset} behind offset {next_offset}")
            if header.last_offset >= segment.next_offset:
                raise CorruptRecordBatch(f"{path}: batch ends at {header.last_offset}, the segment before that")
            next_offset, end = header.next_offset, located.position + header.size_bytes
            self.statistics.bytes_read += header.size_bytes
            yield located
        if end != segment.size:
            raise CorruptRecordBatch(f"{path}: no whole batch at position {end}, the segment ends at {segment.size}")


def last_records_of_producers(log: ReadableLog) -> dict[int, LastRecord]:
    """Return what each active producer wrote last. Safe in any thread: what changes meanwhile lies behind the round."""
    last_records = {}
    for producer_id, entry in list(log.producers.producers.items()):
        epoch = entry.producer_epoch
        last = entry.batches[-1:]
        last_records[producer_id] = LastRecord(last[0].last_offset if last else None, epoch)
    return last_records


def _is_last_of_producer(header: BatchHeader, producers: Mapping[int, LastRecord]) -> bool:
    last = producers.get(header.producer_id) if header.has_producer_id else None
    if last is None:
        return False
    if last.data_offset is not None:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.producer_epoch


def remove_files(segment: Segment) -> None:
    """Remove the files of a segment that never took its place; a crash in between leaves nothing that counts.

    The log goes last: beside a ``.cleaned`` log, ``interrupted_swaps`` takes nothing of the same base for committed.
    """
    for suffix in reversed(file_names.SEGMENT_SUFFIXES):
        segment.disk.unlink(segment.path(suffix), missing_ok=True)
