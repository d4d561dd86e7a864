"""The metadata log: KRaft's records in ``__cluster_metadata-0``, with a quorum of one.

An ordinary log of this broker, with three additions. An append returns when it is durable, whatever ``log.durability``
says. Every start begins a new leader epoch: it is written to ``quorum-state`` first, and the first batch of the epoch
is a LEADER_CHANGE control record. And a gap is never accepted: where the data log quarantines damage and continues,
this one refuses to open until an operator has acted, because a lost record here is a lost topic.

Records of one append share a batch and with it a checksum, so after a crash all of them are there or none.

The log is kept short by snapshots (``metadata_snapshot``): a start that read many records writes one of the image and
deletes the log before it. The log start offset is the end offset of the newest snapshot and is stored nowhere else.

Everything blocks except ``append``, which waits in a worker thread; a start calls ``open`` and ``replay`` in one too.

Source: docs/formats/metadata-log.md; Kafka's KafkaRaftClient, FileQuorumStateStore, MetadataRecordSerde.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Final, Protocol

import attrs
import trio

from kafka_wire.errors import WireError
from kafka_wire.limits import INT32_MAX
from kafka_wire.primitives import NO_UUID, uuid_text
from kafka_wire.records.batch import build_batch_in_turns, read_batches
from kafka_wire.records.control import ControlRecord, ControlRecordType, build_control_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import PartitionRecord, TopicRecord, decode_metadata_record, encode_metadata_record
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.metadata_snapshot import SnapshotId, read_snapshot, remove_older, snapshots, write_snapshot
from trio_broker.cluster.quorum_info import QuorumInfo
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import in_turns
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk, names_in, write_atomically
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import file_names
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.errors import StorageFailed, is_log_failure
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

KEEP_FOR_EVER: Final = -1
"""Segments are deleted when a snapshot contains them, never for their age or size."""

SNAPSHOT_AFTER_RECORDS: Final = 10_000
"""Records since the last snapshot after which a start writes another: they take a start some tenths of a second."""

_ASIDE = ".corrupt-"


class WithReserve(Protocol):
    """See ``LogDirectory.with_reserve``."""

    def __call__(self, work: Callable[[], int], /) -> int: ...


def do_at_once(work: Callable[[], int], /) -> int:
    """Do ``work`` where no space is kept back."""
    return work()


def trust() -> None:
    """Take the directory for the one that was locked, where nothing locks it."""


@attrs.frozen
class QuorumState:
    """Who leads in which epoch, ``NO_LEADER`` while nobody does. In a quorum of one only the epoch counts."""

    leader_id: int
    leader_epoch: int


class MetadataLog:
    """Appends records durably and replays them. Made by ``open``, which begins a new leader epoch."""

    def __init__(
        self,
        log: Log,
        runtime: Runtime,
        *,
        node_id: int,
        leader_epoch: int,
        snapshot: SnapshotId | None,
        directory_id: bytes = NO_UUID,
        with_reserve: WithReserve = do_at_once,
        require_in_place: Callable[[], None] = trust,
    ) -> None:
        """``with_reserve`` does what must be possible on a full disk too: topics are deleted by way of this log.

        ``require_in_place`` raises ``OSError`` where the files of the log are no longer those of the data directory.
        """
        self.log = log
        self._with_reserve = with_reserve
        self._require_in_place = require_in_place
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.directory_id = directory_id
        self.snapshot = snapshot
        # Called when the disk has failed, once and for good.
        self.on_failure: Callable[[OSError], object] = log.fail
        self._last_timestamp_ms = -1
        self._clock = runtime.clock
        self._workers = runtime.workers
        # One token: batches reach the log one at a time, and never wait for the threads of requests.
        self._limiter = trio.CapacityLimiter(1)

    @classmethod
    def open(
        cls,
        data_directory: PurePath,
        runtime: Runtime,
        *,
        node_id: int,
        directory_id: bytes = NO_UUID,
        with_reserve: WithReserve = do_at_once,
        require_in_place: Callable[[], None] = trust,
    ) -> MetadataLog:
        """Open the metadata log of ``data_directory``, or create it, and begin a new leader epoch. Blocks.

        A torn tail is cut: it was never acknowledged.

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
        state_file = directory / file_names.QUORUM_STATE
        # The largest of three sources: after a crash between the writes, or with a quorum-state file that was lost, one
        # of them is older, and an epoch must never be used twice.
        epochs = (
            read_quorum_state(disk, state_file).leader_epoch,
            log.latest_epoch or 0,
            snapshot.epoch if snapshot is not None else 0,
        )
        # What was replayed is in effect from here on, and so has to stay.
        log.sync_after_crash()
        # The name of a new log's directory: without it a power cut takes all that is appended.
        disk.sync_directory(data_directory)
        leader_epoch = max(epochs) + 1
        # In this order: a quorum state without any segment proves that the log was lost.
        disk.sync_directory(directory)
        # Written before the first batch of the epoch: if the broker dies between the two, the next start skips an
        # epoch.
        write_quorum_state(disk, state_file, node_id, leader_epoch, directory_id)
        opened = cls(
            log,
            runtime,
            node_id=node_id,
            leader_epoch=leader_epoch,
            snapshot=snapshot,
            directory_id=directory_id,
            with_reserve=with_reserve,
            require_in_place=require_in_place,
        )
        opened._append_leader_change(node_id)
        return opened

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    @property
    def failure(self) -> OSError | None:
        """What took the log offline for good, if anything did."""
        return self.log.failure

    @property
    def quorum(self) -> QuorumInfo:
        """The quorum of one. The high watermark is the end of what is durable: its only voter has not more."""
        return QuorumInfo(
            leader_id=self.node_id,
            leader_epoch=self.leader_epoch,
            high_watermark=min(self.log.recovery_point, self.log_end_offset),
            log_end_offset=self.log_end_offset,
            directory_id=self.directory_id,
        )

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
        offset, end_offset = self.log.log_start_offset, self.log.log_end_offset
        while offset < end_offset:
            fetched = self.log.read(offset, READ_BYTES, end_offset=end_offset).records
            data = fetched if isinstance(fetched, bytes) else fetched.read()
            for batch in read_batches(data):
                offset = batch.header.next_offset
                if not batch.header.is_control:
                    yield from (self._decode(record.offset, record.value) for record in batch.records())

    def _decode(self, offset: int, value: bytes | None) -> Any:
        try:
            return decode_metadata_record(value or b"")
        except WireError as error:
            raise MetadataLogUnusable(f"{self.log.directory}: the record at offset {offset}: {error}") from error

    async def append(self, records: Sequence[Any]) -> int:
        """Append ``records`` as one batch and return the offset of the first, once all are on the disk.

        The write is not cancellable: after a cancellation nobody could know whether the records are in the log.

        Raises:
            OSError: the disk refused and nothing was written, or it failed and the log accepts nothing more.
        """
        now_ms = self._clock.now_ms()
        values = (NewRecord(now_ms, None, encode_metadata_record(record)) for record in records)
        batch = await in_turns(build_batch_in_turns(values))
        try:
            append = partial(self._append_durably, batch)
            # Space that is kept back is for deletions and settings: new partitions would use it up.
            if not any(isinstance(record, TopicRecord | PartitionRecord) for record in records):
                append = partial(self._with_reserve, append)
            return await self._workers.run(append, limiter=self._limiter)
        except OSError as error:
            if is_log_failure(error):
                self.on_failure(error)
            raise

    # --- Snapshots ---

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log has grown enough since the last snapshot to be worth another."""
        return self.log.log_end_offset - self.log.log_start_offset >= SNAPSHOT_AFTER_RECORDS

    def take_snapshot(self, records: Iterable[Any]) -> None:
        """Write a snapshot of ``records``, which yield the same image as all that was replayed, and delete the log
        before it. Blocks; not to be called while ``append`` runs.

        A crash at any point leaves either the old snapshot and the log after it, or the new snapshot and a log that may
        begin earlier than necessary.

        Raises:
            OSError: the disk refused. What was written is there still.
        """
        # In this order: the snapshot is durable before the log start moves past its records, and older snapshots are
        # removed only when the log is on the disk in its new form.
        log, now_ms = self.log, self._clock.now_ms()
        snapshot = SnapshotId(log.log_end_offset, self.leader_epoch)
        written_ms = self._last_timestamp_ms
        write_snapshot(log.disk, log.directory, snapshot, records, last_timestamp_ms=written_ms, now_ms=now_ms)
        self.snapshot = snapshot
        log.roll(now_ms)
        # At no time is there a log without a segment on the disk, which a start would take for a lost one.
        log.sync()
        log.advance_log_start(snapshot.end_offset)
        log.delete_expired_segments(now_ms, log.log_end_offset)
        log.remove_deleted_files(now_ms)
        log.sync()
        remove_older(log.disk, log.directory, snapshot)

    # --- The end ---

    def close(self) -> None:
        """Sync and close all files; a log whose disk failed is only released. Blocks."""
        try:
            if self.failure is None:
                self.log.close()
        except StorageFailed as error:
            logger.error("the metadata log was not closed properly: %s", error)
        # In any case, and without an error, which would prevent the clean stop of the partitions' logs: those may be on
        # other disks. The caller sees ``failure``.
        self.log.release()

    def _append_leader_change(self, node_id: int) -> None:
        control = ControlRecord(ControlRecordType.LEADER_CHANGE, leader_change_value(node_id))
        self._append_durably(build_control_batch(control, timestamp=self._clock.now_ms()))

    def _append_durably(self, batch: bytes) -> int:
        info = self.log.append(
            bytearray(batch),
            leader_epoch=self.leader_epoch,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.COORDINATOR,
        )
        self._last_timestamp_ms = info.max_timestamp
        # Append, then sync, then return: the records are published only after this.
        durable = self.log.sync()
        assert durable > info.last_offset, f"durable to {durable}, appended to {info.last_offset}"
        # A file that has lost its name takes all of this without an error.
        self._require_in_place()
        return info.first_offset


def leader_change_value(node_id: int) -> bytes:
    """Return a LeaderChangeMessage of version 0 in which ``node_id`` is elected by itself, the only voter.

    int16 version and int32 leader id, then twice a compact array of voters (int32 id, no tags), and no tags.
    """
    voters = b"\x02" + struct.pack(">i", node_id) + b"\x00"
    return struct.pack(">hi", 0, node_id) + voters + voters + b"\x00"


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
