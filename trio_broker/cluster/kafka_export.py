"""Data directories of ours as those that Kafka starts on: ``trio-broker export-kafka``.

Each directory is copied to another, byte for byte, but for the metadata log: Kafka refuses one without a
``metadata.version``, which says what its own brokers may write. Its content, as records, becomes the
``bootstrap.checkpoint``, which a controller of Kafka appends to a metadata log that is empty. So topics keep their ids
and settings, and brokers are registered by Kafka anew.

The sources are locked and only read. Nothing is linked: Kafka changes files in place that a link would share. The
markers of a clean stop are written last, so a directory without one was not exported to its end.

Source: Kafka's BootstrapDirectory, ActivationRecordsGenerator; docs/kafka-data-directories.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import attrs

from kafka_wire.stored.metadata import FeatureLevelRecord
from trio_broker.cluster.features import FIXED, METADATA_VERSION
from trio_broker.cluster.kafka_handover import (
    RECORD_KINDS,
    HandoverRefused,
    RecordKind,
    metadata_directory,
    partition_directories,
    stopped_directories,
)
from trio_broker.cluster.metadata_delta import replayed
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_snapshot import encode_snapshot, image_records
from trio_broker.cluster.stored_metadata import read_stored_metadata
from trio_broker.runtime.disk import Disk, names_in, sync_file, write_atomically
from trio_broker.storage import file_names

COPIED_FILES: Final = (
    file_names.META_PROPERTIES,
    file_names.RECOVERY_POINT_CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT,
    file_names.HIGH_WATERMARK_CHECKPOINT,
    file_names.CLEANER_CHECKPOINT,
)
"""Of the data directory itself; the marker of a clean stop follows at the end."""


@attrs.frozen
class Exported:
    """What was exported. ``log_dirs`` are the targets, first the one with the metadata."""

    cluster_id: str
    node_id: int
    topics: int
    partitions: int
    log_dirs: tuple[PurePath, ...]


def export_to_kafka(disk: Disk, targets: Mapping[PurePath, PurePath], now_ms: int) -> Exported:
    """Make data directories on which a Kafka of the same node id starts; ``targets`` says where each of ours goes.

    Raises:
        HandoverRefused: a broker works in a source, or it was not stopped cleanly, or they do not hold all partitions,
            or cannot be read; or a target is there and not empty.
        OSError: the disk refused. What is in the targets then has no markers of a clean stop.
    """
    sources = list(targets)
    for target in targets.values():
        if disk.exists(target) and disk.list_directory(target):
            raise HandoverRefused(f"{target} is not empty")
    with stopped_directories(disk, sources) as properties:
        metadata_source = metadata_directory(disk, sources)
        image = replayed(read_stored_metadata(disk, metadata_source / file_names.CLUSTER_METADATA_DIRECTORY).records)
        partitions = partition_directories(disk, sources, image, properties.node_id)
        for source, target in targets.items():
            disk.make_directory(target)
            for name in COPIED_FILES:
                copy_file(disk, source / name, target / name)
        for directory in partitions.values():
            copy_directory(disk, directory, targets[directory.parent] / directory.name)
        content = b"".join(encode_snapshot(0, kafka_records(image), last_timestamp_ms=now_ms, now_ms=now_ms))
        write_atomically(disk, targets[metadata_source] / file_names.BOOTSTRAP_CHECKPOINT, content)
        for source, target in targets.items():
            disk.sync_directory(target.parent)
            marker = file_names.CLEAN_SHUTDOWN_MARKER
            write_atomically(disk, target / marker, disk.read_file(source / marker))
    log_dirs = sorted(targets, key=lambda source: source != metadata_source)
    return Exported(
        properties.cluster_id,
        properties.node_id,
        len(image.topics),
        len(partitions),
        tuple(targets[source] for source in log_dirs),
    )


def kafka_records(image: MetadataImage) -> Iterator[Any]:
    """The records of ``image`` for Kafka: with a metadata version, and without the broker, which registers itself."""
    # ``kafka-features upgrade`` raises it.
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=FIXED[METADATA_VERSION])
    for record in image_records(image):
        if RECORD_KINDS[type(record)] is not RecordKind.REGISTRATION:
            yield record


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
