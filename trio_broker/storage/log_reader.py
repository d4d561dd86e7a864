"""Reading the log of one partition, by its owner or in a worker thread.

The thread that owns a log reads it as it is (``ReadableLog``, which ``Log`` extends). A worker thread has a
``LogReader``: the offsets and the row of segments as they were when it was made, and private copies of the segments,
made when they are first looked at. Whatever it opens, reads from index files or finds out stays in these copies, until
the owner takes it over (``Log.adopt``). So nothing that the owner reads is changed by another thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Generic, TypeVar, overload

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.storage.errors import LogClosed, OffsetOutOfRange
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.retention import SegmentFacts
from trio_broker.storage.segment import FetchedRecords, Segment
from trio_broker.storage.time_index import TimestampOffset
from trio_broker.storage.transaction_index import AbortedTransaction

T = TypeVar("T")


class ReadableLog(ABC):
    """A log whose records are read."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        producers: ProducerStates,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        # The first offset that may be read; the first segment may begin before it.
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # Everything before it is on the disk: a start after a crash reads the log from here on.
        self.recovery_point = recovery_point
        # Everything before it is decided, by markers that are on the disk. It follows the recovery point, sometimes
        # later, and never holds for more than the log knows.
        self.durable_stable_offset = log_start_offset
        self.producers = producers
        self.is_closed = False
        # Where the part begins that compaction has not gone over; None for a log never compacted. From the cleaner's
        # checkpoint at a start, then moved by each round.
        self.first_dirty_offset: int | None = None
        self._config = config
        self._segments = segments

    @property
    def config(self) -> LogConfig:
        """The configuration in force."""
        return self._config

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; the last one is active."""
        return self._segments

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        # No generator: lists of topics ask ten thousand logs at once, most of which have one segment.
        size = 0
        for segment in self._segments:
            size += segment.size
        return size

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one: bool = True, nowait: bool = False
    ) -> FetchedRecords:
        """Return whole batches from ``offset`` on and below ``end_offset``, up to ``max_bytes`` bytes.

        With ``minimum_one`` the first batch comes even if it is larger than that, so that a consumer with a small
        fetch size still moves (KIP-74). The first batch may begin before ``offset``; consumers skip. One answer comes
        from one segment. Safe in a worker thread.

        Raises:
            OffsetOutOfRange: ``offset`` is before the log start offset or after the log end offset.
            LogClosed: the log was closed or deleted.
            BlockingIOError: ``nowait``, and finding the place would wait for the disk: repeat it in a worker thread.
        """
        if self.is_closed:
            raise LogClosed(f"{self.topic_partition} is closed")
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset}, the log has {self.log_start_offset} to {log_end_offset}"
            )
        end_offset = min(end_offset, log_end_offset)
        row = self._segments
        if offset < end_offset:
            active = row[-1]
            # Usually one turn. More where compaction emptied the end of a segment: the next batch is in a later one.
            for segment in (active,) if offset >= active.base_offset else segments_from(row, offset):
                if segment.base_offset >= end_offset:
                    break
                fetched = segment.read(offset, max_bytes, end_offset, minimum_one=minimum_one, nowait=nowait)
                if fetched is not None:
                    if segment is not active:
                        self._keep_cached(segment)
                    fetched.row = row
                    return fetched
        return FetchedRecords(offset, b"", offset)

    def segment_facts(self) -> list[SegmentFacts]:
        """Return what retention needs to know of the segments."""
        row = self._segments
        ends = [*(segment.base_offset for segment in row[1:]), self.log_end_offset]
        return [
            SegmentFacts(segment.base_offset, end, segment.size, segment.retention_timestamp)
            for segment, end in zip(row, ends, strict=True)
        ]

    def segments_from(self, offset: int) -> Iterator[Segment]:
        """Yield the segment in which ``offset`` lies, or would lie, and all after it."""
        return segments_from(self._segments, offset)

    @abstractmethod
    def _keep_cached(self, segment: Segment) -> None:
        """Keep a sealed segment open that records were read from."""

    @abstractmethod
    def evict_if_idle(self, segment: Segment) -> None:
        """Release descriptor and indexes of a segment that was opened for another purpose than a fetch."""

    def aborted_transactions(
        self, start_offset: int, end_offset: int, row: Sequence[Segment] = ()
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the range, whose records a committed reader drops.

        For records that were read, ``row`` is that of ``FetchedRecords``: compaction may have dropped them since, and
        with them what the segments of now know of them.
        """
        aborted: list[AbortedTransaction] = []
        # The entry lies in the segment of the marker, which may be far behind the records.
        for segment in segments_from(row or self._segments, start_offset):
            found = segment.transaction_index.overlapping(start_offset, end_offset)
            aborted += found.transactions
            if found.complete:
                break
        return aborted

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> TimestampOffset | None:
        """Return the first record below ``end_offset`` that is at least as young as ``timestamp_ms``, None if none is.

        May read and inflate a batch: call it in a worker thread.
        """
        for segment in self._segments:
            if segment.largest_timestamp_offset_pair().timestamp_ms < timestamp_ms:
                continue
            found = segment.offset_for_timestamp(timestamp_ms, self.log_start_offset)
            if found is not None:
                return found if found.offset < end_offset else None
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp of the log, None without timestamps."""
        segments = [segment for segment in self._segments if segment.size]
        if not segments:
            return None
        # ``max`` keeps the first of equals, and the log answers with the first record that has the timestamp.
        largest = max(segments, key=lambda segment: segment.largest_timestamp_offset_pair().timestamp_ms)
        timestamp_ms = largest.largest_timestamp_offset_pair().timestamp_ms
        return largest.offset_for_timestamp(timestamp_ms, self.log_start_offset) if timestamp_ms >= 0 else None


class PrivateRow(Sequence[Segment]):
    """A row of segments that makes a private copy of each when it is first looked at."""

    def __init__(self, row: Sequence[Segment]) -> None:
        self.row = row
        self.copies: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | Sequence[Segment]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        place = range(len(self))[index]
        copy = self.copies.get(place)
        if copy is None:
            copy = self.copies[place] = self.row[place].private_copy()
        return copy


class LogReader(ReadableLog):
    """A log for one worker thread; see the head of the file."""

    _segments: PrivateRow

    def __init__(self, log: ReadableLog, name_changes: int) -> None:
        self.name_changes = name_changes
        super().__init__(
            log.disk,
            log.directory,
            log.topic_partition,
            log.config,
            PrivateRow(log.segments),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            recovery_point=log.recovery_point,
            producers=log.producers,
        )
        self.is_closed = log.is_closed
        self.durable_stable_offset = log.durable_stable_offset
        self.first_dirty_offset = log.first_dirty_offset
        # The sealed ones that records were read from: the owner keeps these open.
        self.segments_read: list[Segment] = []

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one: bool = True, nowait: bool = False
    ) -> FetchedRecords:
        fetched = super().read(offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one, nowait=nowait)
        fetched.row = self._segments.row
        return fetched

    def segment_facts(self) -> list[SegmentFacts]:
        # Copies only of those whose time is asked for: of ten thousand logs with few segments each, that is hardly any.
        row = self._segments.row
        ends = [*(segment.base_offset for segment in row[1:]), self.log_end_offset]
        return [
            SegmentFacts(segment.base_offset, end, segment.size, partial(self._retention_timestamp, index))
            for index, (segment, end) in enumerate(zip(row, ends, strict=True))
        ]

    def _retention_timestamp(self, index: int) -> int:
        return self._segments[index].retention_timestamp()

    def copies(self) -> Iterator[tuple[Segment, Segment]]:
        """Yield each segment of which there is a private copy, and that."""
        row = self._segments
        for place, copy in row.copies.items():
            yield row.row[place], copy

    def _keep_cached(self, segment: Segment) -> None:
        self.segments_read.append(segment)

    def evict_if_idle(self, segment: Segment) -> None:
        if segment not in self.segments_read:
            segment.evict()


@attrs.frozen
class Look(Generic[T]):
    """What a worker thread found in a log, and the reader that knows what it learned on the way."""

    result: T
    reader: LogReader


def segments_from(row: Sequence[Segment], offset: int) -> Iterator[Segment]:
    """Yield the segment of ``row`` in which ``offset`` lies, or would lie, and all after it."""
    if offset >= row[-1].base_offset:
        yield row[-1]
        return
    first = bisect_right(row, offset, key=lambda segment: segment.base_offset) - 1
    yield from row[max(first, 0) :]
