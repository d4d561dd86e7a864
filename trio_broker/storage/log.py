"""The log of one partition: appended records get an offset and stay until retention deletes them.

A log is a row of segments, the last of them active. Beside them it keeps the leader epochs (who wrote from which
offset on) and the producer states (which batches are repetitions). All of this is plain synchronous code for one
owner: in the broker, the event loop. ``read`` and ``sync_files`` may run in worker threads at the same time (see
``segment`` for why that is right).

Promises:

* An append is in the file as a whole when ``append`` returns, or the log is as it was. It is durable once ``sync``
  has returned an offset behind it, or sooner if nothing but the process dies.
* Offsets are never given twice, and what a reader was given never changes.
* After an error that leaves a file in an unknown state, first of all a failed fsync, the log accepts nothing more.

Source: Kafka's UnifiedLog and LocalLog; docs/formats/segment.md.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from threading import get_ident  # noqa: TID251 - starts no thread
from typing import TypeVar

import attrs

from kafka_wire.records.batch import BatchHeader, RecordBatch, TimestampType
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.storage import append, file_names, partition_metadata, producer_replay, producer_snapshot, validation
from trio_broker.storage.append import AppendInfo, AppendOrigin
from trio_broker.storage.errors import FencedLeaderEpoch, LogClosed, OffsetOutOfRange, StorageFailed
from trio_broker.storage.leader_epochs import EpochEndOffset, EpochEntry, LeaderEpochs
from trio_broker.storage.log_reader import LogReader, Look, ReadableLog
from trio_broker.storage.producer_state import ProducerStates, TransactionMarker
from trio_broker.storage.retention import ExpiredSegment, RetentionReason, expired_segments
from trio_broker.storage.segment import Segment
from trio_broker.storage.time_index import NO_TIMESTAMP
from trio_broker.storage.transaction_index import AbortedTransaction
from trio_broker.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CACHED_SEGMENTS = 2
"""Sealed segments of one log that keep descriptor and indexes after a read; with the active one, three descriptors."""


@attrs.frozen
class DeletedFile:
    """A file renamed to ``.deleted``, and when it may be removed (wall clock, ms)."""

    path: PurePath
    remove_at_ms: int


@attrs.frozen
class SyncedFiles:
    """What one sync has brought to the disk: everything before ``end_offset``, the indexes of the ``sealed`` segments,
    and so many changes of the directory. ``truncations`` tells whether the log was cut meanwhile."""

    end_offset: int
    sealed: tuple[Segment, ...]
    directory_changes: int
    truncations: int


@attrs.frozen
class NotedStableOffset:
    """Everything before ``offset`` is decided by markers before ``end_offset``, where the log ended then."""

    offset: int
    end_offset: int


class Log(ReadableLog):
    """See the head of the file. Made by ``recovery.open_log``."""

    _segments: tuple[Segment, ...]

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        unsynced_segments: Sequence[Segment] = (),
        is_settled: bool = False,
    ) -> None:
        """``is_settled`` says that ``close`` has nothing to write as long as nothing changes."""
        super().__init__(
            disk,
            directory,
            topic_partition,
            config,
            # A tuple that is replaced as a whole: a reader in a thread keeps a consistent row.
            tuple(segments),
            log_start_offset=log_start_offset,
            log_end_offset=segments[-1].next_offset,
            # A checkpoint beyond the log end is older than a truncation.
            recovery_point=min(recovery_point, segments[-1].next_offset),
            producers=producers,
        )
        self.topic_id = topic_id
        self.epochs = epochs
        # Their file is written after that, and before the first record: see ``write_epochs``.
        has_epochs = epochs.entries or disk.exists(directory / file_names.LEADER_EPOCH_CHECKPOINT)
        self._is_identified = bool(has_epochs)
        # Set once, by the first failed sync or an unknown state of a file, and never cleared.
        self.failure: OSError | None = None
        # The thread that changes this log; None while it is handed on.
        self.owner_thread: int | None = None
        # How often files have lost their names: a reader may then have opened another segment's file.
        self.name_changes = 0
        # In the order in which they may be removed, as long as ``file.delete.delay.ms`` stays what it is.
        self.deleted_files: deque[DeletedFile] = deque()
        # Sealed segments that were read from and so hold a descriptor and indexes, longest cached first.
        self._cached_segments: list[Segment] = []
        # Sealed or recovered segments whose files the next ``sync`` brings to the disk.
        self._unsynced_segments = list(unsynced_segments)
        self._was_settled, self._opened_end_offset = is_settled, segments[-1].next_offset
        # Counted rather than flagged: changes during a sync are for the next one.
        self._directory_changes = 0
        self._directory_synced = 0
        # Lets ``note_synced`` notice that the log was cut while the files were synced.
        self._truncations = 0
        # Becomes the ``durable_stable_offset`` when a sync has reached its end.
        self._noted_stable: NotedStableOffset | None = None
        self._note_stable_offset()

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition}: {self.log_start_offset} to {self.log_end_offset}>"

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

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch in the log, None before the first."""
        return self.epochs.latest_epoch

    # --- Appending ---

    def append(
        self,
        records: memoryview | bytearray | bytes,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        produce_version: int | None = None,
    ) -> AppendInfo:
        """Append batches; a client's must be exactly one.

        Offsets and leader epoch are stamped into ``records`` in place where it is writable. A batch that repeats one of
        its producer's last five is not appended: the answer then has the offsets it got the first time.

        A client's batch goes through all steps at once, however long that takes. A caller that must not wait does the
        steps of ``validation`` itself, and calls ``append_prepared``.

        Raises:
            KafkaError: the batch is refused (see ``validation`` and ``producer_state``); nothing has changed.
            OSError: the disk refused, for instance because it is full; nothing has changed.
            StorageFailed: the disk failed for good, now or earlier.
        """
        buffer = memoryview(records)
        if origin is AppendOrigin.CLIENT:
            batch = validation.check_client_batch(buffer, self._config, produce_version)
            batch = validation.prepare(batch, self._config, now_ms, self.topic_partition)
            return self.append_prepared(batch, leader_epoch=leader_epoch, now_ms=now_ms)
        self.check_online()
        if origin is AppendOrigin.REPLICATION:
            return self._append_from_leader(buffer, now_ms)
        # Offsets are stamped in place, and the bytes of a request may be shared.
        if buffer.readonly:
            buffer = memoryview(bytearray(buffer))
        return self._append_from_coordinator(buffer, leader_epoch, now_ms)

    def append_prepared(self, batch: RecordBatch, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append a client's batch that was checked and prepared.

        Raises:
            KafkaError, OSError, StorageFailed: as ``append``.
        """
        if self.is_closed or self.failure is not None:
            self.check_online()
        producers, header, records, config = self.producers, batch.header, batch.buffer, self._config
        if header.producer_id >= 0:
            # Before the sequence check, which a repeated batch would fail: the client has only missed the first answer.
            if repeated := producers.duplicate_of(header):
                return AppendInfo.of_duplicate(repeated, self.log_start_offset)
            producers.check_epoch(header)
            producers.check_sequence(header)
        if len(records) > config.segment_size:
            append.check_fits(records, config)
        append.check_offsets(self.log_end_offset, header.last_offset_delta + 1)
        stamps_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        if stamps_time:
            validation.stamp_append_time(batch, now_ms)
        # Before the write: an epoch that has records but no entry would be attributed to its predecessor.
        if not self.epochs.is_latest_written(leader_epoch):
            self.assign_epoch(leader_epoch, self.log_end_offset)
        batch.stamp(base_offset=self.log_end_offset, partition_leader_epoch=leader_epoch)
        info = self._write_batches((header,), records, now_ms)
        if stamps_time:
            info.log_append_time_ms = now_ms
        if header.producer_id >= 0:
            # Only now: a failed write must leave the sequence where it was, or the client's retry would be refused.
            producers.update(header)
        return info

    def _append_from_coordinator(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        batches = append.batches_of(records)
        append.check_fits(records, self._config)
        producers, offset = self.producers, self.log_end_offset
        append.check_offsets(offset, sum(batch.header.last_offset_delta + 1 for batch in batches))
        markers: list[TransactionMarker | None] = []
        for batch in batches:
            batch.stamp(base_offset=offset, partition_leader_epoch=leader_epoch)
            offset = batch.header.next_offset
            # Read once: a marker in each of hundreds of partitions is the end of one transaction.
            may_be_marker = batch.header.is_control and batch.header.producer_id >= 0
            markers.append(producer_replay.read_transaction_marker(batch) if may_be_marker else None)
        for batch, marker in zip(batches, markers, strict=True):
            # No sequence check: the broker's own batches carry none.
            if marker is not None:
                producers.check_marker(marker)
            elif batch.header.producer_id >= 0 and not batch.header.is_control:
                producers.check_epoch(batch.header)
        self.assign_epoch(leader_epoch, self.log_end_offset)
        aborted = [each for marker in markers if marker is not None and (each := producers.aborted_by(marker))]
        info = self._write_batches([batch.header for batch in batches], records, now_ms, aborted)
        for batch, marker in zip(batches, markers, strict=True):
            producer_replay.note(producers, batch.header, marker)
        return info

    def _append_from_leader(self, records: memoryview, now_ms: int) -> AppendInfo:
        batches = append.batches_of(records)
        append.check_order(self.topic_partition, batches, self.log_end_offset, self.epochs.latest_epoch)
        self._identify()
        # The epochs before the batches, as above, and all with one wait for the disk.
        self.epochs.assign_all(
            EpochEntry(batch.header.partition_leader_epoch, batch.header.base_offset)
            for batch in batches
            if batch.header.partition_leader_epoch >= 0
        )
        # One write for all, unless together they are larger than a segment of this log may be, or there are gaps.
        is_one_row = all(one.header.next_offset == other.header.base_offset for one, other in pairwise(batches))
        is_one_write = is_one_row and len(records) <= self._config.segment_size
        groups = [batches] if is_one_write else [[batch] for batch in batches]
        position, infos = 0, []
        for group in groups:
            if (base_offset := group[0].header.base_offset) > self.log_end_offset:
                # Behind a gap within the last segment a start could not tell that from a damaged base offset.
                self._start_segment(base_offset, now_ms, "a gap, which compaction left on the leader")
            size = sum(batch.header.size_bytes for batch in group)
            data = records[position : position + size]
            infos.append(self._write_batches([batch.header for batch in group], data, now_ms))
            self._index_aborted(self._note_producers(group))
            position += size
        return attrs.evolve(
            infos[-1],
            first_offset=infos[0].first_offset,
            max_timestamp=max(info.max_timestamp for info in infos),
            appended_bytes=position,
        )

    def _note_producers(self, batches: Sequence[RecordBatch]) -> list[AbortedTransaction]:
        """Take note of the batches of producers, and return the transactions that are aborted by them."""
        applied = (producer_replay.apply(self.producers, batch) for batch in batches if batch.header.producer_id >= 0)
        return [aborted for aborted in applied if aborted is not None]

    def _index_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Index what markers have aborted that are in the log and have their offsets already."""
        try:
            for aborted in transactions:
                self.active_segment.transaction_index.append(aborted)
        except OSError as error:
            # Without its entry a committed reader would take the aborted records for committed ones.
            raise self.fail(error) from error

    def _write_batches(
        self,
        headers: Sequence[BatchHeader],
        data: memoryview,
        now_ms: int,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> AppendInfo:
        """Put checked batches that have their offsets into the file, and before them the index entries of the
        transactions that they abort; nothing has changed if this raises.
        """
        first, last = headers[0], headers[-1]
        size = len(data)
        largest = first.max_timestamp if first is last else max(header.max_timestamp for header in headers)
        segment = self._segments[-1]
        last_offset = last.base_offset + last.last_offset_delta
        if reason := segment.reason_to_roll(size, last_offset, largest, now_ms):
            segment = self._start_segment(max(first.base_offset, self.log_end_offset), now_ms, reason)
        try:
            for transaction in aborted:
                # Before its marker: an entry that came to nothing is taken back, and a marker could not be.
                segment.transaction_index.append(transaction)
            segment.append(headers, data)
        except StorageFailed as error:
            self.fail(error)
            raise
        except OSError:
            # A full disk, say: the file was cut back and the log stays online, but no sync has covered the cut.
            self._was_settled = False
            if aborted:
                self._or_fail(partial(segment.transaction_index.truncate_to, first.base_offset))
            raise
        next_offset = self.log_end_offset = segment.next_offset
        self.producers.end_offset = next_offset
        return AppendInfo(first.base_offset, next_offset - 1, largest, NO_TIMESTAMP, self.log_start_offset, size)

    # --- Leader epochs ---

    def needs_epoch_entry(self, epoch: int) -> bool:
        """Return whether ``epoch`` has yet to be recorded durably; doing so waits for the disk."""
        return epoch >= 0 and not self.epochs.is_latest_written(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Let ``epoch`` begin at the log end, in memory: the log answers for it, and ``assign_epoch`` is still due.

        Not to be called while another thread changes the epochs.
        """
        latest = self.epochs.latest_epoch
        if epoch > (-1 if latest is None else latest):
            self.epochs.note(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record, durably, that ``epoch`` begins at ``start_offset``. Nothing to do and no wait if it is known.

        Raises:
            FencedLeaderEpoch: older than the newest epoch. A log whose epochs fall would be cut there by recovery.
        """
        if self.needs_epoch_entry(epoch):
            latest = self.epochs.latest_epoch
            if latest is not None and epoch < latest:
                raise FencedLeaderEpoch(f"{self.topic_partition}: leader epoch {epoch}, the log has {latest}")
            self._identify()
            self.epochs.assign(epoch, start_offset)

    def write_epochs(self, entries: list[EpochEntry]) -> None:
        """Write leader epochs, for ``epochs.note_written``: for a worker thread, before the first record of an epoch.

        Raises:
            OSError: the disk refused or failed.
        """
        self._identify()
        self.epochs.write_file(entries)

    def _identify(self) -> None:
        """Make durable which topic's the directory is, and that it is there, before the first record comes into it.

        Not when it is made: thousands can be created at once, and what is lost of an empty one is made again.
        """
        if not self._is_identified:
            partition_metadata.write_durably(self.disk, self.directory, self.topic_id)
            self._is_identified = True

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Return where ``epoch``, or the largest known one below it, ends in this log."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- Reading ---

    def reader(self) -> LogReader:
        """Return what a worker thread reads this log with. Safe in any thread; see ``look``."""
        # The count comes first: names that move from now on are noticed.
        return LogReader(self, self.name_changes)

    def look(self, work: Callable[[LogReader], T]) -> Look[T]:
        """Do ``work`` with a reader, in a worker thread, and again as often as files lose their names meanwhile.

        It may have opened another segment's file then, or none. What the reader has found out is for ``learn``.
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

    def learn(self, reader: LogReader) -> None:
        """Take over what a reader has found out, and keep open what it has read records from."""
        self.assert_owner()
        if reader.name_changes != self.name_changes:
            return
        for segment, copy in reader.copies():
            is_read = copy in reader.segments_read
            segment.learn(copy, keep_open=is_read)
            if is_read:
                self._keep_cached(segment)
            else:
                self.evict_if_idle(segment)

    def own(self) -> None:
        """Have the calling thread be the one that changes this log from now on."""
        self.owner_thread = get_ident()
        for segment in self._segments:
            segment.owner_thread = self.owner_thread

    def assert_owner(self) -> None:
        """No thread changes what another one reads."""
        assert self.owner_thread is None or self.owner_thread == get_ident(), f"{self!r} is changed by a worker thread"

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

    # --- Durability ---

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
        synced = SyncedFiles(end_offset, sealed, self._directory_changes, self._truncations)
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
        # After a truncation ``end_offset`` may lie beyond new records that no sync has covered.
        if synced.truncations == self._truncations:
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

    # --- Segments come and go ---

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

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Cut the log so that it ends at ``offset``, as a follower does whose log differs from its leader's.

        Returns whether anything was cut, which is then durable. No recovery point on the disk may lie behind
        ``offset``: a start would take the records that are gone, or later ones, for durable ones that are lost. So
        where there are checkpoints, ``LogManager.truncate_log`` is called. Waits for the disk. Not to be called while
        ``sync`` or ``read`` run.

        Raises:
            StorageFailed: the disk does not say that the cut is durable.
        """
        self.check_online()
        if offset >= self.log_end_offset:
            return False
        self._truncations += 1
        self.name_changes += 1
        self.lower_recovery_point(offset)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
        behind = [segment for segment in self._segments if segment.base_offset > offset]
        if len(behind) == len(self._segments):
            return self.restart_at(offset, now_ms)
        self._remove_durably(behind, now_ms)
        self.active_segment.truncate_to(offset)
        self.log_end_offset = offset
        # Otherwise a power cut could bring records back at offsets that belong to the next epoch, and no leader would
        # have them cut again.
        self._or_fail(self.active_segment.sync)
        if self.epochs.truncate_from_end(offset):
            self.epochs.write()
        self._reload_producers(offset)
        return True

    def lower_recovery_point(self, offset: int) -> None:
        """Count nothing behind ``offset`` as durable any longer: it is about to be cut."""
        self.assert_owner()
        self.recovery_point = min(self.recovery_point, offset)
        # The cut may take a marker of what lies before it.
        self.durable_stable_offset = self.log_start_offset
        self._noted_stable = None

    def restart_at(self, offset: int, now_ms: int) -> bool:
        """Drop everything and begin, empty, at ``offset``; otherwise as ``truncate_to``."""
        self.check_online()
        self._truncations += 1
        self._remove_durably(self._segments, now_ms)
        self._segments = (Segment.create(self.disk, self.directory, offset, self._config, now_ms),)
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.durable_stable_offset, self._noted_stable = offset, None
        self.first_dirty_offset = None
        self._or_fail(partial(self.disk.sync_directory, self.directory))
        self.epochs.clear()
        # Without any snapshot: state from before would refuse the first batches as out of sequence.
        self._reload_producers(-1)
        self.producers.end_offset = offset
        return True

    def _remove_durably(self, behind: Sequence[Segment], now_ms: int) -> None:
        """Remove the segments at the end of the log, one by one from the newest down: a power cut in between leaves a
        log that ends later, and not one with a hole.
        """
        for segment in reversed(behind):
            self._remove_segments([segment], now_ms)
            self._or_fail(partial(self.disk.sync_directory, self.directory))

    def _or_fail(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as error:
            raise self.fail(error) from error

    def _reload_producers(self, end_offset: int) -> None:
        for offset in producer_snapshot.offsets(self.disk, self.directory):
            if offset > end_offset:
                self.disk.unlink(file_names.segment_path(self.directory, offset, file_names.SNAPSHOT_SUFFIX))
        self.producers = producer_replay.load_producer_states(
            self.disk, self.directory, self._segments, end_offset, self.log_start_offset
        )

    # --- The end ---

    def close(self) -> None:
        """Bring every file to its final state on the disk: indexes written, producer snapshot at the log end, synced.

        Nothing is written where nothing has changed since the last time.

        Raises:
            StorageFailed: the disk failed; a clean-shutdown marker must not be written.
        """
        self.check_online()
        if self._is_as_opened:
            self.release()
            return
        try:
            self.require_in_place()
            # The log is synced before the snapshot that describes it: a snapshot beyond the log end would be dropped.
            self.active_segment.seal()
            self.epochs.write()
            self._unsynced_segments.append(self.active_segment)
            self.sync()
            self._write_snapshot(self.log_end_offset, sync=True)
            self.disk.sync_directory(self.directory)
        except OSError as error:
            raise self.fail(error) from error
        self.release()

    @property
    def _is_as_opened(self) -> bool:
        """Whether the files are still as a clean stop left them, or as those of a new log are made."""
        has_changed_names = self._directory_changes or self._truncations
        return self._was_settled and self.log_end_offset == self._opened_end_offset and not has_changed_names

    def release(self) -> None:
        """Release descriptors and memory without a sync, as a crash would. The log accepts nothing more."""
        self.is_closed = True
        self.name_changes += 1
        for segment in self._segments:
            segment.evict()
        self._cached_segments.clear()
