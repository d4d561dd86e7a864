"""What of a log is on the disk, and what takes the log offline.

``sync_files`` brings the files to the disk in a worker thread, while the owner appends; ``note_synced`` is the owner's
half, which moves the recovery point. After an error that leaves a file in an unknown state, first of all a failed
fsync, the log accepts nothing more.

Source: Kafka's UnifiedLog.flush, LogDirFailureChannel and LogLoader.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import PurePath
from threading import get_ident  # noqa: TID251 - starts no thread

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.storage.errors import LogClosed, StorageFailed
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log_reader import ReadableLog
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.segment import Segment

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class LoadedLog:
    """What ``recovery`` has made of a directory, of which a log is made.

    The next sync brings ``unsynced_segments`` to the disk. ``is_settled`` says that ``close`` has nothing to write as
    long as nothing changes.
    """

    disk: Disk
    directory: PurePath
    topic_partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    segments: Sequence[Segment]
    log_start_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    unsynced_segments: Sequence[Segment]
    is_settled: bool


@attrs.frozen
class SyncedFiles:
    """What one sync has brought to the disk: everything before ``end_offset``, the indexes of the ``sealed`` segments,
    and so many changes of the directory."""

    end_offset: int
    sealed: tuple[Segment, ...]
    directory_changes: int


@attrs.frozen
class NotedStableOffset:
    """Everything before ``offset`` is decided by markers before ``end_offset``, where the log ended then."""

    offset: int
    end_offset: int


class DurableLog(ReadableLog):
    """A log with files that are synced. One thread changes it, which is its owner."""

    _segments: tuple[Segment, ...]

    def __init__(self, loaded: LoadedLog) -> None:
        log_end_offset = loaded.segments[-1].next_offset
        super().__init__(
            loaded.disk,
            loaded.directory,
            loaded.topic_partition,
            loaded.config,
            # A tuple that is replaced as a whole: a reader in a thread keeps a consistent row.
            tuple(loaded.segments),
            log_start_offset=loaded.log_start_offset,
            log_end_offset=log_end_offset,
            # A checkpoint beyond the log end is older than a truncation.
            recovery_point=min(loaded.recovery_point, log_end_offset),
            producers=loaded.producers,
        )
        self.epochs = loaded.epochs
        # Set once, by the first failed sync or an unknown state of a file, and never cleared.
        self.failure: OSError | None = None
        # The thread that changes this log; None while it is handed on.
        self.owner_thread: int | None = None
        # Sealed or recovered segments whose files the next ``sync`` brings to the disk.
        self._unsynced_segments = list(loaded.unsynced_segments)
        # Counted rather than flagged: changes during a sync are for the next one.
        self._directory_changes = 0
        self._directory_synced = 0
        # Whether ``close`` has nothing to write as long as nothing is appended and no name changes.
        self._was_settled = loaded.is_settled
        # Becomes the ``durable_stable_offset`` when a sync has reached its end.
        self._noted_stable: NotedStableOffset | None = None
        self._note_stable_offset()

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition}: {self.log_start_offset} to {self.log_end_offset}>"

    def bind_to_thread(self) -> None:
        """Have the calling thread be the one that changes this log from now on."""
        self.owner_thread = get_ident()
        for segment in self._segments:
            segment.owner_thread = self.owner_thread

    def assert_owner(self) -> None:
        """No thread changes what another one reads."""
        assert self.owner_thread is None or self.owner_thread == get_ident(), f"{self!r} is changed by a worker thread"

    # --- Sync ---

    def sync(self) -> int:
        """Make what has been appended durable and return the offset up to which it is, exclusive.

        Raises:
            StorageFailed: a sync failed. The log stays offline, since nobody knows then what is on the disk.
        """
        try:
            return self.note_synced(self.sync_files())
        except OSError as error:
            self.check_online()  # it is offline by now, and has said why
            raise self.fail(error) from error

    def sync_files(self) -> SyncedFiles:
        """Sync the files, and change nothing here: for a worker thread, while the owner of the log appends.

        What it returns is for ``note_synced``, what it raises for ``fail``. One at a time.

        Raises:
            OSError: a sync failed: nobody knows what is on the disk.
        """
        self.check_online()
        # All of this is taken before the disk is asked: what comes meanwhile is for the next sync.
        end_offset, sealed = self.log_end_offset, tuple(self._unsynced_segments)
        synced = SyncedFiles(end_offset, sealed, self._directory_changes)
        directory_is_dirty = synced.directory_changes != self._directory_synced
        if self.recovery_point >= end_offset and not sealed and not directory_is_dirty:
            return synced
        # Sealed ones may lie before the recovery point and have been cut, by recovery or of what was preallocated. Were
        # such an end back after a power cut, all segments behind it would be taken for damage.
        for segment in dict.fromkeys((*sealed, *self.segments_from(self.recovery_point))):
            self._sync_segment(segment)
        for segment in sealed:
            segment.sync_indexes()
        if directory_is_dirty:
            self.disk.sync_directory(self.directory)
        return synced

    def note_synced(self, synced: SyncedFiles) -> int:
        """Take note of what ``sync_files`` did; return the offset up to which the log is durable, exclusive."""
        self.assert_owner()
        self._unsynced_segments = [each for each in self._unsynced_segments if each not in synced.sealed]
        self._directory_synced = synced.directory_changes
        self.recovery_point = max(self.recovery_point, synced.end_offset)
        self._note_stable_offset()
        for segment in synced.sealed:
            segment.file.note_synced()
        if self.recovery_point == self.log_end_offset:
            self._segments[-1].file.note_synced()
        return min(synced.end_offset, self.recovery_point)

    def _note_stable_offset(self) -> None:
        """Count as durably decided what was decided when the log ended where it is durable by now, and note what is
        decided now for a sync to come.

        Not for the one that has just ended: markers may have been appended while the files were synced.
        """
        noted, recovery_point = self._noted_stable, self.recovery_point
        if noted is not None and recovery_point >= noted.end_offset:
            self.durable_stable_offset = max(self.durable_stable_offset, noted.offset)
            noted = None
        if noted is None:
            end_offset = self.log_end_offset
            undecided = self.producers.transactions.first_undecided_offset
            noted = NotedStableOffset(end_offset if undecided is None else undecided, end_offset)
            if recovery_point >= end_offset:
                self.durable_stable_offset = max(self.durable_stable_offset, noted.offset)
        self._noted_stable = noted

    @property
    def has_unsynced_names(self) -> bool:
        """Whether segments came or went since the last sync of the directory: a power cut may undo that."""
        return self._directory_changes != self._directory_synced

    @property
    def confirmed_start_offset(self) -> int:
        """The log start, as far as the file of leader epochs says so: a start believes no other."""
        written = self.epochs.written_start_offset
        return self.log_start_offset if written is None else min(self.log_start_offset, written)

    def sync_after_crash(self) -> None:
        """Make everything durable that this start found behind the recovery point. Blocks.

        It is written again first. After a sync that failed, Linux counts the pages that it could not write as clean:
        the records are still read, a sync succeeds, and a power cut takes them back.

        Raises:
            OSError: the disk refused.
            StorageFailed: a sync failed.
        """
        for segment in self.segments_from(self.recovery_point):
            segment.rewrite(self.recovery_point)
        self.sync()

    def _sync_segment(self, segment: Segment) -> None:
        try:
            segment.sync()
        except FileNotFoundError:
            # Retention may have taken it since we looked: nothing of it has to last.
            if segment in self._segments:
                raise

    # --- Offline ---

    def fail(self, error: OSError) -> StorageFailed:
        """Take the log offline for good and return the exception to raise: the state of its files is unknown."""
        self.assert_owner()
        logger.error("%s goes offline: %s", self.topic_partition, error)
        failed = error
        if not isinstance(failed, StorageFailed):
            failed = StorageFailed(error.errno, f"{self.topic_partition}: {error.strerror}", str(self.directory))
        self.failure = failed
        return failed

    def require_in_place(self) -> None:
        """Refuse to go on with files that a start would not find: the directory was removed, renamed or replaced.

        What is appended then goes to a file without a name, and every write and sync of it succeeds.

        Raises:
            StorageFailed: it is so; of this log alone.
            OSError: the disk failed.
        """
        path = self.active_segment.file.path
        if not self.active_segment.file.is_in_place():
            raise StorageFailed(errno.ENOENT, "removed, renamed or replaced while the broker runs", str(path))

    def check_online(self) -> None:
        """Refuse to go on after a failure.

        Raises:
            StorageFailed: the log is offline.
            LogClosed: it was closed or deleted.
        """
        if self.is_closed:
            raise LogClosed(f"{self.topic_partition} is closed")
        if self.failure is not None:
            raise StorageFailed(self.failure.errno, f"{self.topic_partition} is offline: {self.failure.strerror}")

    def _or_fail(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as error:
            raise self.fail(error) from error
