"""A data directory of ours as one that Kafka starts on: ``trio-broker export-kafka``.

Partitions, checkpoints and ``meta.properties`` are in Kafka's formats already and are copied byte for byte. The
metadata log is not: Kafka refuses one without a ``metadata.version``, which says what its own brokers may write. Its
content, as records, becomes the ``bootstrap.checkpoint``, which a controller of Kafka appends to a metadata log that is
empty. So topics keep their ids and settings, and brokers are registered by Kafka anew.

The source is locked and only read. Nothing is linked: Kafka changes files in place that a link would share. The marker
of a clean stop is written last, so a directory without it was not exported to its end.

Source: Kafka's BootstrapDirectory, ActivationRecordsGenerator; docs/moving-to-kafka.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

import attrs

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import read_batches
from kafka_wire.stored.metadata import FeatureLevelRecord, RegisterBrokerRecord, decode_metadata_record
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_delta import ContradictoryMetadata, replayed
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_snapshot import encode_snapshot, image_records, read_snapshot, snapshots
from trio_broker.runtime.disk import Disk, names_in, sync_file, write_atomically
from trio_broker.storage import file_names
from trio_broker.storage.errors import DataDirectoryError, ForeignDirectory
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.topic_partition import TopicPartition

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"

METADATA_VERSION: Final = 25
"""The feature level of 4.0-IV3, which every Kafka from 4.0 on knows; ``kafka-features upgrade`` raises it."""

COPIED_FILES: Final = (
    file_names.META_PROPERTIES,
    file_names.RECOVERY_POINT_CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT,
    file_names.HIGH_WATERMARK_CHECKPOINT,
    file_names.CLEANER_CHECKPOINT,
)
"""Of the data directory itself; the marker of a clean stop follows at the end."""


class ExportRefused(Exception):
    """The directory cannot be exported; the text is one line that says why."""


@attrs.frozen
class ExportedDirectory:
    """What was exported."""

    cluster_id: str
    node_id: int
    topics: int
    partitions: int


def export_to_kafka(disk: Disk, source: PurePath, target: PurePath, now_ms: int) -> ExportedDirectory:
    """Make ``target`` a data directory on which a Kafka of the same node id starts, with all that is in ``source``.

    Raises:
        ExportRefused: a broker works in ``source``, or it was not stopped cleanly, holds not all partitions, or cannot
            be read; or ``target`` is there and not empty.
        OSError: the disk refused. What is in ``target`` then has no marker of a clean stop.
    """
    if not disk.exists(source / file_names.META_PROPERTIES):
        raise ExportRefused(f"{source} is not a data directory: it has no {file_names.META_PROPERTIES}")
    if disk.exists(target) and disk.list_directory(target):
        raise ExportRefused(f"{target} is not empty")
    directory = LogDirectory(disk, source)
    try:
        properties = directory.open()
        assert properties is not None, "meta.properties is there"
        if not disk.exists(source / file_names.CLEAN_SHUTDOWN_MARKER):
            raise ExportRefused(f"{source} was not left by a clean stop: start the broker on it and stop it once")
        image = read_image(disk, source / file_names.CLUSTER_METADATA_DIRECTORY)
        partitions = exported_partitions(disk, source, image, properties.node_id)
        disk.make_directory(target)
        for partition in partitions:
            copy_directory(disk, source / str(partition), target / str(partition))
        for name in COPIED_FILES:
            copy_file(disk, source / name, target / name)
        content = b"".join(encode_snapshot(0, kafka_records(image), last_timestamp_ms=now_ms, now_ms=now_ms))
        write_atomically(disk, target / BOOTSTRAP_CHECKPOINT, content)
        disk.sync_directory(target.parent)
        marker = file_names.CLEAN_SHUTDOWN_MARKER
        write_atomically(disk, target / marker, disk.read_file(source / marker))
    except (DataDirectoryError, ForeignDirectory, MetadataLogUnusable, ContradictoryMetadata) as error:
        raise ExportRefused(str(error)) from error
    finally:
        directory.unlock()
    return ExportedDirectory(properties.cluster_id, properties.node_id, len(image.topics), len(partitions))


def read_image(disk: Disk, directory: PurePath) -> MetadataImage:
    """The image of the metadata log in ``directory``, which is not changed.

    Raises:
        MetadataLogUnusable: the log or its snapshot is damaged.
        ContradictoryMetadata: as ``MetadataDelta.replay``.
    """
    try:
        return replayed(metadata_records(disk, directory))
    except (KafkaError, WireError, NotImplementedError) as error:
        raise MetadataLogUnusable(f"{directory} cannot be read: {error}") from error


def metadata_records(disk: Disk, directory: PurePath) -> Iterator[Any]:
    """Yield the records of the newest snapshot and of the log behind it."""
    snapshot = max(snapshots(disk, directory), default=None)
    if snapshot is not None:
        yield from read_snapshot(disk, directory, snapshot)
    start_offset = snapshot.end_offset if snapshot is not None else 0
    for name in sorted(names_in(disk.list_directory(directory))):
        if file_names.offset_of(name, file_names.LOG_SUFFIX) is None:
            continue
        for batch in read_batches(disk.read_file(directory / name)):
            batch.verify_crc()
            if not batch.header.is_control:
                records = (record for record in batch.records() if record.offset >= start_offset)
                yield from (decode_metadata_record(record.value or b"") for record in records)


def exported_partitions(disk: Disk, source: PurePath, image: MetadataImage, node_id: int) -> list[TopicPartition]:
    """The partitions of all topics, each of which has to lie in ``source``.

    Raises:
        ExportRefused: one is on another node or in another data directory.
    """
    partitions = []
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            partition = TopicPartition(topic.name, index)
            if tuple(state.replicas) != (node_id,):
                raise ExportRefused(
                    f"{partition} has replicas on {list(state.replicas)}, and only node {node_id} is here"
                )
            if not disk.is_directory(source / str(partition)):
                raise ExportRefused(
                    f"{partition} is not in {source}: only a broker with one data directory is exported"
                )
            partitions.append(partition)
    return partitions


def kafka_records(image: MetadataImage) -> Iterator[Any]:
    """The records of ``image`` for Kafka: with a metadata version, and without the broker, which registers itself."""
    yield FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)
    yield from (record for record in image_records(image) if not isinstance(record, RegisterBrokerRecord))


def copy_directory(disk: Disk, source: PurePath, target: PurePath) -> None:
    """Copy a partition's files, durably; what is being deleted or was put aside stays behind."""
    disk.make_directory(target)
    for name in names_in(disk.list_directory(source)):
        if not name.endswith(file_names.DELETED_SUFFIX) and ".corrupt-" not in name:
            copy_file(disk, source / name, target / name)
    disk.sync_directory(target)


def copy_file(disk: Disk, source: PurePath, target: PurePath) -> None:
    """Copy a file, durably, with its time of modification, by which retention goes; one that is not there is none."""
    if disk.exists(source):
        disk.copy(source, target)
        disk.set_modified(target, disk.status(source).modified_ns)
        sync_file(disk, target)
