"""Logs of our own storage in a data directory, the plans that a broker tells of them, and what comes of reading."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from broker_admin.encoding import encode
from broker_admin.views.node.segments import MANIFEST_VERSION, TopicManifest
from kafka_wire.primitives import uuid_text
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.partition.real_logs import make_partition
from tests.storage.compaction_harness import compact
from tests.storage.conftest import NOW_MS, TOPIC_ID, make_marker
from trio_broker.broker_view.node.segments import PartitionSnapshot, log_snapshot, partition_manifest
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.chunk import Decoding, Transport
from trio_broker.spark.decoder import decode
from trio_broker.spark.files.manifest import NoSuchTopic, PartitionLog, TopicLogFiles, parse_manifest
from trio_broker.spark.files.transport import FileTransport
from trio_broker.spark.ranges import OffsetRange
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log

CLUSTER_ID = "cluster"
ORDERS = TopicPartition("orders", 0)
COMPACTED = CleanupPolicy(delete=False, compact=True)


@attrs.define
class LogFiles:
    """One log in ``data_directory``, appended to directly. Leader epoch 3."""

    data_directory: Path
    log: Log
    now_ms: int = NOW_MS
    high_watermark: int | None = None
    sequences: dict[int, int] = attrs.field(factory=dict)

    @classmethod
    def create(
        cls, data_directory: Path, partition: TopicPartition = ORDERS, topic_id: bytes = TOPIC_ID, **config: Any
    ) -> LogFiles:
        log = open_log(
            RealDisk(),
            data_directory / str(partition),
            partition,
            topic_id,
            LogConfig(**config),
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=NOW_MS,
        ).log
        log.assign_epoch(3, 0)
        return cls(data_directory, log)

    @property
    def directory(self) -> Path:
        return Path(self.log.directory)

    def append(self, *values: bytes | None, key: bytes | None = None, epoch: int = 3) -> int:
        """Append a batch of records and return its base offset."""
        records = [NewRecord(self.now_ms, key, value) for value in values]
        data = bytearray(build_batch(records))
        return self.log.append(memoryview(data), leader_epoch=epoch, now_ms=self.now_ms).first_offset

    def fill(self, batches: int, value: bytes = b"") -> None:
        """Append batches of three records, each with its number as its value, behind ``value``."""
        for _ in range(batches):
            offset = self.log.log_end_offset
            self.append(*(value + b"%d" % (offset + index) for index in range(3)))

    def append_transaction(self, producer_id: int, *values: bytes, key: bytes | None = None) -> int:
        """Append a batch in a transaction that goes on; return its base offset."""
        records = [NewRecord(self.now_ms, key, value) for value in values]
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(records)
        data = build_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        return self.log.append(memoryview(bytearray(data)), leader_epoch=3, now_ms=self.now_ms).first_offset

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        marker = memoryview(make_marker(producer_id, committed=committed))
        self.log.append(marker, leader_epoch=3, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def compact(self) -> None:
        self.roll()
        compact(self.log, self.now_ms)

    def delete_before(self, offset: int) -> None:
        """Let retention take the segments that end at ``offset`` or before."""
        self.log.advance_log_start(offset)
        self.log.delete_expired_segments(self.now_ms, self.log.log_end_offset)
        self.log.remove_deleted_files(self.now_ms + self.log.config.file_delete_delay_ms)

    def plan(self) -> PartitionLog:
        """What a broker would tell of the log now, through its JSON."""
        return self.manifest().log(self.log.topic_partition.partition)

    def manifest(self) -> TopicLogFiles:
        partition = make_partition(self.log, leader_epoch=3)
        if self.high_watermark is not None:
            partition.writer.state.high_watermark = self.high_watermark
            partition.writer.state.last_stable_offset = min(partition.last_stable_offset, self.high_watermark)
        taken = PartitionSnapshot(self.log.topic_partition.partition, log_snapshot(partition))
        manifest = TopicManifest(
            version=MANIFEST_VERSION,
            cluster_id=CLUSTER_ID,
            node_id=1,
            topic=self.log.topic_partition.topic,
            topic_id=uuid_text(self.log.topic_id),
            partitions=(partition_manifest(taken),),
        )
        return parse_manifest(encode(manifest), self.log.topic_partition.topic)

    def range(self, start: int = 0, end: int | None = None) -> OffsetRange:
        return OffsetRange(self.log.topic_partition, start, self.log.log_end_offset if end is None else end)


@attrs.define
class CountedManifests:
    """A broker that tells of ``files`` as they are when asked; None for a topic that was deleted.

    ``inode_of`` changes what it tells of inodes: None as an older one, another number as where files are mounted.
    """

    files: LogFiles | None
    asked: int = 0
    before: Callable[[], object] = lambda: None
    inode_of: Callable[[Any], int | None] = lambda inode: inode

    def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicLogFiles:
        self.asked += 1
        self.before()
        if self.files is None:
            raise NoSuchTopic(f"there is no topic {topic!r}")
        manifest = self.files.manifest()
        logs = {number: self._with_inodes(log) for number, log in manifest.logs.items()}
        return attrs.evolve(manifest, logs=logs)

    def _with_inodes(self, log: PartitionLog) -> PartitionLog:
        segments = (attrs.evolve(each, inode=self.inode_of(each.inode)) for each in log.segments)
        return attrs.evolve(log, segments=tuple(segments))

    def for_workers(self) -> CountedManifests:
        return self


def transport(files: LogFiles, **options: object) -> FileTransport:
    """The files as they are now; ``manifests`` among the options makes a new plan possible."""
    return FileTransport(files.plan(), **options)  # type: ignore[arg-type]


def read(source: Transport, offsets: OffsetRange, *, read_committed: bool = True) -> list[tuple[int, bytes | None]]:
    """Offset and value of every row."""
    return list(rows(source, offsets, read_committed=read_committed))


def rows(
    source: Transport, offsets: OffsetRange, *, read_committed: bool = True
) -> Generator[tuple[int, bytes | None], None, None]:
    """As ``read``, a chunk at a time, for those who do something in between."""
    decoding = Decoding(("offset", "value"), read_committed=read_committed, batch_rows=1)
    with closing(source.chunks(offsets)) as chunks:
        for batch in decode(chunks, offsets, decoding):
            yield from zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)


def numbered(start: int, end: int, value: bytes = b"") -> list[tuple[int, bytes]]:
    """The rows that ``LogFiles.fill`` makes."""
    return [(offset, value + b"%d" % offset) for offset in range(start, end)]
