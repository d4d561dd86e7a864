"""A segment's file with its indexes: read when they are asked for, compared with the log, and made anew from it.

An index is advice, and its file may be damaged or another's: what a lookup leads to is looked at before it is believed.
A segment keeps its descriptor and indexes in memory while it is cached; ``evict`` releases both, so that a log of a
thousand segments costs what its active one costs. ``hold_open`` makes an object independent of names before compaction
gives them to another segment.

A worker thread has a ``private_copy``, and the owner then takes over what it has found out (``adopt``). An append first
writes the bytes, then moves ``next_offset``, then ``size``, and a copy takes ``size`` first: so what is copied
meanwhile is whole.

Source: Kafka's LogSegment, LazyIndex; docs/formats/indexes.md.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import ClassVar, Self

import attrs

from kafka_wire.records.batch import NO_TIMESTAMP, BatchHeader
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk, sync_file
from trio_broker.storage import batch_scan, file_names
from trio_broker.storage.batch_scan import BatchSpan
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.offset_index import OffsetIndex, OffsetPosition
from trio_broker.storage.segment_file import SegmentFile
from trio_broker.storage.time_index import TimeIndex, TimestampOffset
from trio_broker.storage.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)

MAX_CACHED_POSITIONS = 128
"""Batch positions remembered per segment, about 100 bytes each: the tail, and some consumers' places."""

CHECKED_BATCHES = 1000
"""Batches behind the last entry of a time index that are asked whether entries are missing. A millisecond; all of them
would be a whole segment where one record came from the future, or all have the same time."""

NOT_COPIED = frozenset(
    {
        "size",
        "file",
        "transaction_index",
        "position_cache",
        "owner_thread",
        "is_held_open",
        "_is_private",
        "_was_rebuilt",
    }
)
"""What a private copy has of its own; all else it has as it is."""


class IndexedSegment(SegmentFile):
    """A ``.log`` file and its indexes."""

    __slots__ = (
        "_first_timestamp",
        "_has_new_entries",
        "_is_index_full",
        "_is_private",
        "_knows_timestamps",
        "_last_index_position",
        "_offset_index",
        "_time_index",
        "_was_rebuilt",
        "is_held_open",
        "largest_timestamp",
        "largest_timestamp_offset",
        "position_cache",
        "transaction_index",
    )

    _copied_slots: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls) -> None:
        slots = {slot for each in cls.__mro__ for slot in getattr(each, "__slots__", ())}
        cls._copied_slots = tuple(sorted(slots - NOT_COPIED))

    def __init__(
        self, disk: Disk, directory: PurePath, base_offset: int, config: LogConfig, *, size: int, file_suffix: str
    ) -> None:
        super().__init__(disk, directory, base_offset, config, size=size, file_suffix=file_suffix)
        self.transaction_index = TransactionIndex(disk, self.path(file_names.TRANSACTION_INDEX_SUFFIX))
        # Valid once ``_knows_timestamps``: a cold segment has not read its time index.
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_timestamp_offset = base_offset
        # Offset to the position of the batch that begins there, or of the next one behind a gap.
        self.position_cache: dict[int, int] = {}
        # Set while a swap moves file names: ``evict`` must then keep what could not be found again by name.
        self.is_held_open = False
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
            index: TimeIndex | None = checked_time_index(self, TimeIndex.load(self.disk, path, self.base_offset, limit))
        except CorruptIndex as error:
            index = self.rebuild_indexes(str(error))._time_index
        assert index is not None
        self._time_index = index
        return index

    # --- Lookups ---

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

    def _indexed_timestamp(self, timestamp_ms: int) -> TimestampOffset:
        """Return the entry of the time index to look from; the index is made anew if its batch is of another time."""
        entry = self.time_index.lookup(timestamp_ms)
        is_known = entry.timestamp_ms == NO_TIMESTAMP or not self.time_index.is_from_file
        if is_known or self.position_of_time(entry) is not None:
            return entry
        self.rebuild_indexes(f"no batch of time {entry.timestamp_ms} at offset {entry.offset}")
        return self.time_index.lookup(timestamp_ms)

    def position_of_time(self, entry: TimestampOffset) -> int | None:
        """Return where the batch lies that holds the offset of a time index entry, None if it is of another time."""
        span = self.find(entry.offset)
        if span is None or span.base_offset > entry.offset:
            return None
        located = next(batch_scan.headers(self.file, span.position, self.size), None)
        if located is None or located.header.max_timestamp != entry.timestamp_ms:
            return None
        return span.position

    # --- Entries ---

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

    def write_index_entries(self) -> None:
        """Write new entries of the active segment into its index files. Only tools read them, so errors are logged."""
        self._has_new_entries = False
        try:
            self.offset_index.write_pending()
            self.time_index.write_pending()
        except OSError as error:
            logger.warning("%s: index entries are not written: %s", self.file.path, error)

    def rebuild_indexes(self, reason: str) -> Self:
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

    def seal(self) -> None:
        """Bring all files to their final state: last time entry, indexes written, no zeros behind the last batch."""
        # A start takes the largest timestamp from the last time entry and reads no batch of a sealed segment.
        self.time_index.maybe_append(self.largest_timestamp, self.largest_timestamp_offset)
        self._is_index_full = None
        self.offset_index.flush()
        self.time_index.flush()
        if self.config.preallocate:
            self.file.truncate(self.size)

    def sync_indexes(self) -> None:
        """Wait until the indexes of a sealed segment are on the disk: recovery does not come here to rebuild them."""
        for suffix in file_names.SEGMENT_SUFFIXES[1:]:
            sync_file(self.disk, self.path(suffix))

    # --- Ends and times ---

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

    # --- Descriptors and memory ---

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

    def private_copy(self) -> Self:
        """Return a copy for a worker thread: what that opens, reads and finds out stays its own until ``adopt``.

        Nothing of the segment's files is written by way of it. Safe in any thread.
        """
        copy = type(self).__new__(type(self))
        # Before ``next_offset``; see the head of this file.
        copy.size = self.size
        for name in self._copied_slots:
            setattr(copy, name, getattr(self, name))
        copy.file = self.file.private_copy()
        copy.transaction_index = self.transaction_index.private_copy()
        # At once, since the owner may be adding to it.
        copy.position_cache = dict(self.position_cache)
        copy.owner_thread, copy.is_held_open = None, False
        copy._is_private, copy._was_rebuilt = True, False
        return copy

    def adopt(self, copy: Self, *, keep_open: bool) -> None:
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
        self.transaction_index.adopt(copy.transaction_index)
        if keep_open:
            self.file.adopt(copy.file)
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


def checked_time_index(segment: IndexedSegment, index: TimeIndex) -> TimeIndex:
    """Return a time index whose last entry the log confirms: retention goes by it, and lookups skip segments by it.

    Raises:
        CorruptIndex: the batch that it names is of another time, or one behind it is later.
    """
    last = index.last_entry
    try:
        position = segment.position_of_time(last) if len(index) else 0
        if position is None:
            raise CorruptIndex(f"{index.path}: {last} is of no batch")
        tail = segment.indexed_position(lambda offsets: offsets.last_number)
        # In a log whose timestamps grow, the batch behind the last entry tells whether entries are missing.
        behind = itertools.islice(segment.headers(position), CHECKED_BATCHES)
        for located in itertools.chain(behind, segment.headers(tail)):
            if located.header.max_timestamp > last.timestamp_ms:
                raise CorruptIndex(f"{index.path}: ends at {last}, before {located.header.max_timestamp}")
    except CorruptRecordBatch:
        # What damages the log proves nothing against its index.
        pass
    return index


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
    def of(cls, segment: IndexedSegment) -> _Indexes:
        """Return those that it has."""
        return cls(
            segment._offset_index,
            segment._time_index,
            segment.largest_timestamp,
            segment.largest_timestamp_offset,
            segment._last_index_position,
            segment._knows_timestamps,
        )

    def put_into(self, segment: IndexedSegment) -> None:
        """Let ``segment`` have these."""
        segment._offset_index, segment._time_index = self.offset_index, self.time_index
        segment._is_index_full = None
        segment.largest_timestamp = self.largest_timestamp
        segment.largest_timestamp_offset = self.largest_timestamp_offset
        segment._last_index_position = self.last_index_position
        segment._knows_timestamps = self.knows_timestamps
