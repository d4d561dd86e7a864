"""One segment of a log: a file of record batches with its three indexes.

The active segment, the last of its log, is appended to; the others are sealed and never change until they are deleted
or compacted. A segment keeps its descriptor and indexes in memory while it is cached; ``evict`` releases both, so that
a log of a thousand segments costs what its active one costs.

Compaction gives the name of a sealed segment to another one. ``hold_open`` makes an object of this class
independent of names before that: descriptor and indexes stay in memory, and readers under way keep what they had.

``position_cache`` remembers where recently appended batches begin and where recent reads ended. A consumer goes on
where it stopped, mostly at the tail, so nearly every read finds both its ends there without looking into the file.

A damaged batch in the log costs no other: every walk over batches goes on behind it with the next one that is whole,
and a read of its offsets is refused (docs/decisions/0049).

A segment is changed by one thread, its owner: in the broker, the event loop. That includes opening its files, reading
its indexes and remembering positions. A worker thread reads with a ``private_copy``, and the owner then takes over what
it has found out. An append first writes the bytes, then moves ``next_offset``, then ``size``, and a copy takes ``size``
first: so what is copied meanwhile is whole.

Source: Kafka's LogSegment; docs/formats/segment.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from threading import get_ident  # noqa: TID251 - starts no thread

import attrs

from kafka_wire.records.batch import LOG_OVERHEAD_BYTES, BatchHeader, RecordBatch
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk, FileRegion, sync_file
from trio_broker.storage import batch_checks, batch_scan, file_names
from trio_broker.storage.batch_checks import MAX_RELATIVE_OFFSET, BatchPlace
from trio_broker.storage.batch_scan import BatchSpan, LocatedHeader
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.offset_index import OffsetIndex, OffsetPosition
from trio_broker.storage.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from trio_broker.storage.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)

MAX_CACHED_POSITIONS = 128
"""Batch positions remembered per segment, about 100 bytes each: the tail, and some consumers' places."""

CHECKED_BATCHES = 1000
"""Batches behind the last entry of a time index that are asked whether entries are missing. A millisecond; all of them
would be a whole segment where one record came from the future, or all have the same time."""


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


REWRITE_BYTES = 1024 * 1024
"""Bytes that are read and written again at a time after a crash: few system calls, and little memory."""


@attrs.frozen
class ReadBoundary:
    """Where a batch ends in the file, and the first offset behind it."""

    position: int
    next_offset: int


class Segment:
    """A ``.log`` file and its indexes. ``size`` is the length of its valid part, ``next_offset`` where it ends."""

    __slots__ = (
        "_damage",
        "_first_timestamp",
        "_has_new_entries",
        "_is_index_full",
        "_is_private",
        "_knows_timestamps",
        "_last_index_position",
        "_offset_index",
        "_time_index",
        "_was_rebuilt",
        "base_offset",
        "config",
        "created_ms",
        "directory",
        "disk",
        "file",
        "file_suffix",
        "is_held_open",
        "largest_timestamp",
        "largest_timestamp_offset",
        "next_offset",
        "owner_thread",
        "position_cache",
        "roll_jitter_ms",
        "size",
        "transaction_index",
    )

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
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file_suffix = file_suffix
        self.config = config
        # The age of a segment without record timestamps counts from here; after a start, from the start.
        self.created_ms = created_ms
        # Bytes of whole batches; with ``preallocate`` the file is longer. Readers go no further than this.
        self.size = size
        self.next_offset = base_offset
        self.file = LogFile(disk, self.path(file_names.LOG_SUFFIX))
        self.transaction_index = TransactionIndex(disk, self.path(file_names.TRANSACTION_INDEX_SUFFIX))
        # Valid once ``_knows_timestamps``: a cold segment has not read its time index.
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_timestamp_offset = base_offset
        self.roll_jitter_ms = _roll_jitter_ms(config, f"{directory.name}/{base_offset}")
        # Offset to the position of the batch that begins there, or of the next one behind a gap.
        self.position_cache: dict[int, int] = {}
        # Set while a swap moves file names: ``evict`` must then keep what could not be found again by name.
        self.is_held_open = False
        # The thread whose segment this is; None while it is handed on, and for a private copy.
        self.owner_thread: int | None = None
        self._is_private = False
        # Whether this private copy has made its indexes anew.
        self._was_rebuilt = False
        # None while not cached.
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        # None until asked for: finding it reads the file.
        self._first_timestamp: int | None = None
        # Position of the batch that got the last index entry; the next one is due an interval behind it.
        self._last_index_position = 0
        self._knows_timestamps = False
        self._has_new_entries = False
        # None where it has to be looked up: the entries have changed since. Each append asks, and few bring an entry.
        self._is_index_full: bool | None = None
        # Where damage was met, and the first offset that it may have taken. Logged once.
        self._damage: dict[int, int] = {}

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

    def path(self, suffix: str) -> PurePath:
        """Return the path of the file of this segment with ``suffix``."""
        return file_names.segment_path(self.directory, self.base_offset, suffix + self.file_suffix)

    def __repr__(self) -> str:
        return f"<Segment {self.file.path.name}: {self.size} bytes up to {self.next_offset}>"

    # --- Indexes ---

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, read from its file when it is not cached, and rebuilt when the file is no good."""
        index = self._offset_index
        return self._load_offset_index() if index is None else index

    def _load_offset_index(self) -> OffsetIndex:
        self.assert_owner()
        path = self.path(file_names.INDEX_SUFFIX)
        try:
            limit = self.config.segment_index_bytes
            index: OffsetIndex | None = OffsetIndex.load(self.disk, path, self.base_offset, limit, self.size)
        except CorruptIndex as error:
            index = self.rebuild_indexes(str(error))._offset_index
        assert index is not None
        self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read from its file when it is not cached, and rebuilt when the file is no good."""
        index = self._time_index
        return self._load_time_index() if index is None else index

    def _load_time_index(self) -> TimeIndex:
        self.assert_owner()
        path = self.path(file_names.TIME_INDEX_SUFFIX)
        try:
            limit = self.config.segment_index_bytes
            index: TimeIndex | None = self._checked(TimeIndex.load(self.disk, path, self.base_offset, limit))
        except CorruptIndex as error:
            index = self.rebuild_indexes(str(error))._time_index
        assert index is not None
        self._time_index = index
        return index

    def _checked(self, index: TimeIndex) -> TimeIndex:
        """Return a time index whose last entry the log confirms: retention goes by it, and lookups skip segments by it.

        Raises:
            CorruptIndex: the batch that it names is of another time, or one behind it is later.
        """
        last = index.last_entry
        try:
            position = self._position_of_time(last) if len(index) else 0
            if position is None:
                raise CorruptIndex(f"{index.path}: {last} is of no batch")
            tail = self.indexed_position(lambda offsets: offsets.last_number)
            # In a log whose timestamps grow, the batch behind the last entry tells whether entries are missing.
            behind = itertools.islice(self.headers(position), CHECKED_BATCHES)
            for located in itertools.chain(behind, self.headers(tail)):
                if located.header.max_timestamp > last.timestamp_ms:
                    raise CorruptIndex(f"{index.path}: ends at {last}, before {located.header.max_timestamp}")
        except CorruptRecordBatch:
            # What damages the log proves nothing against its index.
            pass
        return index

    def _position_of_time(self, entry: TimestampOffset) -> int | None:
        """Return where the batch lies that holds the offset of a time index entry, None if it is of another time."""
        span = self.find(entry.offset)
        if span is None or span.base_offset > entry.offset:
            return None
        located = next(batch_scan.headers(self.file, span.position, self.size), None)
        if located is None or located.header.max_timestamp != entry.timestamp_ms:
            return None
        return span.position

    def indexed_position(self, number_of: Callable[[OffsetIndex], int], *, nowait: bool = False) -> int:
        """Return where the entry leads whose number ``number_of`` chooses, 0 for none: a batch begins there.

        An index whose entry leads elsewhere is made anew.

        Raises:
            BlockingIOError: ``nowait``, and it would wait for the disk.
        """
        if nowait and self._offset_index is None:
            raise BlockingIOError(f"{self.file.path}: the index has yet to be read")
        index = self.offset_index
        number = number_of(index)
        if number < 0:
            return 0
        entry = index.entry(number)
        if index.is_from_file and not self._is_true(entry, nowait):
            if nowait:
                raise BlockingIOError(f"{self.file.path}: the index has to be made anew")
            self.rebuild_indexes(f"no batch up to offset {entry.offset} at position {entry.position}")
            return self.indexed_position(number_of)
        return entry.position

    def _is_true(self, entry: OffsetPosition, nowait: bool) -> bool:
        """Whether the batch that the entry names lies where it says."""
        try:
            span = next(batch_scan.spans(self.file, entry.position, self.size, nowait=nowait), None)
        except CorruptRecordBatch:
            return False
        return span is not None and span.last_offset == entry.offset

    def rebuild_indexes(self, reason: str) -> Segment:
        """Make both indexes anew from the batch headers, without a look at checksums, and write them. Blocks.

        Batches that are damaged get no entry.
        """
        self.assert_owner()
        logger.warning("rebuilding the indexes of %s: %s", self.file.path, reason)
        self._start_indexes()
        # Raised where nothing good follows what is damaged.
        with contextlib.suppress(CorruptRecordBatch):
            for located in self.headers():
                self.note_batch(located.header, located.position)
        # The names may be another segment's by now, so writing would replace that one's indexes: memory only.
        if self.is_held_open or self._is_private:
            self.time_index.maybe_append(self.largest_timestamp, self.largest_timestamp_offset)
            self._was_rebuilt = self._is_private
        else:
            self.seal()
            # No later sync comes here: what a power cut left of a time index would be believed.
            self.sync_indexes()
        return self

    def clear_indexes(self) -> None:
        """Begin with empty indexes in memory: the segment is new, or recovery fills them again, and judges anew."""
        self._start_indexes()
        self._damage = {}
        self.transaction_index.clear()

    def _start_indexes(self) -> None:
        limit = self.config.segment_index_bytes
        self._offset_index = OffsetIndex(self.disk, self.path(file_names.INDEX_SUFFIX), self.base_offset, limit)
        self._time_index = TimeIndex(self.disk, self.path(file_names.TIME_INDEX_SUFFIX), self.base_offset, limit)
        self.largest_timestamp, self.largest_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._is_index_full = None
        self._knows_timestamps = True
        self._last_index_position = 0
        self._first_timestamp = None
        self.position_cache = {}

    def write_index_entries(self) -> None:
        """Write new entries of the active segment into its index files. Only tools read them, so errors are logged."""
        self._has_new_entries = False
        try:
            self.offset_index.write_pending()
            self.time_index.write_pending()
        except OSError as error:
            logger.warning("%s: index entries are not written: %s", self.file.path, error)

    def load_tail(self, end_offset: int | None = None) -> bool:
        """Find out where the segment ends: from the last index entry on, header by header.

        Returns whether it ends with a whole batch at the end of the file, and no batch reaches ``end_offset``, where
        that is known; if not, it needs recovery.
        """
        if end_offset is not None:
            # An index that is made anew on the way leaves out what reaches it.
            self.next_offset = end_offset
        self._learn_timestamps()
        # At most about an index interval of bytes lies behind the last entry, so a clean start reads little.
        position = self._last_index_position = self.indexed_position(lambda index: index.last_number)
        next_offset = self.base_offset
        try:
            for located in batch_scan.headers(self.file, position, self.size):
                header = located.header
                if header.base_offset < next_offset or (end_offset is not None and header.last_offset >= end_offset):
                    return False
                next_offset = header.next_offset
                if header.max_timestamp > self.largest_timestamp:
                    self.largest_timestamp, self.largest_timestamp_offset = header.max_timestamp, header.last_offset
                position = located.position + header.size_bytes
        except CorruptRecordBatch:
            return False
        self.next_offset = next_offset
        return position == self.size

    def _learn_timestamps(self) -> None:
        last = self.time_index.last_entry
        self.largest_timestamp, self.largest_timestamp_offset = last.timestamp_ms, last.offset
        self._knows_timestamps = True

    def largest_timestamp_offset_pair(self) -> TimestampOffset:
        """Return the largest timestamp of the segment and the last offset of the batch that has it."""
        if not self._knows_timestamps:
            self._learn_timestamps()
        return TimestampOffset(self.largest_timestamp, self.largest_timestamp_offset)

    def retention_timestamp(self) -> int:
        """Return the time that retention goes by: the largest timestamp, else when the file was last written (ms)."""
        if not self._knows_timestamps:
            self._learn_timestamps()
        largest = self.largest_timestamp
        return largest if largest >= 0 else self.disk.status(self.file.path).modified_ns // 1_000_000

    def evict(self) -> None:
        """Release descriptor and indexes of a sealed segment; the next use opens and reads them again.

        One that is held open keeps them.
        """
        if not self.is_held_open:
            self.file.release()
            self._offset_index = self._time_index = None
            self.position_cache = {}

    def hold_open(self) -> None:
        """Keep descriptor and indexes: from now on nothing of this object depends on the names of its files.

        Raises:
            OSError: a file cannot be opened.
        """
        self.load()
        self.file.keep()
        self.is_held_open = True

    def load(self) -> None:
        """Open and read all that is not cached.

        Raises:
            OSError: a file cannot be opened.
        """
        # Each access loads what is not there.
        _ = self.offset_index, self.time_index, self.transaction_index.transactions
        self.largest_timestamp_offset_pair()
        self.file.opened()

    def stop_holding_open(self) -> None:
        """Undo ``hold_open``: the files have the names that this object knows."""
        self.file.let_go()
        self.is_held_open = False

    # --- Looks of other threads ---

    def assert_owner(self) -> None:
        """No thread changes what another one reads: a worker thread has a ``private_copy``."""
        assert self.owner_thread is None or self.owner_thread == get_ident(), f"{self!r} is changed by a worker thread"

    def private_copy(self) -> Segment:
        """Return a copy for a worker thread: what that opens, reads and finds out stays its own until ``learn``.

        Nothing of the segment's files is written by way of it. Safe in any thread.
        """
        copy = Segment.__new__(Segment)
        # Before ``next_offset``; see the head of this file.
        copy.size = self.size
        for name in _COPIED_SLOTS:
            setattr(copy, name, getattr(self, name))
        copy.file = self.file.private_copy()
        copy.transaction_index = self.transaction_index.private_copy()
        # At once, since the owner may be adding to it.
        copy.position_cache = dict(self.position_cache)
        copy.owner_thread, copy.is_held_open = None, False
        copy._is_private, copy._was_rebuilt = True, False
        return copy

    def learn(self, copy: Segment, *, keep_open: bool) -> None:
        """Take over what a private copy has found out; with ``keep_open`` also what it has opened and read."""
        self.assert_owner()
        if keep_open:
            new = {place: at for place, at in copy.position_cache.items() if place not in self.position_cache}
            if len(self.position_cache) + len(new) <= MAX_CACHED_POSITIONS:
                new = {**self.position_cache, **new}
            self.position_cache = new
        # Of one that was appended to meanwhile, all else is in memory, and newer.
        if copy.size != self.size:
            return
        self._damage = self._damage | copy._damage
        if copy._was_rebuilt:
            _Indexes.of(copy).put_into(self)
            self._write_rebuilt()
        if not self._knows_timestamps and copy._knows_timestamps:
            self.largest_timestamp, self.largest_timestamp_offset = (
                copy.largest_timestamp,
                copy.largest_timestamp_offset,
            )
            self._knows_timestamps = True
        if self._first_timestamp is None:
            self._first_timestamp = copy._first_timestamp
        self.transaction_index.learn(copy.transaction_index)
        if keep_open:
            self.file.learn(copy.file)
            if self._offset_index is None:
                self._offset_index = copy._offset_index
            if self._time_index is None:
                self._time_index = copy._time_index

    def _write_rebuilt(self) -> None:
        """Write indexes that a thread has made anew, unless the names are another segment's. They are advice."""
        if not self.is_held_open:
            try:
                self.seal()
            except OSError as error:
                logger.warning("%s: the rebuilt indexes are not written: %s", self.file.path, error)

    def seal(self) -> None:
        """Bring all files to their final state: last time entry, indexes written, no zeros behind the last batch."""
        # A start takes the largest timestamp from the last time entry and reads no batch of a sealed segment.
        self.time_index.maybe_append(self.largest_timestamp, self.largest_timestamp_offset)
        self._is_index_full = None
        self.offset_index.flush()
        self.time_index.flush()
        if self.config.preallocate:
            self.file.truncate(self.size)

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
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return "offsets would not fit the index"
        return None

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 when there is none."""
        if self._first_timestamp is None:
            try:
                first = next(self.headers(), None)
            except CorruptRecordBatch:
                first = None
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.header.max_timestamp
        return self._first_timestamp

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

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Index the batch at ``position``; recovery comes here too, so a rebuilt index equals the live one."""
        timestamp = header.max_timestamp
        if timestamp > self.largest_timestamp:
            self.largest_timestamp, self.largest_timestamp_offset = timestamp, header.last_offset
        if position == 0:
            self._first_timestamp = timestamp
        # Position 0 never gets an entry: every lookup before the first one begins there anyway.
        if position - self._last_index_position > self.config.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(self.largest_timestamp, self.largest_timestamp_offset)
            self._last_index_position = position
            self._has_new_entries = True
            self._is_index_full = None
        if len(self.position_cache) >= MAX_CACHED_POSITIONS:
            # A new dictionary rather than one entry less: readers in other threads may be looking at the old one.
            self.position_cache = {}
        self.position_cache[header.base_offset] = position

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
            boundary = self._last_boundary(start, start + max_bytes, end, minimum_one, nowait)
            end, next_offset = boundary.position, boundary.next_offset
        if end <= start:
            return FetchedRecords(offset, b"", offset)
        return FetchedRecords(offset, self.file.region(start, end - start), next_offset, end - start)

    def _position_of(self, offset: int, size: int, nowait: bool) -> int | None:
        """Return the position of the first batch whose last offset is at least ``offset``; None when there is none."""
        position = self.position_cache.get(offset)
        # ``append`` fills the cache before it moves ``size``: a position beyond the size taken may not be read yet.
        if position is not None and position < size:
            return position
        span = self.find(offset, size, nowait=nowait)
        return None if span is None else span.position

    def find(self, offset: int, size: int | None = None, *, nowait: bool = False) -> BatchSpan | None:
        """Return the first batch whose last offset is at least ``offset``, None when all end before it."""
        size = self.size if size is None else size
        position = self.indexed_position(lambda index: index.number_for(offset), nowait=nowait)
        for span in self._spans(position, size, nowait):
            # The first batch that does not end before ``offset``: after compaction it may begin behind it.
            if span.last_offset >= offset:
                if span.position != position and span.base_offset > offset:
                    raise CorruptRecordBatch(f"{self.file.path}: offset {offset} is damaged, up to {span.base_offset}")
                return span
            position = span.end
        return None

    # --- Walking around damage ---

    def headers(self, position: int = 0) -> Iterator[LocatedHeader]:
        """Walk over the headers of all good batches from ``position`` on, where one begins.

        Raises:
            CorruptRecordBatch: the rest is damaged.
        """
        next_offset = self.base_offset
        while position < self.size:
            try:
                for located in batch_scan.headers(self.file, position, self.size):
                    header = located.header
                    self._check_offsets(position, next_offset, header.base_offset, header.last_offset)
                    yield located
                    position, next_offset = position + header.size_bytes, header.next_offset
                self._check_end(position, self.size)
            except CorruptRecordBatch as error:
                position = self._behind_damage(position, next_offset, self.size, error)

    def _spans(self, position: int, size: int, nowait: bool) -> Iterator[BatchSpan]:
        """As ``headers``, with the spans alone and up to ``size``.

        Raises:
            BlockingIOError: ``nowait``, and it would wait for the disk.
        """
        next_offset = self.base_offset
        while position < size:
            try:
                for span in batch_scan.spans(self.file, position, size, nowait=nowait):
                    self._check_offsets(position, next_offset, span.base_offset, span.last_offset)
                    yield span
                    position, next_offset = span.end, span.last_offset + 1
                self._check_end(position, size)
            except CorruptRecordBatch as error:
                if nowait:
                    raise BlockingIOError(f"{self.file.path}: the next good batch has to be looked for") from error
                position = self._behind_damage(position, next_offset, size, error)

    def _check_offsets(self, position: int, next_offset: int, base_offset: int, last_offset: int) -> None:
        """No checksum covers the base offset of a batch."""
        if not next_offset <= base_offset <= last_offset < self._end_offset:
            raise CorruptRecordBatch(f"{self.file.path}: offsets {base_offset} to {last_offset} at position {position}")

    def _check_end(self, position: int, size: int) -> None:
        if position != size:
            raise CorruptRecordBatch(f"{self.file.path}: no whole batch at position {position}")

    @property
    def _end_offset(self) -> int:
        """No batch ends at it or behind it. While the segment is being opened its end is not known."""
        return self.next_offset if self.next_offset > self.base_offset else self.base_offset + MAX_RELATIVE_OFFSET + 1

    def note_damage(self, position: int, first_offset: int) -> None:
        """Let every read end before the damage at ``position``, where ``first_offset`` or a later one is lost."""
        self._damage = {**self._damage, position: first_offset}

    def _behind_damage(self, position: int, next_offset: int, size: int, error: CorruptRecordBatch) -> int:
        """Return where the next good batch begins behind the bad one at ``position``; raise ``error`` for none."""
        place = BatchPlace(self.base_offset, next_offset, self._end_offset)
        found = batch_checks.good_batch_behind(self.file, position, size, place)
        if position not in self._damage:
            self.note_damage(position, next_offset)
            where = "nothing good follows" if found is None else f"the next good batch is at position {found}"
            logger.error("%s is damaged from position %d on (%s); %s", self.file.path, position, error, where)
        if found is None:
            raise error
        return found

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
                    # Where this read ends is where the same consumer's next one begins.
                    if len(self.position_cache) >= MAX_CACHED_POSITIONS:
                        self.position_cache = {}
                    self.position_cache[boundary.next_offset] = boundary.position
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

    def _indexed_timestamp(self, timestamp_ms: int) -> TimestampOffset:
        """Return the entry of the time index to look from; the index is made anew if its batch is of another time."""
        entry = self.time_index.lookup(timestamp_ms)
        is_known = entry.timestamp_ms == NO_TIMESTAMP or not self.time_index.is_from_file
        if is_known or self._position_of_time(entry) is not None:
            return entry
        self.rebuild_indexes(f"no batch of time {entry.timestamp_ms} at offset {entry.offset}")
        return self.time_index.lookup(timestamp_ms)

    def batch_at(self, position: int, header: BatchHeader) -> RecordBatch:
        """Read the whole batch whose header stands at ``position``."""
        return RecordBatch(header, memoryview(self.file.read(header.size_bytes, position)))

    # --- The end of a segment ---

    def truncate_to(self, offset: int) -> None:
        """Cut the batch that holds ``offset`` and all behind it; the segment then ends at ``offset``."""
        span = self.find(offset)
        if span is not None:
            # The indexes go first: an entry past the end of the log would send a reader into bytes of a later batch.
            self.offset_index.truncate_to(span.base_offset)
            self.time_index.truncate_to(span.base_offset)
            self.transaction_index.truncate_to(offset)
            self._is_index_full = None
            self.size = span.position
            self.file.truncate(self.size)
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

    def sync_indexes(self) -> None:
        """Wait until the indexes of a sealed segment are on the disk: recovery does not come here to rebuild them."""
        for suffix in file_names.SEGMENT_SUFFIXES[1:]:
            sync_file(self.disk, self.path(suffix))

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


_COPIED_SLOTS = tuple(
    sorted(
        {*Segment.__slots__}
        - {"size", "file", "transaction_index", "position_cache", "owner_thread", "is_held_open"}
        - {"_is_private", "_was_rebuilt"}
    )
)
"""What a private copy has as it is."""


@attrs.frozen
class _Indexes:
    """The indexes of a segment, and what it knows along with them."""

    offset_index: OffsetIndex | None
    time_index: TimeIndex | None
    largest_timestamp: int
    largest_timestamp_offset: int
    last_index_position: int
    knows_timestamps: bool

    @classmethod
    def of(cls, segment: Segment) -> _Indexes:
        """Return those that it has."""
        return cls(
            segment._offset_index,
            segment._time_index,
            segment.largest_timestamp,
            segment.largest_timestamp_offset,
            segment._last_index_position,
            segment._knows_timestamps,
        )

    def put_into(self, segment: Segment) -> None:
        """Let ``segment`` have these."""
        segment._offset_index, segment._time_index = self.offset_index, self.time_index
        segment._is_index_full = None
        segment.largest_timestamp = self.largest_timestamp
        segment.largest_timestamp_offset = self.largest_timestamp_offset
        segment._last_index_position = self.last_index_position
        segment._knows_timestamps = self.knows_timestamps


def _roll_jitter_ms(config: LogConfig, name: str) -> int:
    """Spread the rolls of many logs that were created together, by a hash of each segment's name.

    Kafka draws a number; a hash spreads as well, and is the same after a start.
    """
    limit = min(config.segment_jitter_ms, config.segment_ms)
    if limit <= 0:
        return 0
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % limit
