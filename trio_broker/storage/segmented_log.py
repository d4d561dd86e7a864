"""The segments of a log: they come with rolls, are kept open by reads, replaced by compaction, and go with retention.

The row of segments is a tuple that is replaced as a whole, so a reader in a thread keeps a consistent one. Files that
go are renamed to ``.deleted`` first and removed later, so that slow readers can finish.

Source: Kafka's LocalLog and LogSegments.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TypeVar

import attrs

from trio_broker.config.log_config import LogConfig
from trio_broker.storage import file_names, producer_snapshot
from trio_broker.storage.durable_log import DurableLog, LoadedLog
from trio_broker.storage.errors import OffsetOutOfRange
from trio_broker.storage.log_reader import LogReader, Look
from trio_broker.storage.retention import ExpiredSegment, RetentionReason, expired_segments
from trio_broker.storage.segment import Segment

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CACHED_SEGMENTS = 2
"""Sealed segments of one log that keep descriptor and indexes after a read; with the active one, three descriptors."""


@attrs.frozen
class DeletedFile:
    """A file renamed to ``.deleted``, and when it may be removed (wall clock, ms)."""

    path: PurePath
    remove_at_ms: int


class SegmentedLog(DurableLog):
    """A log of segments, the last of which is active."""

    def __init__(self, loaded: LoadedLog) -> None:
        super().__init__(loaded)
        # How often files have lost their names: a reader may then have opened another segment's file.
        self.name_changes = 0
        # In the order in which they may be removed, as long as ``file.delete.delay.ms`` stays what it is.
        self.deleted_files: deque[DeletedFile] = deque()
        # Sealed segments that were read from and so hold a descriptor and indexes, longest cached first.
        self._cached_segments: list[Segment] = []

    @property
    def config(self) -> LogConfig:
        """The configuration in force; may be replaced at any time and counts from the next append on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._segments:
            segment.config = config

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; the last one is active."""
        return self._segments

    # --- Reading ---

    def reader(self) -> LogReader:
        """Return what a worker thread reads this log with. Safe in any thread; see ``read_with``."""
        # The count comes first: names that move from now on are noticed.
        return LogReader(self, self.name_changes)

    def read_with(self, work: Callable[[LogReader], T]) -> Look[T]:
        """Do ``work`` with a reader, in a worker thread, and again as often as files lose their names meanwhile.

        It may have opened another segment's file then, or none. What the reader has found out is for ``adopt``.
        """
        while True:
            reader = self.reader()
            try:
                result = work(reader)
            except Exception:
                if reader.name_changes == self.name_changes:
                    raise
            else:
                if reader.name_changes == self.name_changes:
                    return Look(result, reader)

    def adopt(self, reader: LogReader) -> None:
        """Take over what a reader has found out, and keep open what it has read records from."""
        self.assert_owner()
        if reader.name_changes != self.name_changes:
            return
        for segment, copy in reader.copies():
            is_read = copy in reader.segments_read
            segment.adopt(copy, keep_open=is_read)
            if is_read:
                self._keep_cached(segment)
            else:
                self.evict_if_idle(segment)

    def _keep_cached(self, segment: Segment) -> None:
        # A pinned one has been replaced, or is about to take its place: it is not ours to keep.
        if segment is self._segments[-1] or segment in self._cached_segments or segment.is_held_open:
            return
        self._cached_segments.append(segment)
        # First in, first out, not least recently used: a hit then costs no bookkeeping, and an evicted segment comes
        # back with its next read.
        if len(self._cached_segments) > MAX_CACHED_SEGMENTS:
            self._cached_segments.pop(0).evict()

    def evict_if_idle(self, segment: Segment) -> None:
        """Release descriptor and indexes of a segment that was opened for another purpose than a fetch."""
        if segment is not self._segments[-1] and segment not in self._cached_segments:
            segment.evict()

    # --- Rolling ---

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and start a new one; an empty one stays."""
        self.check_online()
        self._start_segment(self.log_end_offset, now_ms, "asked to")

    def _start_segment(self, base_offset: int, now_ms: int, reason: str) -> Segment:
        self.assert_owner()
        active = self._segments[-1]
        # A new segment would have the name of this one.
        if not active.size and active.base_offset == base_offset:
            active.created_ms = now_ms
            return active
        active.seal()
        # Not synced, so that a roll does not wait for the disk: after a crash a damaged snapshot is skipped and the log
        # replayed.
        self._write_snapshot(base_offset, sync=False)
        try:
            segment = Segment.create(self.disk, self.directory, base_offset, self._config, now_ms)
        finally:
            # Also where that failed: its files must be gone for good before records beyond its offset are durable.
            self._directory_changes += 1
        segment.owner_thread = self.owner_thread
        # A follower's next batch may begin behind a gap that compaction left on the leader; the gap belongs to the old
        # segment.
        active.next_offset = base_offset
        self._unsynced_segments.append(active)
        self._segments = (*self._segments, segment)
        self._keep_cached(active)
        # Behind all that a full disk refuses: the append is tried again and again then, and nothing was rolled.
        logger.info("rolled %s at %d: %s", self.topic_partition, base_offset, reason)
        return segment

    def _write_snapshot(self, offset: int, *, sync: bool) -> None:
        producer_snapshot.write(self.disk, self.directory, offset, self.producers.producers.values(), sync=sync)

    # --- Deletion ---

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start offset up to ``offset``; the next retention run deletes the segments before it.

        Returns whether it moved. Then ``epochs.write`` is due, without which no checkpoint has it.

        Raises:
            OffsetOutOfRange: behind the log end offset.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"{self.topic_partition}: log start {offset}, log end is {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.assert_owner()
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def delete_expired_segments(self, now_ms: int, high_watermark: int) -> list[ExpiredSegment]:
        """Delete the segments that have expired. Waits for the disk in between, where leader epochs go with them.

        A caller that must not wait does the two steps itself, and writes the epochs in between.
        """
        retired = self.retire_segments(now_ms, high_watermark)
        if retired:
            self.epochs.write()
            self.remove_retired_segments(retired, now_ms)
        return retired

    def retire_segments(self, now_ms: int, high_watermark: int) -> list[ExpiredSegment]:
        """Move the log start behind the segments that have expired, and return them.

        Where that changes the leader epochs, ``epochs.write`` is due before the files go: a power cut may bring back
        any of their names, and by the epochs a start knows that what is missing between them was on its way out.
        """
        self.check_online()
        segments = self._segments
        retired = expired_segments(
            self.segment_facts(),
            self._config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            log_start_offset=self.log_start_offset,
        )
        if retired:
            if len(retired) == len(segments):
                self._start_segment(self.log_end_offset, now_ms, "all segments are retired")
            self.advance_log_start(retired[-1].end_offset)
        return retired

    def retire_deleted_segments(self, now_ms: int, *, with_active: bool) -> list[ExpiredSegment]:
        """Return the segments that lie wholly before the log start, where DeleteRecords has moved it.

        The active one is among them only ``with_active``: a new one then takes its place. The leader epochs are written
        already.
        """
        self.check_online()
        facts = self.segment_facts()
        retired = [
            ExpiredSegment(each.base_offset, each.end_offset, each.size_bytes, RetentionReason.LOG_START)
            for each in (facts if with_active and facts[-1].size_bytes else facts[:-1])
            if each.end_offset <= self.log_start_offset
        ]
        if len(retired) == len(facts):
            self._start_segment(self.log_end_offset, now_ms, "all of it is deleted")
        return retired

    def remove_retired_segments(self, retired: Sequence[ExpiredSegment], now_ms: int) -> None:
        """Rename the files of retired segments; ``remove_deleted_files`` removes them.

        That is ``file.delete.delay.ms`` from now, so that slow readers can finish.
        """
        self.check_online()  # the names of a deleted log may be another's by now
        bases = {segment.base_offset for segment in retired}
        self._remove_segments([segment for segment in self._segments if segment.base_offset in bases], now_ms)

    def _remove_segments(self, gone: Sequence[Segment], now_ms: int) -> None:
        self.assert_owner()
        # The row changes before the names: no read that begins now meets a file that is no longer there. The count in
        # between: a reader that has it has the new row.
        self._segments = tuple(segment for segment in self._segments if segment not in gone)
        self.name_changes += 1
        self._cached_segments = [segment for segment in self._cached_segments if segment not in gone]
        # Their space is free only when nobody has their files open, and the next sync makes it durable that they go.
        self._unsynced_segments = [segment for segment in self._unsynced_segments if segment not in gone]
        remove_at_ms = now_ms + self._config.file_delete_delay_ms
        for segment in gone:
            logger.info("%s: deleting segment %d", self.topic_partition, segment.base_offset)
            self.deleted_files += [DeletedFile(path, remove_at_ms) for path in segment.mark_deleted()]
            self.disk.unlink(segment.path(file_names.SNAPSHOT_SUFFIX), missing_ok=True)
        self._directory_changes += 1

    def take_expired_files(self, now_ms: int) -> list[PurePath]:
        """Return the deleted files whose time has come; the caller removes them, and they are named only once."""
        expired = []
        while self.deleted_files and self.deleted_files[0].remove_at_ms <= now_ms:
            expired.append(self.deleted_files.popleft().path)
        return expired

    def remove_deleted_files(self, now_ms: int) -> int:
        """Remove the files whose time has come. Returns how many."""
        expired = self.take_expired_files(now_ms)
        for path in expired:
            self.disk.unlink(path, missing_ok=True)
        return len(expired)

    # --- Compaction ---

    def replace_segments(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Put ``new`` into the place of ``old``, which hold the same offsets; their files are renamed, as retention's.

        For ``SegmentSwap`` only, which has made all of this safe.

        Raises:
            OSError: a file of the old segments could not be renamed; the row is as it was.
        """
        self.check_online()
        row = self._segments
        first = row.index(old[0])
        assert row[first : first + len(old)] == tuple(old), f"{self.topic_partition}: {old} are not in a row"
        assert old[-1] is not row[-1], f"{self.topic_partition}: the active segment is never replaced"
        self.assert_owner()
        new.owner_thread = self.owner_thread
        remove_at_ms = now_ms + self._config.file_delete_delay_ms
        for segment in old:
            self.deleted_files += [DeletedFile(path, remove_at_ms) for path in segment.mark_deleted()]
            # The producer snapshot of the first old segment is valid for the new one, which begins at the same offset.
            if segment.base_offset != new.base_offset:
                self.disk.unlink(segment.path(file_names.SNAPSHOT_SUFFIX), missing_ok=True)
        self._segments = (*row[:first], new, *row[first + len(old) :])
        # Again, for readers that began while the names moved, with the old row.
        self.name_changes += 1
        self._cached_segments = [segment for segment in self._cached_segments if segment not in old]
        self._directory_changes += 1
