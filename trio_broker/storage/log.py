"""The log of one partition: appended records get an offset and stay until retention deletes them.

A log is a row of segments, the last of them active. Beside them it keeps the leader epochs (who wrote from which
offset on) and the producer states (which batches are repetitions). All of this is plain synchronous code for one
owner: in the broker, the event loop. ``read`` and ``sync_files`` may run in worker threads at the same time (see
``segment`` for why that is right).

A log has four floors: ``DurableLog`` is about what is on the disk, ``SegmentedLog`` about segments that come and go,
``TruncatableLog`` about an end that is cut, and ``Log`` about what is appended.

Promises:

* An append is in the file as a whole when ``append`` returns, or the log is as it was. It is durable once ``sync``
  has returned an offset behind it, or sooner if nothing but the process dies.
* Offsets are never given twice, and what a reader was given never changes.
* After an error that leaves a file in an unknown state, first of all a failed fsync, the log accepts nothing more.

Source: Kafka's UnifiedLog and LocalLog; docs/formats/segment.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import attrs

from kafka_wire.records.batch import NO_TIMESTAMP, BatchHeader, RecordBatch, TimestampType
from trio_broker.storage import append, file_names, partition_metadata, producer_replay, validation
from trio_broker.storage.append import AppendInfo, AppendOrigin
from trio_broker.storage.durable_log import LoadedLog
from trio_broker.storage.errors import FencedLeaderEpoch, StorageFailed
from trio_broker.storage.leader_epochs import EpochEndOffset, EpochEntry
from trio_broker.storage.producer_state import TransactionMarker
from trio_broker.storage.transaction_index import AbortedTransaction
from trio_broker.storage.truncatable_log import TruncatableLog


class Log(TruncatableLog):
    """See the head of the file. Made by ``recovery.open_log``."""

    def __init__(self, loaded: LoadedLog) -> None:
        super().__init__(loaded)
        self.topic_id = loaded.topic_id
        # Their file is written after that, and before the first record: see ``write_epochs``.
        has_epochs = self.epochs.entries or self.disk.exists(self.directory / file_names.LEADER_EPOCH_CHECKPOINT)
        self._is_identified = bool(has_epochs)
        self._opened_end_offset = self.log_end_offset

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

    def check_replicated(self, records: memoryview, leader_epoch: int) -> list[RecordBatch]:
        """Return the batches of ``records``, fetched from the leader of ``leader_epoch``, for ``append_as_follower``.

        Raises:
            KafkaError: they are damaged, do not go on from where the log ends, or are of a later epoch.
            StorageFailed: the disk failed for good earlier.
        """
        self.check_online()
        batches = append.batches_of(records)
        append.check_order(self.topic_partition, batches, self.log_end_offset, self.epochs.latest_epoch, leader_epoch)
        return batches

    def begin_epochs_of(self, batches: Sequence[RecordBatch]) -> None:
        """Let the leader epochs of a leader's batches begin where they do, in memory. Their file is to be written
        before the batches are appended."""
        for header in (batch.header for batch in batches):
            if header.partition_leader_epoch >= 0:
                self.epochs.note(header.partition_leader_epoch, header.base_offset)

    def append_as_follower(self, batches: Sequence[RecordBatch], records: memoryview, now_ms: int) -> AppendInfo:
        """Append ``records``, which are ``batches`` of a leader: offsets and epochs are facts.

        Raises:
            OSError: the disk refused; batches of another segment may have been appended.
            StorageFailed: the disk failed for good.
        """
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
        return self._was_settled and self.log_end_offset == self._opened_end_offset and not self._directory_changes

    def release(self) -> None:
        """Release descriptors and memory without a sync, as a crash would. The log accepts nothing more."""
        self.is_closed = True
        self.name_changes += 1
        for segment in self._segments:
            segment.evict()
        self._cached_segments.clear()
