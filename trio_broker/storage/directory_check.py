"""The check of a data directory that no broker has open: the work behind ``trio-broker fsck``.

``read_directory`` looks at what concerns all partitions: ``meta.properties``, the four checkpoints, and what the
metadata log says of topics. It also plans the partitions' checks, which stand alone and may run in any process.

Source: docs/commands.md, fsck.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import attrs

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import RecordBatch
from kafka_wire.stored.metadata import ConfigRecord, RemoveTopicRecord, TopicRecord, decode_metadata_record
from trio_broker.common.topic_names import INTERNAL_TOPICS
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import Disk
from trio_broker.storage import batch_scan, checkpoints, file_names
from trio_broker.storage.errors import CorruptCheckpoint, ForeignDirectory
from trio_broker.storage.findings import FindingKind, StorageFinding
from trio_broker.storage.log_directory import MetaProperties
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.partition_check import PartitionBounds, check_metadata_snapshot

CLEANUP_POLICY = "cleanup.policy"

_CHECKPOINT_KINDS = {
    file_names.RECOVERY_POINT_CHECKPOINT: FindingKind.CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT: FindingKind.LOG_START_CHECKPOINT,
    file_names.HIGH_WATERMARK_CHECKPOINT: FindingKind.CHECKPOINT,
    file_names.CLEANER_CHECKPOINT: FindingKind.CHECKPOINT,
    file_names.SCRUBBER_CHECKPOINT: FindingKind.CHECKPOINT,
}


@attrs.frozen
class PartitionTask:
    """One partition to be checked."""

    directory: PurePath
    topic_partition: TopicPartition
    bounds: PartitionBounds
    size_bytes: int


@attrs.define
class DirectoryFacts:
    """A data directory: what is wrong with its own files, and the partitions in it."""

    path: PurePath
    was_clean: bool
    properties: MetaProperties | None = None
    findings: list[StorageFinding] = attrs.field(factory=list)
    tasks: list[PartitionTask] = attrs.field(factory=list)


@attrs.define
class TopicFacts:
    """What the metadata log says of topics: their ids, and those that are or were compacted. ``is_known`` is false
    where there is no metadata log that could be read to its end."""

    ids: dict[str, bytes] = attrs.field(factory=dict)
    compacted: set[str] = attrs.field(factory=set)
    every_topic_compacted: bool = False
    is_known: bool = False

    def apply(self, record: object) -> None:
        """Take the next record of the metadata log."""
        if isinstance(record, TopicRecord):
            self.ids[record.name] = record.topic_id
        elif isinstance(record, RemoveTopicRecord):
            self.ids = {name: topic_id for name, topic_id in self.ids.items() if topic_id != record.topic_id}
        elif isinstance(record, ConfigRecord) and "compact" in (record.value or ""):
            if record.name == CLEANUP_POLICY:
                self.compacted.add(record.resource_name)
            elif record.name == f"log.{CLEANUP_POLICY}":
                self.every_topic_compacted = True


def read_topics(disk: Disk, directories: Sequence[PurePath]) -> TopicFacts:
    """Read the metadata log in the one of ``directories`` that has it. Damage in it is reported by its own check."""
    facts = TopicFacts()
    for data_directory in directories:
        directory = data_directory / file_names.CLUSTER_METADATA_DIRECTORY
        if not disk.is_directory(directory):
            continue
        names = sorted(entry.name for entry in disk.list_directory(directory))
        snapshots = [name for name in names if name.endswith(file_names.METADATA_SNAPSHOT_SUFFIX)]
        logs = [name for name in names if file_names.offset_of(name, file_names.LOG_SUFFIX) is not None]
        bootstrap = data_directory / file_names.BOOTSTRAP_CHECKPOINT
        paths = [directory / name for name in (*snapshots[-1:], *logs)]
        try:
            for path in ([bootstrap] if disk.exists(bootstrap) else []) + paths:
                _apply_all(disk, path, facts)
        except (KafkaError, WireError):
            return TopicFacts()
        facts.is_known = True
    return facts


def _apply_all(disk: Disk, path: PurePath, facts: TopicFacts) -> None:
    size = disk.status(path).size_bytes
    for located in batch_scan.whole_batches(LogFile(disk, path, read_only=True), 0, size):
        batch = RecordBatch(located.header, located.buffer)
        batch.verify_crc()
        if not batch.header.is_control:
            for record in batch.records():
                facts.apply(decode_metadata_record(record.value or b""))


def read_directory(disk: Disk, path: PurePath, topics: TopicFacts) -> DirectoryFacts:
    """Check the files of a data directory itself, and plan the checks of its partitions. Blocks.

    Raises:
        OSError: the disk refused.
    """
    facts = DirectoryFacts(path, was_clean=disk.exists(path / file_names.CLEAN_SHUTDOWN_MARKER))
    facts.properties = _read_properties(disk, facts)
    offsets = {name: _read_offsets(disk, facts, name) for name in _CHECKPOINT_KINDS}
    if disk.exists(path / file_names.BOOTSTRAP_CHECKPOINT):
        facts.findings += check_metadata_snapshot(disk, path / file_names.BOOTSTRAP_CHECKPOINT)
    recovery_points = offsets[file_names.RECOVERY_POINT_CHECKPOINT] or {}
    log_starts = offsets[file_names.LOG_START_OFFSET_CHECKPOINT] or {}
    high_watermarks = offsets[file_names.HIGH_WATERMARK_CHECKPOINT] or {}
    cleaned = offsets[file_names.CLEANER_CHECKPOINT]
    for entry in sorted(disk.list_directory(path), key=lambda each: each.name):
        partition = file_names.parse_partition_directory(entry.name) if entry.is_directory else None
        if partition is None:
            continue
        is_compacted = (
            partition.topic in INTERNAL_TOPICS
            or topics.every_topic_compacted
            or partition.topic in topics.compacted
            # Without the metadata, or its checkpoint, nobody knows where the cleaner was.
            or not topics.is_known
            or cleaned is None
            or partition in cleaned
        )
        bounds = PartitionBounds(
            was_clean=facts.was_clean,
            may_have_gaps=is_compacted,
            recovery_point=recovery_points.get(partition),
            log_start_offset=log_starts.get(partition),
            high_watermark=high_watermarks.get(partition),
            topic_id=topics.ids.get(partition.topic) if topics.is_known else None,
        )
        directory = path / entry.name
        facts.tasks.append(PartitionTask(directory, partition, bounds, _log_bytes(disk, directory)))
    return facts


def _log_bytes(disk: Disk, directory: PurePath) -> int:
    return sum(
        disk.status(directory / entry.name).size_bytes
        for entry in disk.list_directory(directory)
        if entry.name.endswith(file_names.LOG_SUFFIX)
    )


def _read_properties(disk: Disk, facts: DirectoryFacts) -> MetaProperties | None:
    path = facts.path / file_names.META_PROPERTIES
    try:
        return MetaProperties.decode(disk.read_file(path), str(path))
    except FileNotFoundError:
        facts.findings.append(StorageFinding(FindingKind.IDENTITY, path, "it is missing: is this a data directory?"))
    except ForeignDirectory as error:
        facts.findings.append(StorageFinding(FindingKind.IDENTITY, path, str(error)))
    return None


def _read_offsets(disk: Disk, facts: DirectoryFacts, name: str) -> dict[TopicPartition, int] | None:
    """Return what a checkpoint says, None where it cannot be read."""
    path = facts.path / name
    try:
        offsets = checkpoints.read_offsets(disk, path)
        negative = next((partition for partition, offset in offsets.items() if offset < 0), None)
        if negative is None:
            return offsets
        detail = f"{path}: {negative} is at {offsets[negative]}"
    except CorruptCheckpoint as error:
        detail = str(error)
    facts.findings.append(StorageFinding(_CHECKPOINT_KINDS[name], path, detail))
    return None


def compare_identities(directories: Sequence[DirectoryFacts]) -> list[StorageFinding]:
    """Report directories that belong to another cluster or node than the first."""
    known = [(each.path, each.properties) for each in directories if each.properties is not None]
    findings: list[StorageFinding] = []
    for path, other in known[1:]:
        first_path, first = known[0]
        if (first.cluster_id, first.node_id) != (other.cluster_id, other.node_id):
            detail = (
                f"of node {other.node_id} in cluster {other.cluster_id}; {first_path} is of node {first.node_id}"
                f" in {first.cluster_id}"
            )
            findings.append(StorageFinding(FindingKind.IDENTITY, path / file_names.META_PROPERTIES, detail))
        elif first.directory_id and first.directory_id == other.directory_id:
            detail = f"its directory id is that of {first_path}: one is a copy"
            findings.append(StorageFinding(FindingKind.IDENTITY, path / file_names.META_PROPERTIES, detail))
    return findings
