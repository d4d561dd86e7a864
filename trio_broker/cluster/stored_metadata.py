"""A metadata log that no broker has open: read to its end, and not changed.

It may be ours or that of a Kafka, whose files have the same form. Which one it is shows at its beginning: Kafka's
controller writes a ``metadata.version`` before anything else, in the log and in each snapshot; this broker has none.

Source: Kafka's RecordsBatchReader, MetadataBatchLoader for transactions; docs/formats/metadata-log.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

import attrs

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import RecordBatch, read_batches
from kafka_wire.stored.metadata import (
    FeatureLevelRecord,
    decode_metadata_record,
)
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.features import METADATA_VERSION
from trio_broker.cluster.leader_change import LeaderChange, leader_change_in
from trio_broker.cluster.metadata_snapshot import read_snapshot, snapshots
from trio_broker.cluster.metadata_transactions import MetadataTransactions
from trio_broker.runtime.disk import Disk, names_in
from trio_broker.storage import file_names

OPENING_RECORDS: Final = 2
"""Among which the metadata version is: Kafka may begin a transaction first."""


@attrs.frozen
class StoredMetadata:
    """The records of a metadata log that count: of the newest snapshot, and of the log behind it.

    ``end_offset`` is that of the next record, and ``epoch`` that of the last one. ``leader_change`` is the last
    one that the log still has.
    """

    records: Sequence[Any]
    end_offset: int
    epoch: int
    leader_change: LeaderChange | None


def read_stored_metadata(disk: Disk, directory: PurePath) -> StoredMetadata:
    """Read the metadata log in ``directory``.

    Raises:
        MetadataLogUnusable: the log or its snapshot is damaged, or a record is of an unknown kind.
        OSError: the disk refused.
    """
    snapshot = max(snapshots(disk, directory), default=None)
    records = list(read_snapshot(disk, directory, snapshot)) if snapshot is not None else []
    start_offset = snapshot.end_offset if snapshot is not None else 0
    end_offset, epoch = start_offset, snapshot.epoch if snapshot is not None else 0
    leader_change: LeaderChange | None = None
    try:
        for batch in stored_batches(disk, directory):
            leader_change = leader_change_in(batch) or leader_change
            if batch.header.next_offset <= start_offset:
                continue
            if batch.header.base_offset > end_offset:
                raise WireError(f"nothing is there between the offsets {end_offset} and {batch.header.base_offset}")
            end_offset, epoch = batch.header.next_offset, batch.header.partition_leader_epoch
            if not batch.header.is_control:
                kept = (record for record in batch.records() if record.offset >= start_offset)
                records += [decode_metadata_record(record.value or b"") for record in kept]
    except (KafkaError, WireError) as error:
        raise MetadataLogUnusable(f"{directory} cannot be read: {error}") from error
    return StoredMetadata(list(MetadataTransactions().settled(records)), end_offset, epoch, leader_change)


def stored_batches(disk: Disk, directory: PurePath) -> Iterator[RecordBatch]:
    """Yield the batches of all segments of a log, whose checksums are right.

    Raises:
        KafkaError, WireError: a batch is damaged, or a segment does not end with a whole one.
    """
    for name in sorted(names_in(disk.list_directory(directory))):
        if file_names.offset_of(name, file_names.LOG_SUFFIX) is None:
            continue
        content, position = disk.read_file(directory / name), 0
        for batch in read_batches(content):
            batch.verify_crc()
            position += batch.header.size_bytes
            yield batch
        # ``read_batches`` stops without an error at a batch that is cut short.
        if position < len(content):
            raise WireError(f"{name} has no whole batch at position {position}")


def is_of_kafka(disk: Disk, directory: PurePath) -> bool:
    """Whether a Kafka has written the metadata log in ``directory``, or the newest snapshot there, or goes on behind a
    snapshot of ours, to which it appends a metadata version as to an empty log. False for a log that is damaged."""
    try:
        return any(
            isinstance(each, FeatureLevelRecord) and each.name == METADATA_VERSION
            for opening in openings(disk, directory)
            for each in itertools.islice(opening, OPENING_RECORDS)
        )
    except (KafkaError, WireError, MetadataLogUnusable):
        return False


def openings(disk: Disk, directory: PurePath) -> Iterator[Iterator[Any]]:
    """Yield the records of the newest snapshot, and then those of the log behind it, as they stand there."""
    snapshot = max(snapshots(disk, directory), default=None)
    if snapshot is not None:
        yield read_snapshot(disk, directory, snapshot)
    yield log_records(disk, directory, snapshot.end_offset if snapshot is not None else 0)


def log_records(disk: Disk, directory: PurePath, start_offset: int) -> Iterator[Any]:
    """Yield the records of the log from ``start_offset`` on."""
    for batch in stored_batches(disk, directory):
        if batch.header.next_offset > start_offset and not batch.header.is_control:
            kept = (record for record in batch.records() if record.offset >= start_offset)
            yield from (decode_metadata_record(record.value or b"") for record in kept)


def require_own_metadata(disk: Disk, data_directories: Sequence[PurePath]) -> None:
    """Refuse to start on data directories that a Kafka has left, before anything in them is changed.

    Raises:
        MetadataLogUnusable: a metadata log is Kafka's, or there is none in the first directory, where a broker would
            begin a new one, and one in another.
    """
    for path in data_directories:
        directory = path / file_names.CLUSTER_METADATA_DIRECTORY
        if not disk.is_directory(directory):
            continue
        if is_of_kafka(disk, directory):
            paths = " ".join(map(str, data_directories))
            raise MetadataLogUnusable(
                f"{path} was left by Apache Kafka; to take it over: trio-broker import-kafka {paths}"
            )
        if not disk.is_directory(data_directories[0] / file_names.CLUSTER_METADATA_DIRECTORY):
            raise MetadataLogUnusable(f"{directory} has the metadata: name {path} first in log.dirs")
