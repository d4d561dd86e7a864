"""A log whose end is cut: a follower's that differs from its leader's, or that begins anew at another offset.

No step of it waits for the disk where the log is changed, so it comes in four::

    plan = log.plan_truncation(offset)      in a thread: where the cut lies, and what is then known of producers
    cut = log.cut(plan)                     the owner: from here on nobody reads behind the cut
    synced = log.sync_cut(cut, now_ms)      in a thread: the files follow, and are durable
    log.note_cut(synced, now_ms)            the owner; the file of leader epochs is to be written then

No recovery point on the disk may lie behind the cut when it is made: a start would take the records that are gone, or
later ones, for durable ones that are lost. No sync, append or compaction may be under way; readers may, and repeat what
they have begun (``read_with``).

Source: Kafka's UnifiedLog.truncateTo and truncateFullyAndStartAt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import PurePath

import attrs

from trio_broker.storage import file_names, producer_replay, producer_snapshot
from trio_broker.storage.batch_scan import BatchSpan
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.log_reader import LogReader, Look
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.segment import Segment
from trio_broker.storage.segmented_log import DeletedFile, SegmentedLog


@attrs.frozen
class TruncationPlan:
    """The cut at ``offset``, behind which nothing is known of ``producers``.

    ``copy`` is of the segment that ends there, with what the thread has found out, and ``span`` the batch that the cut
    begins with, if there is one; without ``copy`` nothing is kept.
    """

    offset: int
    producers: ProducerStates
    copy: Segment | None = None
    span: BatchSpan | None = None


@attrs.frozen
class LogCut:
    """What the files have yet to follow: segments to be removed, and the file to be cut to ``size_bytes``."""

    plan: TruncationPlan
    behind: Sequence[Segment]
    file: LogFile | None
    size_bytes: int


@attrs.frozen
class SyncedCut:
    """A cut that is durable: the files that wait for their removal, and the new segment of a log that begins anew."""

    deleted: Sequence[PurePath]
    segment: Segment | None


class TruncatableLog(SegmentedLog):
    """See the head of the file."""

    cuts = 0
    """How often it was cut: a segment that ended before may have gone on in another way since."""

    def plan_truncation(self, offset: int, *, begins_anew: bool = False) -> Look[TruncationPlan]:
        """Look at what is to be known before the log is cut at ``offset``, below its end. Blocks: for a thread.

        With ``begins_anew``, or for an offset before the first segment, nothing is kept, and the log begins there.

        Raises:
            OSError: a file cannot be read.
            CorruptRecordBatch: nothing good is there.
        """
        begins_anew = begins_anew or offset < self._segments[0].base_offset
        return self.read_with(partial(_plan_anew if begins_anew else _plan, offset=offset))

    def lower_recovery_point(self, offset: int) -> None:
        """Count nothing behind ``offset`` as durable any longer: it is about to be cut."""
        self.assert_owner()
        self.recovery_point = min(self.recovery_point, offset)
        # The cut may take a marker of what lies before it.
        self.durable_stable_offset = self.log_start_offset
        self._noted_stable = None

    def cut(self, plan: TruncationPlan) -> LogCut:
        """Let the log end at the cut, in memory.

        Raises:
            StorageFailed, LogClosed: as ``check_online``.
        """
        self.check_online()
        self.assert_owner()
        self._was_settled = False
        self.name_changes += 1
        self.cuts += 1
        self.lower_recovery_point(plan.offset)
        self.log_end_offset, self.producers = plan.offset, plan.producers
        self.epochs.truncate_from_end(plan.offset)
        if (copy := plan.copy) is None:
            return self._cut_all(plan)
        kept = tuple(each for each in self._segments if each.base_offset <= copy.base_offset)
        behind, self._segments = self._segments[len(kept) :], kept
        self._cached_segments = [each for each in self._cached_segments if each in kept[:-1]]
        self._unsynced_segments = [each for each in self._unsynced_segments if each in kept[:-1]]
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, plan.offset)
        active = kept[-1]
        active.adopt(copy, keep_open=True)
        active.cut(plan.offset, plan.span)
        # A private copy, since a thread opens no file of the owner's.
        return LogCut(plan, behind, active.file.private_copy(), active.size)

    def _cut_all(self, plan: TruncationPlan) -> LogCut:
        behind, self._segments = self._segments, self._segments[-1:]  # a row is never empty
        self._cached_segments, self._unsynced_segments = [], []
        self.log_start_offset = self.recovery_point = self.durable_stable_offset = plan.offset
        self.first_dirty_offset = None
        self.epochs.replace(())
        return LogCut(plan, behind, None, 0)

    def sync_cut(self, cut: LogCut, now_ms: int) -> SyncedCut:
        """Have the files follow a cut, and change nothing else. Blocks: for a thread.

        Raises:
            OSError: the disk does not say that the cut is durable, and the log is to fail.
        """
        deleted: list[PurePath] = []
        # One by one from the newest down: a power cut in between leaves a log that ends later, and not one with a hole.
        for segment in reversed(cut.behind):
            deleted += segment.mark_deleted()
            self.disk.sync_directory(self.directory)
        new = None
        if cut.file is None:
            new = Segment.create(self.disk, self.directory, cut.plan.offset, self._config, now_ms)
        else:
            if cut.plan.span is not None:
                cut.file.truncate(cut.size_bytes)
            # Otherwise a power cut could bring records back at offsets that belong to the next epoch, and no leader
            # would have them cut again.
            cut.file.sync()
        self._remove_snapshots(-1 if cut.file is None else cut.plan.offset)
        self.disk.sync_directory(self.directory)
        return SyncedCut(deleted, new)

    def _remove_snapshots(self, offset: int) -> None:
        """Remove the producer snapshots behind ``offset``: they are of records that are gone."""
        for each in producer_snapshot.offsets(self.disk, self.directory):
            if each > offset:
                self.disk.unlink(file_names.segment_path(self.directory, each, file_names.SNAPSHOT_SUFFIX))

    def note_cut(self, synced: SyncedCut, now_ms: int) -> None:
        """Take note of a cut that is durable."""
        self.assert_owner()
        remove_at_ms = now_ms + self._config.file_delete_delay_ms
        self.deleted_files += [DeletedFile(path, remove_at_ms) for path in synced.deleted]
        if synced.segment is not None:
            synced.segment.owner_thread = self.owner_thread
            self._segments = (synced.segment,)
            self.name_changes += 1


def _plan(reader: LogReader, offset: int) -> TruncationPlan:
    segments = reader.segments
    copy = segments[bisect_right(segments, offset, key=attrgetter("base_offset")) - 1]
    # All of it now: the owner is to wait for no disk when it cuts.
    copy.load()
    span = copy.find(offset)
    producers = producer_replay.load_producer_states(
        reader.disk, reader.directory, segments, offset, reader.log_start_offset
    )
    return TruncationPlan(offset, producers, copy, span)


def _plan_anew(reader: LogReader, offset: int) -> TruncationPlan:
    producers = ProducerStates()
    producers.end_offset = offset
    return TruncationPlan(offset, producers)
