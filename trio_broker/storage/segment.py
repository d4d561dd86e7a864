"""One segment of a log: a file of record batches with its three indexes.

The active segment, the last of its log, is appended to; the others are sealed and never change until they are deleted
or compacted. A segment has three floors: ``SegmentFile`` walks over the batches of its file, ``IndexedSegment`` finds
places in it, and ``Segment`` is appended to and read.

``position_cache`` remembers where recently appended batches begin and where recent reads ended. A consumer goes on
where it stopped, mostly at the tail, so nearly every read finds both its ends there without looking into the file.

A segment is changed by one thread, its owner: in the broker, the event loop. That includes opening its files, reading
its indexes and remembering positions. A worker thread reads with a ``private_copy``.

Source: Kafka's LogSegment; docs/formats/segment.md.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import PurePath

import attrs

from kafka_wire.limits import MAX_OFFSET_DELTA
from kafka_wire.records.batch import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk, FileRegion
from trio_broker.storage import file_names
from trio_broker.storage.batch_scan import SCAN_BYTES, SPAN, SPAN_BYTES, BatchSpan
from trio_broker.storage.indexed_segment import MAX_CACHED_POSITIONS, IndexedSegment
from trio_broker.storage.time_index import TimestampOffset

REWRITE_BYTES = 1024 * 1024
"""Bytes that are read and written again at a time after a crash: few system calls, and little memory."""


@attrs.define
class FetchedRecords:
    """Whole batches for a reader who asked for ``first_offset``; empty when there is nothing to give.

    ``next_offset`` is where a reader goes on, and no record of these batches lies at it or behind it. ``size`` is the
    bytes in ``records``. ``row`` are the segments of the log as they were, which know of the aborted transactions in
    these batches.
    """

    first_offset: int
    records: FileRegion | bytes
    next_offset: int
    size: int = 0
    row: Sequence[Segment] = ()


@attrs.frozen
class ReadBoundary:
    """Where a batch ends in the file, and the first offset behind it."""

    position: int
    next_offset: int


class Segment(IndexedSegment):
    """A segment that is appended to and read; ``created_ms`` is when it was made, for one without timestamps."""

    __slots__ = ("created_ms", "roll_jitter_ms")

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        created_ms: int,
        file_suffix: str = "",
    ) -> None:
        super().__init__(disk, directory, base_offset, config, size=size, file_suffix=file_suffix)
        # The age of a segment without record timestamps counts from here; after a start, from the start.
        self.created_ms = created_ms
        self.roll_jitter_ms = _roll_jitter_ms(config, f"{directory.name}/{base_offset}")

    @classmethod
    def create(
        cls, disk: Disk, directory: PurePath, base_offset: int, config: LogConfig, now_ms: int, *, file_suffix: str = ""
    ) -> Segment:
        """Make a new empty segment, with empty index files.

        With a ``file_suffix`` its files are those of a compaction under way, and the indexes come when it is sealed.

        Raises:
            OSError: a file cannot be made, for instance because the disk is full; none is left.
        """
        segment = cls(disk, directory, base_offset, config, size=0, created_ms=now_ms, file_suffix=file_suffix)
        try:
            segment._create_files()
        except OSError:
            # The log goes on without it, beyond its offset: a start would take what comes then for damage.
            for suffix in file_names.SEGMENT_SUFFIXES:
                disk.unlink(segment.path(suffix), missing_ok=True)
            raise
        return segment

    def _create_files(self) -> None:
        # A file left over under this name belongs to an offset that was never acknowledged.
        self.file.create()
        # A compacted segment is complete once written: nothing is ever appended to it that would use the space.
        if self.config.preallocate and not self.file_suffix:
            self.file.preallocate(self.config.segment_size)
        self.clear_indexes()
        if not self.file_suffix:
            self.offset_index.flush()
            self.time_index.flush()

    # --- Appending ---

    def reason_to_roll(self, size: int, last_offset: int, largest_timestamp: int, now_ms: int) -> str | None:
        """Return why batches of ``size`` bytes must go to a new segment, None when they fit here."""
        config = self.config
        if self.size > config.segment_size - size:
            return f"{self.size} bytes"
        # An empty segment never rolls for its age: its successor would have the same name.
        if self.size:
            # By message time where there is one, so that replaying a log rolls where the log did.
            first = self.first_timestamp if self._first_timestamp is None else self._first_timestamp
            age_ms = largest_timestamp - first if first >= 0 else now_ms - self.created_ms
            if age_ms > config.max_segment_ms - self.roll_jitter_ms:
                return f"older than {config.max_segment_ms} ms"
        if self._is_index_full is None:
            self._is_index_full = self.offset_index.is_full or self.time_index.is_full
        if self._is_index_full:
            return "index full"
        if last_offset - self.base_offset > MAX_OFFSET_DELTA:
            return "offsets would not fit the index"
        return None

    def append(self, batches: Sequence[BatchHeader], data: bytes | bytearray | memoryview) -> None:
        """Write ``data``, which is ``batches`` back to back with their final offsets, and index them.

        Raises:
            OSError: nothing was written.
            StorageFailed: the file is in an unknown state.
        """
        position = self.size
        self.file.append(data, position)
        for header in batches:
            self.note_batch(header, position)
            position += LOG_OVERHEAD_BYTES + header.batch_length
        assert position == self.size + len(data), f"{len(batches)} batches do not fill {len(data)} bytes"
        # In this order, which concurrent readers rely on: bytes, ``next_offset``, ``size``. A reader that sees the new
        # size then also sees the offset that goes with it.
        last = batches[-1]
        self.next_offset = last.base_offset + last.last_offset_delta + 1
        self.size = position
        # A compacted segment gets its index files when it is complete.
        if self._has_new_entries and not self.file_suffix:
            self.write_index_entries()

    # --- Reading ---

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, minimum_one: bool, nowait: bool
    ) -> FetchedRecords | None:
        """Return whole batches from the one that holds ``offset``, or the next one, below ``end_offset``.

        None when this segment has no batch that ends at ``offset`` or behind it. Nothing when the first batch is larger
        than ``max_bytes`` and ``minimum_one`` is false.
        """
        size = self.size  # before next_offset; see the head of this file
        # As ``_position_of`` does first: nearly every read finds its place here, without another call.
        start = self.position_cache.get(offset)
        if (start is None or start >= size) and (start := self._position_of(offset, size, nowait)) is None:
            return None
        next_offset = self.next_offset
        end = size
        # Reading up to the end of the segment needs no search for where the read ends: the usual case of a consumer at
        # the tail, whose high watermark is the log end.
        if end_offset < next_offset:
            next_offset = end_offset
            end_position = self._position_of(end_offset, size, nowait)
            end = size if end_position is None else end_position
        if self._damage:
            if start in self._damage:
                raise CorruptRecordBatch(f"{self.file.path}: offset {offset} is damaged")
            # A read ends before it. The next one begins there, and is refused. Where the length of a batch is damaged,
            # what was taken for the next one lies within a good batch: so this only limits the read.
            at = min((position for position in self._damage if start < position < end), default=None)
            if at is not None:
                max_bytes = min(max_bytes, at - start)
        if end - start > max_bytes:
            if max_bytes <= SCAN_BYTES:
                fetched = self._read_few(offset, start, end, max_bytes, minimum_one, nowait)
                if fetched is not None:
                    return fetched
            boundary = self._last_boundary(start, start + max_bytes, end, minimum_one, nowait)
            end, next_offset = boundary.position, boundary.next_offset
        if end <= start:
            return FetchedRecords(offset, b"", offset)
        return FetchedRecords(offset, self.file.region(start, end - start), next_offset, end - start)

    def _read_few(
        self, offset: int, start: int, end: int, max_bytes: int, minimum_one: bool, nowait: bool
    ) -> FetchedRecords | None:
        """Read what lies between ``start`` and ``end`` up to ``max_bytes`` with one look into the file; None where that
        does not show all of it, or shows damage."""
        chunk = self.file.read(min(SCAN_BYTES, end - start), start, nowait=nowait)
        at, next_offset, log_end = 0, self.base_offset, self.next_offset
        while at + SPAN_BYTES <= len(chunk):
            base_offset, length, magic, last_delta = SPAN.unpack_from(chunk, at)
            size = length + LOG_OVERHEAD_BYTES
            last_offset = base_offset + last_delta
            if magic != MAGIC or size < BATCH_HEADER_BYTES or not next_offset <= base_offset <= last_offset < log_end:
                return None
            if at + size > max_bytes and (at or not minimum_one):
                self._remember_position(next_offset if at else offset, start + at)
                return FetchedRecords(offset, bytes(chunk[:at]), next_offset if at else offset, at)
            at, next_offset = at + size, last_offset + 1
        return None

    def _remember_position(self, offset: int, position: int) -> None:
        """Where a read has ended is where the same consumer's next one begins."""
        if len(self.position_cache) >= MAX_CACHED_POSITIONS:
            self.position_cache = {}
        self.position_cache[offset] = position

    def _position_of(self, offset: int, size: int, nowait: bool) -> int | None:
        """Return the position of the first batch whose last offset is at least ``offset``; None when there is none."""
        position = self.position_cache.get(offset)
        # ``append`` fills the cache before it moves ``size``: a position beyond the size taken may not be read yet.
        if position is not None and position < size:
            return position
        span = self.find(offset, size, nowait=nowait)
        if span is None:
            return None
        # Several consumers read the same records, one after the other.
        self._remember_position(offset, span.position)
        return span.position

    def _last_boundary(self, start: int, limit: int, end: int, minimum_one: bool, nowait: bool) -> ReadBoundary:
        """Return where the last batch ends that ends at or before ``limit``; the first one if it must come.

        ``end``, where a batch ends as well, lies behind ``limit``.
        """
        # The other column of the index leads near the limit, so that only the batches around it are looked at.
        position = max(start, self.indexed_position(lambda index: index.number_at(limit), nowait=nowait))
        next_offset = None
        with contextlib.suppress(CorruptRecordBatch):
            for span in self._spans(position, end, nowait):
                # Behind damage that was not known before: the read ends there.
                if span.end > limit or span.position != position:
                    if span.position != position and next_offset is None:
                        break
                    boundary = ReadBoundary(position, span.base_offset if next_offset is None else next_offset)
                    if position == start and minimum_one:
                        boundary = ReadBoundary(span.end, span.last_offset + 1)
                    self._remember_position(boundary.next_offset, boundary.position)
                    return boundary
                position, next_offset = span.end, span.last_offset + 1
        # Nothing good follows, or nothing good is there.
        if next_offset is not None:
            return ReadBoundary(position, next_offset)
        raise CorruptRecordBatch(f"{self.file.path}: no batch crosses position {limit}, though more follow")

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at ``start_offset`` or behind it that is at least as young, None when none is."""
        first = self.find(max(self._indexed_timestamp(timestamp_ms).offset, start_offset))
        if first is None:
            return None
        for located in self.headers(first.position):
            header = located.header
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for record in self.batch_at(located.position, header).records():
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset)
        return None

    # --- The end of a segment ---

    def cut(self, offset: int, span: BatchSpan | None) -> None:
        """Let the segment end at ``offset``, before the batch at ``span`` that holds it, if there is one. The file is
        still to be cut to ``size``."""
        if span is not None:
            # The indexes go first: an entry past the end of the log would send a reader into bytes of a later batch.
            self.offset_index.truncate_to(span.base_offset)
            self.time_index.truncate_to(span.base_offset)
            self.transaction_index.truncate_to(offset)
            self._is_index_full = None
            self.size = span.position
            self.position_cache = {}
            self._damage = {}
            # For the largest timestamp, which may have been in what was cut. The result is known: the cut is at the end
            # of a batch.
            self.load_tail()
        self.next_offset = offset

    def rewrite(self, offset: int) -> None:
        """Write the batches from ``offset`` on over themselves, so that the next sync brings them to the disk."""
        span = self.find(offset)
        position = self.size if span is None else span.position
        while position < self.size:
            chunk = self.file.read(min(REWRITE_BYTES, self.size - position), position)
            self.file.overwrite(chunk, position)
            position += len(chunk)

    def sync(self) -> None:
        """Wait until the batches written before the call are on the disk."""
        self.file.sync()

    def rename(self, file_suffix: str) -> None:
        """Give the files another passing suffix, or none: the log first, without which the others count for nothing.

        Raises:
            OSError: a file could not be renamed; those before it have been.
        """
        before = [self.path(suffix) for suffix in file_names.SEGMENT_SUFFIXES]
        self.file_suffix = file_suffix
        for old, suffix in zip(before, file_names.SEGMENT_SUFFIXES, strict=True):
            if suffix != file_names.TRANSACTION_INDEX_SUFFIX or self.disk.exists(old):
                self.disk.rename(old, self.path(suffix))
        self.file.path = self.path(file_names.LOG_SUFFIX)
        self.offset_index.path = self.path(file_names.INDEX_SUFFIX)
        self.time_index.path = self.path(file_names.TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(file_names.TRANSACTION_INDEX_SUFFIX)

    def mark_deleted(self) -> list[PurePath]:
        """Rename the files to ``.deleted`` and return the new names.

        An open log file stays open until the last reader under way has let go of this segment; a closed one cannot be
        opened again, and trying to raises ``FileNotFoundError``.
        """
        deleted = []
        for suffix in file_names.SEGMENT_SUFFIXES:
            path = self.path(suffix)
            target = path.with_name(path.name + file_names.DELETED_SUFFIX)
            try:
                self.disk.rename(path, target)
            # A transaction index appears with its first entry; an interrupted deletion may have renamed some before.
            except FileNotFoundError:
                continue
            deleted.append(target)
        return deleted


def _roll_jitter_ms(config: LogConfig, name: str) -> int:
    """Spread the rolls of many logs that were created together, by a hash of each segment's name.

    Kafka draws a number; a hash spreads as well, and is the same after a start.
    """
    limit = min(config.segment_jitter_ms, config.segment_ms)
    if limit <= 0:
        return 0
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % limit
