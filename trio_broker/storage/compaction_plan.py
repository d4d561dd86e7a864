"""Which part of which log is compacted next, and which segments become one: decisions over facts.

A log is a clean part, which earlier rounds went over, a dirty one, and behind that what may not be compacted yet:

* the active segment;
* whatever is not decided and replicated, from the last stable offset on;
* whatever is not on the disk, or decided by a marker that is not, from the log's ``durable_stable_offset`` on: the old
  record of a key goes because of the new one, and a power cut must neither take that one too nor what committed it
  (Kafka goes on without this);
* segments with a record younger than ``min.compaction.lag.ms``, and all behind the first of them.

Only whole segments are compacted, so the last three are rounded down to where a segment begins.

The ratio of a log is dirty bytes over clean and dirty ones. A log is due when its ratio is above
``min.cleanable.dirty.ratio``, or when a dirty segment is older than ``max.compaction.lag.ms``; of those that are due
the one with the highest ratio comes first.

Source: Kafka's LogCleanerManager.cleanableOffsets, LogToClean, Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import attrs

from kafka_wire.limits import MAX_OFFSET_DELTA
from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.storage import file_names
from trio_broker.storage.log_reader import ReadableLog
from trio_broker.storage.segment import Segment

MAX_GROUP_SEGMENTS = 100
"""Segments that become one, at most: while they are swapped each holds a descriptor."""


@attrs.frozen
class CompactionRange:
    """What a round over one log would do. Offsets from ``first_dirty_offset`` up to ``end_offset``, exclusive, are new.

    ``is_overdue`` says that ``max.compaction.lag.ms`` asks for it, however low the ratio.
    """

    log: ReadableLog
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes; 0 where there is nothing at all."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log is to be compacted now."""
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def compaction_range(log: ReadableLog, *, stable_offset: int, now_ms: int) -> CompactionRange:
    """Return what could be compacted of ``log``. Reads timestamps of segments where a lag is set: in a worker thread.

    ``stable_offset`` is the last stable offset, which the owner of the log knows.

    Raises:
        OSError: a segment cannot be read.
    """
    row, config = log.segments, log.config
    first_dirty = first_dirty_offset(log)
    dirty = [segment for segment in sealed_from(row, first_dirty) if segment is not row[-1]]
    # Never past an open transaction, what a power cut can take back, or the active segment.
    bounds = [stable_offset, log.durable_stable_offset, row[-1].base_offset]
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        bounds.append(_first_young(log, dirty, youngest))
    end_offset = beginning_of(row, max(first_dirty, min(bounds)))
    return CompactionRange(
        log,
        first_dirty,
        end_offset,
        clean_bytes=sum(segment.size for segment in row if segment.base_offset < first_dirty),
        dirty_bytes=sum(segment.size for segment in dirty if segment.base_offset < end_offset),
        is_overdue=_is_overdue(log, dirty, now_ms),
    )


def _first_young(log: ReadableLog, dirty: Iterable[Segment], youngest_ms: int) -> int:
    """Return where the first segment begins that has a record younger than ``youngest_ms``."""
    for segment in dirty:
        timestamp_ms = segment.retention_timestamp()
        log.evict_if_idle(segment)
        if timestamp_ms > youngest_ms:
            return segment.base_offset
    return LONG_MAX


def first_dirty_offset(log: ReadableLog) -> int:
    """Return where the part begins that no round has gone over: the checkpoint, if it lies within the log."""
    offset = log.first_dirty_offset
    if offset is None or not log.log_start_offset <= offset <= log.log_end_offset:
        return log.log_start_offset
    return offset


def sealed_from(row: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """Return the segments from the one that holds ``offset`` on, without the active one."""
    if offset >= row[-1].base_offset:
        return ()
    first = bisect_right(row, offset, key=lambda segment: segment.base_offset) - 1
    return row[max(first, 0) : -1]


def beginning_of(row: Sequence[Segment], offset: int) -> int:
    """Return where the segment begins that holds ``offset``."""
    index = bisect_right(row, offset, key=lambda segment: segment.base_offset) - 1
    return row[max(index, 0)].base_offset


def _is_overdue(log: ReadableLog, dirty: Iterable[Segment], now_ms: int) -> bool:
    if log.config.max_compaction_lag_ms >= LONG_MAX:
        return False
    oldest_ms = now_ms - log.config.max_compaction_lag_ms
    for segment in dirty:
        timestamp_ms = segment.first_timestamp
        log.evict_if_idle(segment)
        if 0 < timestamp_ms < oldest_ms:
            return True
    return False


def dirtiest(ranges: Iterable[CompactionRange]) -> CompactionRange | None:
    """Return the one to compact first, None when none is due."""
    due = [each for each in ranges if each.is_due]
    return max(due, key=lambda each: each.dirty_ratio) if due else None


@attrs.frozen
class SegmentSizes:
    """Bytes of a segment's log and of its two indexes, or of several segments together."""

    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int

    @classmethod
    def of(cls, segment: Segment) -> SegmentSizes:
        """Ask the file system: the indexes of a thousand cold segments are not read for this."""
        return cls(
            segment.size,
            _file_size(segment.disk, segment.path(file_names.INDEX_SUFFIX)),
            _file_size(segment.disk, segment.path(file_names.TIME_INDEX_SUFFIX)),
        )

    def plus(self, other: SegmentSizes) -> SegmentSizes:
        return SegmentSizes(
            self.log_bytes + other.log_bytes,
            self.offset_index_bytes + other.offset_index_bytes,
            self.time_index_bytes + other.time_index_bytes,
        )

    def fit(self, config: LogConfig) -> bool:
        """Whether they are within what one segment may have."""
        return (
            self.log_bytes <= config.segment_size
            and max(self.offset_index_bytes, self.time_index_bytes) <= config.segment_index_bytes
        )


def _file_size(disk: Disk, path: PurePath) -> int:
    try:
        return disk.status(path).size_bytes
    except FileNotFoundError:
        return 0  # an index that will be made anew when it is asked for


def group_segments(segments: Sequence[Segment], config: LogConfig, end_offset: int) -> list[list[Segment]]:
    """Return neighbours that are to become one segment each, so that compaction does not leave ever smaller ones.

    A group stays within ``segment.bytes``, ``segment.index.bytes`` for each index, and the offsets that an index can
    hold. ``end_offset`` is where the last segment ends at the latest.
    """
    groups: list[list[Segment]] = []
    total = SegmentSizes(0, 0, 0)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        sizes = SegmentSizes.of(segment)
        together = total.plus(sizes)
        if (
            groups
            and len(groups[-1]) < MAX_GROUP_SEGMENTS
            and together.fit(config)
            and (not segment.size or following - 1 - groups[-1][0].base_offset <= MAX_OFFSET_DELTA)
        ):
            groups[-1].append(segment)
            total = together
        else:
            groups.append([segment])
            total = sizes
    return groups
