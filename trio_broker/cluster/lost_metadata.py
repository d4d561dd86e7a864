"""Proofs that the metadata log has lost records, for which a start is refused.

A log that is gone, empty or cut at a batch reads as one that never had more: topics, settings and groups would be away,
and the partitions' directories renamed to strays. What no kill and no power cut leaves behind proves that it had:

* After a clean stop the log ends where its newest producer snapshot stands, and is there: the marker comes last.
* ``quorum-state`` is written after the names of the log's segments are on the disk, and one of them always is.
* A topic is in the log before any of its partitions has a directory. Where no snapshot has taken the place of the log's
  beginning, it has every topic that ever was, deleted ones too. A snapshot is taken when the directories of deleted
  topics have other names, so it has the topic of each partition in the data directories that it names.

Each is looked at before it is changed, so that a refused start is refused again.

Source: docs/decisions/0068-a-start-without-its-metadata.md, 0073-a-snapshot-proves-its-partitions.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import attrs

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import read_batches
from kafka_wire.stored.metadata import RegisterBrokerRecord, TopicRecord
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_snapshot import snapshots
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import Disk, names_in
from trio_broker.storage import file_names, partition_metadata, producer_snapshot
from trio_broker.storage.errors import CorruptCheckpoint

CONSEQUENCE: Final = "topics, settings and groups are lost with it. Bring it back from a copy, or, to start without it,"


def require_whole_log(disk: Disk, data_directory: PurePath) -> None:
    """Refuse a metadata log that ends before what a clean stop left, or has no segment. Changes nothing.

    Raises:
        MetadataLogUnusable: it is proven to have been longer.
        OSError: the disk refused.
    """
    directory = data_directory / file_names.CLUSTER_METADATA_DIRECTORY
    names = names_in(disk.list_directory(directory)) if disk.is_directory(directory) else []
    has_segment = any(file_names.offset_of(name, file_names.LOG_SUFFIX) is not None for name in names)
    if file_names.QUORUM_STATE in names and not has_segment:
        raise MetadataLogUnusable(f"{directory} has no segment of the metadata log: {CONSEQUENCE} move it away")
    marker = data_directory / file_names.CLEAN_SHUTDOWN_MARKER
    if not disk.exists(marker):
        return
    if not names:
        raise MetadataLogUnusable(f"{directory} is gone since the last clean stop: {CONSEQUENCE} remove {marker}")
    end_offset = end_of_log(disk, directory)
    reached = max(producer_snapshot.offsets(disk, directory), default=1)
    if end_offset is not None and end_offset < reached:
        raise MetadataLogUnusable(
            f"{directory} ends at offset {end_offset}, and ended at {reached} after the last clean stop: {CONSEQUENCE}"
            f" remove {marker}"
        )


def end_of_log(disk: Disk, directory: PurePath) -> int | None:
    """Return the offset behind the last whole batch of a metadata log, or its newest snapshot; None where damage before
    that hides it, which the opening of the log judges."""
    newest = max(snapshots(disk, directory), default=None)
    end_offset = 0 if newest is None else newest.end_offset
    for name in sorted(names_in(disk.list_directory(directory))):
        if file_names.offset_of(name, file_names.LOG_SUFFIX) is None:
            continue
        batch = None
        try:
            # Checksums before the last are not asked: with a batch behind it damage is no end.
            for batch in read_batches(disk.read_file(directory / name)):
                end_offset = max(end_offset, batch.header.base_offset)
        except (KafkaError, WireError):
            return None
        try:
            if batch is not None:
                batch.verify_crc()
                end_offset = max(end_offset, batch.header.next_offset)
        except KafkaError:
            continue
    return end_offset


@attrs.define
class MentionedTopics:
    """The topics that a metadata log tells of, deleted ones too: their names and ids; and ``log_dirs``, the ids of the
    data directories of which its snapshot has every topic, None without a snapshot."""

    names: set[str] = attrs.field(factory=set)
    ids: set[bytes] = attrs.field(factory=set)
    log_dirs: set[bytes] | None = None

    def noted_in(self, records: Iterable[Any]) -> Iterator[Any]:
        """Yield ``records``, and note their topics."""
        for record in records:
            if isinstance(record, TopicRecord):
                self.names.add(record.name)
                self.ids.add(record.topic_id)
            yield record

    def noted_in_snapshot(self, records: Iterable[Any]) -> Iterator[Any]:
        """As ``noted_in``, of the records of a snapshot."""
        self.log_dirs = set()
        for record in self.noted_in(records):
            if isinstance(record, RegisterBrokerRecord):
                self.log_dirs.update(record.log_dirs)
            yield record

    def is_complete_for(self, directory_id: bytes) -> bool:
        """Whether the topic of each partition in this data directory is noted, were nothing lost."""
        return self.log_dirs is None or (directory_id != NO_UUID and directory_id in self.log_dirs)


def require_topics(disk: Disk, directory_ids: Mapping[PurePath, bytes], topics: MentionedTopics) -> None:
    """Refuse a metadata log that lacks the topic of any partition with records, in the directories for which
    ``topics`` is complete. The first of ``directory_ids`` has the log.

    Raises:
        MetadataLogUnusable: there is such a partition.
        OSError: the disk refused.
    """
    unknown = [
        path / str(partition)
        for path, directory_id in directory_ids.items()
        if topics.is_complete_for(directory_id)
        for partition in partitions_in(disk, path)
        if partition.topic not in topics.names and is_of_lost_topic(disk, path / str(partition), topics)
    ]
    if unknown:
        log = next(iter(directory_ids)) / file_names.CLUSTER_METADATA_DIRECTORY
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise MetadataLogUnusable(
            f"{log} never had the topic of {unknown[0]}{more}, so it has lost records: {CONSEQUENCE} move such"
            " partitions away"
        )


def partitions_in(disk: Disk, data_directory: PurePath) -> list[TopicPartition]:
    """Return the partitions that have a directory, without that of the metadata log, by name."""
    names = sorted(entry.name for entry in disk.list_directory(data_directory) if entry.is_directory)
    found = (
        file_names.parse_partition_directory(name) for name in names if name != file_names.CLUSTER_METADATA_DIRECTORY
    )
    return [partition for partition in found if partition is not None]


def is_of_lost_topic(disk: Disk, directory: PurePath, topics: MentionedTopics) -> bool:
    """Whether a partition has records, and an id that no topic had."""
    try:
        topic_id = partition_metadata.read(disk, directory)
    except CorruptCheckpoint:
        return False
    return topic_id is not None and topic_id not in topics.ids and partition_metadata.has_records(disk, directory)
