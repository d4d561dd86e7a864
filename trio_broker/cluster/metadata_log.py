"""The metadata log: KRaft's records in ``__cluster_metadata-0``.

An ordinary log of this broker, with three additions. An append returns when it is durable, whatever ``log.durability``
says. Every leader begins a new leader epoch: it is written to ``quorum-state`` first, and the first batch of the epoch
is a LEADER_CHANGE control record. And a gap is never accepted: where the data log quarantines damage and continues,
this one refuses to open until an operator has acted, because a lost record here is a lost topic.

A broker alone leads its log, in a quorum of one. One of several has a copy here of the log that they share: what others
have appended is appended as it stands there (``append_committed``), and no epoch begins, so there is no
``quorum-state``.

Records of one append share a batch and with it a checksum, so after a crash all of them are there or none.

The log is kept short by snapshots (``metadata_snapshot``), which take the place of what is before them. The log start
offset is the end offset of the newest snapshot and is stored nowhere else.

``append`` writes on the event loop, which owns the log, and syncs in a worker thread. All else that touches files
blocks: it is called in a thread, to which the log is handed over meanwhile (``begin_epoch``, ``append_committed``,
``take_snapshot``), which only reads (``read``), or which has the log before or after the loop does (``open``,
``replay``, ``close``).

Source: docs/formats/metadata-log.md; Kafka's KafkaRaftClient, FileQuorumStateStore, MetadataRecordSerde.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from pathlib import PurePath
from typing import Any, Final, Protocol

import attrs
import trio

from kafka_wire.errors import WireError
from kafka_wire.limits import INT32_MAX
from kafka_wire.primitives import NO_UUID, uuid_text
from kafka_wire.records.batch import RecordBatch, read_batches
from kafka_wire.stored.metadata import PartitionRecord, TopicRecord, decode_metadata_record
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.leader_change import leader_change_batch
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.metadata_snapshot import (
    MetadataSnapshot,
    SnapshotId,
    read_snapshot,
    remove_older,
    snapshots,
    write_snapshot,
)
from trio_broker.cluster.metadata_store import PreparedBatch
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import KEEP_FOR_EVER, LogConfig
from trio_broker.runtime.disk import Disk, names_in, write_atomically
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import file_names
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.durable_log import SyncedFiles
from trio_broker.storage.errors import SPACE_ERRNOS, StorageFailed, is_log_failure
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log

logger = logging.getLogger(__name__)

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The reserved id of the metadata topic, the same in every cluster."""


MAX_LEADER_EPOCH: Final = INT32_MAX
"""The largest int32, which a batch can have."""

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Far above the largest batch, which is some megabytes for ten thousand partitions."""

READ_BYTES: Final = 1024 * 1024
"""Read at a time in a replay."""

SNAPSHOT_AFTER_RECORDS: Final = 10_000
"""Records since the last snapshot after which a start writes another: they take a start some tenths of a second."""

_ASIDE = ".corrupt-"


class SpaceReserve(Protocol):
    """The space that a directory keeps back. See ``LogDirectory``."""

    def with_reserve(self, work: Callable[[], int], /) -> int:
        """Do ``work``, again with more and more of the reserve where the disk is full. Blocks."""
        ...

    def give_part_up(self) -> bool:
        """Free some of the space that is kept back; whether there was any. Blocks."""
        ...


class NoReserve:
    """Of a directory that keeps no space back."""

    def with_reserve(self, work: Callable[[], int], /) -> int:
        return work()

    def give_part_up(self) -> bool:
        return False


def trust() -> None:
    """Take the directory for the one that was locked, where nothing locks it."""


@attrs.frozen
class QuorumState:
    """Who leads in which epoch, ``NO_LEADER`` while nobody does. In a quorum of one only the epoch counts."""

    leader_id: int
    leader_epoch: int


class MetadataLog:
    """Appends records durably and replays them. Made by ``open``; a leader then begins an epoch."""

    def __init__(
        self,
        log: Log,
        runtime: Runtime,
        *,
        leader_epoch: int,
        snapshot: SnapshotId | None,
        directory_id: bytes,
        reserve: SpaceReserve,
        require_in_place: Callable[[], None],
    ) -> None:
        self.log = log
        self._reserve = reserve
        self._require_in_place = require_in_place
        # The newest of which anything is known.
        self.leader_epoch = leader_epoch
        self.directory_id = directory_id
        self.snapshot = snapshot
        # Called when the disk has failed, once and for good.
        self.on_failure: Callable[[OSError], object] = log.fail
        self._clock = runtime.clock
        self._workers = runtime.workers
        # One token: batches reach the disk one at a time, and never wait for the threads of requests.
        self._limiter = trio.CapacityLimiter(1)

    @classmethod
    def open(
        cls,
        data_directory: PurePath,
        runtime: Runtime,
        *,
        directory_id: bytes = NO_UUID,
        reserve: SpaceReserve | None = None,
        require_in_place: Callable[[], None] = trust,
    ) -> MetadataLog:
        """Open the metadata log of ``data_directory``, or create it. Blocks.

        ``reserve`` is for what must be possible on a full disk too: topics are deleted by way of this log.
        ``require_in_place`` raises ``OSError`` where its files are no longer those of the data directory. A torn tail
        is cut: it was never acknowledged.

        Raises:
            MetadataLogUnusable: it is damaged before its end, or its beginning is missing, or its epoch is unknown.
            OSError: the disk refused.
        """
        disk, directory = runtime.disk, data_directory / f"{CLUSTER_METADATA_TOPIC}-0"
        snapshot = max(snapshots(disk, directory), default=None)
        start_offset = snapshot.end_offset if snapshot is not None else 0
        log = open_log(
            disk,
            directory,
            TopicPartition(CLUSTER_METADATA_TOPIC, 0),
            METADATA_TOPIC_ID,
            LogConfig(
                segment_bytes=SEGMENT_BYTES,
                retention_ms=KEEP_FOR_EVER,
                retention_bytes=KEEP_FOR_EVER,
                file_delete_delay_ms=0,
            ),
            # Always read whole, as after a crash: damage anywhere must be found before a decision builds on it.
            recovery_point=0,
            log_start_offset=start_offset,
            start_is_certain=True,
            clean=False,
            now_ms=runtime.clock.now_ms(),
        ).log
        if aside := sorted(name for name in names_in(disk.list_directory(directory)) if _ASIDE in name):
            log.release()
            raise MetadataLogUnusable(
                f"{directory} was damaged before its end and {', '.join(aside)} was put aside; move that away to start"
                " with what is left"
            )
        if log.log_start_offset > start_offset:
            log.release()
            raise MetadataLogUnusable(
                f"{directory} begins at offset {log.log_start_offset}, and there is no snapshot of what was before"
            )
        # The largest of three sources: after a crash between the writes, or with a quorum-state file that was lost, one
        # of them is older, and an epoch must never be used twice.
        epochs = (
            read_quorum_state(disk, directory / file_names.QUORUM_STATE).leader_epoch,
            log.latest_epoch or 0,
            snapshot.epoch if snapshot is not None else 0,
        )
        # What was replayed is in effect from here on, and so has to stay.
        log.sync_after_crash()
        # The name of a new log's directory: without it a power cut takes all that is appended.
        disk.sync_directory(data_directory)
        disk.sync_directory(directory)
        return cls(
            log,
            runtime,
            leader_epoch=max(epochs),
            snapshot=snapshot,
            directory_id=directory_id,
            reserve=reserve or NoReserve(),
            require_in_place=require_in_place,
        )

    def begin_epoch(self, node_id: int) -> bytes:
        """Have ``node_id`` lead in a new leader epoch; return the batch that this begins with. Blocks.

        Raises:
            OSError: the disk refused or failed.
        """
        self.log.bind_to_thread()
        epoch = self.leader_epoch + 1
        batch = bytearray(leader_change_batch(node_id, timestamp=self._clock.now_ms()))

        def begin() -> int:
            # Behind the names of the segments, in ``open``: a quorum state without any segment proves that the log was
            # lost. Before the first batch of the epoch: if the broker dies between the two, the next one skips an
            # epoch.
            path = self.log.directory / file_names.QUORUM_STATE
            write_quorum_state(self.log.disk, path, node_id, epoch, self.directory_id)
            return self._append(batch, epoch)

        self._reserve.with_reserve(begin)
        # Append, then sync, then return: the records are published only after this.
        self.log.note_synced(self._sync())
        self.leader_epoch = epoch
        return bytes(batch)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    @property
    def failure(self) -> OSError | None:
        """What took the log offline for good, if anything did."""
        return self.log.failure

    @property
    def durable_end(self) -> int:
        """The end of what is on the disk, which no crash takes back."""
        return min(self.log.recovery_point, self.log_end_offset)

    def replay(self) -> Iterator[Any]:
        """Yield the records of the newest snapshot, then all that came after it, oldest first. Blocks.

        Raises:
            MetadataLogUnusable: the snapshot is damaged, or a record is of a kind or version that this broker does not
                know.
        """
        yield from self.replay_snapshot()
        yield from self.replay_log()

    def replay_snapshot(self) -> Iterator[Any]:
        """Yield the records of the newest snapshot, if there is one; otherwise as ``replay``."""
        if self.snapshot is not None:
            yield from read_snapshot(self.log.disk, self.log.directory, self.snapshot)

    def replay_log(self) -> Iterator[Any]:
        """Yield what came after the newest snapshot; otherwise as ``replay``."""
        offset = self.log.log_start_offset
        while offset < self.log_end_offset:
            for batch in self.read(offset, self.log_end_offset):
                offset = batch.header.next_offset
                if not batch.header.is_control:
                    yield from (self._decode(record.offset, record.value) for record in batch.records())

    def _decode(self, offset: int, value: bytes | None) -> Any:
        try:
            return decode_metadata_record(value or b"")
        except WireError as error:
            raise MetadataLogUnusable(f"{self.log.directory}: the record at offset {offset}: {error}") from error

    def read(self, offset: int, end_offset: int) -> Sequence[RecordBatch]:
        """Return some whole batches from ``offset`` on, at least one, and none from ``end_offset`` on. Blocks; safe in
        any thread.

        Raises:
            OSError: the disk refused.
            OffsetOutOfRange: ``offset`` is before the log start offset.
        """
        fetched = self.log.read_with(methodcaller("read", offset, READ_BYTES, end_offset=end_offset)).result
        records = fetched.records
        data = records if isinstance(records, bytes) else records.read()
        return tuple(read_batches(data))

    def last_batch(self) -> RecordBatch | None:
        """Return the newest batch, None if there is none behind the newest snapshot. Blocks."""
        last, offset = None, self.log.log_start_offset
        while offset < self.log_end_offset:
            last = self.read(offset, self.log_end_offset)[-1]
            offset = last.header.next_offset
        return last

    def append_committed(self, data: bytes) -> None:
        """Append a batch that another metadata log has, as it stands there. Blocks.

        Raises:
            KafkaError: it does not go on from where this one ends.
            OSError: the disk refused or failed.
        """
        self.log.bind_to_thread()
        records = memoryview(bytearray(data))
        [batch] = read_batches(records)
        epoch = batch.header.partition_leader_epoch
        batches = self.log.check_replicated(records, epoch)
        self.log.begin_epochs_of(batches)
        if (unwritten := self.log.epochs.unwritten) is not None:
            self.log.write_epochs(unwritten)
            self.log.epochs.note_written(unwritten)
        self.log.append_as_follower(batches, records, self._clock.now_ms())
        self.leader_epoch = max(self.leader_epoch, epoch)
        self.log.note_synced(self._sync())

    def fail(self, error: OSError) -> None:
        """Take the log offline for good, and notify ``on_failure``."""
        if self.log.failure is None:
            self.log.fail(error)
        self.on_failure(error)

    async def append(self, batch: PreparedBatch) -> bytes:
        """Append ``batch`` and return its bytes in the log, once they are on the disk.

        The write is not cancellable: after a cancellation nobody could know whether the records are in the log.

        Raises:
            OSError: the disk refused and nothing was written, or it failed and the log accepts nothing more.
        """
        data = bytearray(batch.data)
        # Space that is kept back is for deletions and settings: new partitions would use it up.
        may_use_reserve = not any(isinstance(record, TopicRecord | PartitionRecord) for record in batch.records)
        with trio.CancelScope(shield=True):
            try:
                await self._append_with_room(data, may_use_reserve=may_use_reserve)
                # Append, then sync, then return: the records are published only after this.
                self.log.note_synced(await self._workers.run(self._sync, limiter=self._limiter))
            except OSError as error:
                if is_log_failure(error):
                    self.fail(error)
                raise
        return bytes(data)

    async def _append_with_room(self, data: bytearray, *, may_use_reserve: bool) -> None:
        while True:
            try:
                self._append(data, self.leader_epoch)
                return
            except OSError as error:
                if not (
                    may_use_reserve
                    and error.errno in SPACE_ERRNOS
                    and await self._workers.run(self._reserve.give_part_up)
                ):
                    raise

    # --- Snapshots ---

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log has grown enough since the last snapshot to be worth another."""
        return self.log.log_end_offset - self.log.log_start_offset >= SNAPSHOT_AFTER_RECORDS

    def take_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Write ``snapshot``, which yields the same image as all that was replayed up to its end, and delete the log
        before it. Blocks; not to be called while ``append`` runs.

        A crash at any point leaves either the old snapshot and the log after it, or the new snapshot and a log that may
        begin earlier than necessary.

        Raises:
            OSError: the disk refused. What was written is there still.
        """
        # In this order: the snapshot is durable before the log start moves past its records, and older snapshots are
        # removed only when the log is on the disk in its new form.
        log, now_ms = self.log, self._clock.now_ms()
        log.bind_to_thread()
        write_snapshot(log.disk, log.directory, snapshot)
        self.snapshot = snapshot.id
        log.roll(now_ms)
        # At no time is there a log without a segment on the disk, which a start would take for a lost one.
        log.sync()
        log.advance_log_start(snapshot.id.end_offset)
        log.delete_expired_segments(now_ms, log.log_end_offset)
        log.remove_deleted_files(now_ms)
        log.sync()
        remove_older(log.disk, log.directory, snapshot.id)

    def read_snapshot(self) -> MetadataSnapshot | None:
        """Return the newest snapshot, if there is one. Blocks.

        Raises:
            OSError: the disk refused.
        """
        if self.snapshot is None:
            return None
        content = self.log.disk.read_file(self.log.directory / self.snapshot.file_name)
        return MetadataSnapshot(self.snapshot, content)

    # --- The end ---

    def close(self) -> None:
        """Sync and close all files; a log whose disk failed is only released. Blocks."""
        self.log.bind_to_thread()
        try:
            if self.failure is None:
                self.log.close()
        except StorageFailed as error:
            logger.error("the metadata log was not closed properly: %s", error)
        # In any case, and without an error, which would prevent the clean stop of the partitions' logs: those may be on
        # other disks. The caller sees ``failure``.
        self.log.release()

    def _append(self, batch: bytearray, leader_epoch: int) -> int:
        """Write ``batch``, in which offset and epoch are stamped, and return its offset."""
        return self.log.append(
            batch,
            leader_epoch=leader_epoch,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.COORDINATOR,
        ).first_offset

    def _sync(self) -> SyncedFiles:
        synced = self.log.sync_files()
        # A file that has lost its name takes all of this without an error.
        self._require_in_place()
        return synced


def read_quorum_state(disk: Disk, path: PurePath) -> QuorumState:
    """Return what a ``quorum-state`` file says; without a file there has been no epoch.

    Raises:
        MetadataLogUnusable: the file is not what Kafka writes there.
    """
    try:
        state = json.loads(disk.read_file(path))
        leader_id, epoch = state["leaderId"], state["leaderEpoch"]
    except FileNotFoundError:
        return QuorumState(NO_LEADER, 0)
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataLogUnusable(f"{path} is not a quorum state: {error!r}") from error
    if not isinstance(epoch, int) or not 0 <= epoch < MAX_LEADER_EPOCH:
        raise MetadataLogUnusable(f"{path} has the leader epoch {epoch!r:.50}, and a start needs the one after it")
    return QuorumState(leader_id, epoch)


def write_quorum_state(disk: Disk, path: PurePath, node_id: int, leader_epoch: int, directory_id: bytes) -> None:
    """Write who leads in which epoch: one line of JSON, version 1 of Kafka's QuorumStateData. Durable on return."""
    state = {
        "leaderId": node_id,
        "leaderEpoch": leader_epoch,
        "votedId": node_id,
        "votedDirectoryId": uuid_text(directory_id),
        "data_version": 1,
    }
    write_atomically(disk, path, json.dumps(state, separators=(",", ":")).encode())
