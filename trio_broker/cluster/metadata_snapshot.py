"""Snapshots of the metadata log: the whole image as records, which replaces the log before it.

A file ``<end offset>-<epoch>.checkpoint``, the numbers in 20 and 10 digits, beside the log's segments. It stands for
all records below the end offset, the last of which was written in that epoch. Its content is record batches like those
of the log: a control batch with a SNAPSHOT_HEADER, batches of the records that fold into the image, a control batch
with a SNAPSHOT_FOOTER. Offsets in it count from 0 and are no offsets of the log.

A snapshot is written under a temporary name, synced and renamed, so one with the final name is whole. If it is damaged,
the broker refuses to start, because its content is stored nowhere else.

Source: docs/formats/metadata-log.md; Kafka's RecordsSnapshotWriter, Snapshots, and the images' write methods.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final

import attrs

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import RecordBatch, build_batch, read_batches
from kafka_wire.records.control import ControlRecord, ControlRecordType, build_control_batch, read_control_record
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from trio_broker.runtime.disk import Disk, names_in, write_atomically

RECORDS_PER_BATCH: Final = 1000
"""Some tens of kilobytes: far below Kafka's limit of 8 MiB for a batch of a snapshot."""

NO_BROKER: Final = -1
"""The broker that a snapshot's block of producer ids was allocated to: not kept, as in Kafka."""

_FILE_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
_HEADER_VALUE = struct.Struct(">hqx")
"""SnapshotHeaderRecord of version 0: int16 version, int64 time of the last record contained, no tagged fields."""
_FOOTER_VALUE = struct.Struct(">hx")
"""SnapshotFooterRecord of version 0: int16 version, no tagged fields."""


@attrs.frozen(order=True)
class SnapshotId:
    """Which records a snapshot stands for: those below ``end_offset``, the last of them written in ``epoch``."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


@attrs.frozen
class MetadataSnapshot:
    """An image as records. ``content`` are the bytes of a ``.checkpoint`` file."""

    id: SnapshotId
    content: bytes = attrs.field(repr=False)

    @classmethod
    def of(
        cls, snapshot_id: SnapshotId, records: Iterable[Any], *, last_timestamp_ms: int, now_ms: int
    ) -> MetadataSnapshot:
        """The snapshot of ``records``; ``last_timestamp_ms`` is that of the last record of the log contained."""
        batches = encode_snapshot(snapshot_id.epoch, records, last_timestamp_ms=last_timestamp_ms, now_ms=now_ms)
        return cls(snapshot_id, b"".join(batches))

    @classmethod
    def of_image(cls, image: MetadataImage, *, last_timestamp_ms: int, now_ms: int) -> MetadataSnapshot:
        """As ``of``, for all that led to ``image``."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        return cls.of(snapshot_id, image_records(image), last_timestamp_ms=last_timestamp_ms, now_ms=now_ms)

    def records(self) -> Iterator[Any]:
        """Yield the records that fold into the image.

        Raises:
            KafkaError, WireError: the content is damaged, or a record is of a kind or version that is not known.
        """
        return decode_snapshot(self.content)


# --- Files ---


def snapshots(disk: Disk, directory: PurePath) -> list[SnapshotId]:
    """Return the snapshots in ``directory``, oldest first; none when it is not there."""
    names = names_in(disk.list_directory(directory)) if disk.exists(directory) else []
    return sorted(SnapshotId(int(match[1]), int(match[2])) for name in names if (match := _FILE_NAME.fullmatch(name)))


def write_snapshot(disk: Disk, directory: PurePath, snapshot: MetadataSnapshot) -> None:
    """Write ``snapshot``; durable on return.

    Raises:
        OSError: the disk refused; there is no such snapshot then.
    """
    write_atomically(disk, directory / snapshot.id.file_name, snapshot.content)


def read_snapshot(disk: Disk, directory: PurePath, snapshot: SnapshotId) -> Iterator[Any]:
    """Yield the records of a snapshot.

    Raises:
        MetadataLogUnusable: it is damaged, or a record is of a kind or version that this broker does not know.
        OSError: the disk refused.
    """
    path = directory / snapshot.file_name
    try:
        yield from decode_snapshot(disk.read_file(path))
    except (KafkaError, WireError) as error:
        raise MetadataLogUnusable(f"{path} cannot be read: {error}") from error


def remove_older(disk: Disk, directory: PurePath, snapshot: SnapshotId) -> None:
    """Remove the snapshots before ``snapshot``, and what a crash left half written."""
    for older in snapshots(disk, directory):
        if older < snapshot:
            disk.unlink(directory / older.file_name)
    for name in names_in(disk.list_directory(directory)):
        if name.endswith(".checkpoint.tmp"):
            disk.unlink(directory / name)


# --- Content ---


def encode_snapshot(epoch: int, records: Iterable[Any], *, last_timestamp_ms: int, now_ms: int) -> Iterator[bytes]:
    """Yield the batches of a snapshot."""
    header = ControlRecord(ControlRecordType.SNAPSHOT_HEADER, _HEADER_VALUE.pack(0, last_timestamp_ms))
    yield build_control_batch(header, timestamp=now_ms, partition_leader_epoch=epoch)
    # The header has offset 0.
    offset = 1
    remaining = iter(records)
    while chunk := list(itertools.islice(remaining, RECORDS_PER_BATCH)):
        values = [NewRecord(now_ms, None, encode_metadata_record(record)) for record in chunk]
        yield build_batch(values, base_offset=offset, partition_leader_epoch=epoch)
        offset += len(chunk)
    footer = ControlRecord(ControlRecordType.SNAPSHOT_FOOTER, _FOOTER_VALUE.pack(0))
    yield build_control_batch(footer, timestamp=now_ms, base_offset=offset, partition_leader_epoch=epoch)


def decode_snapshot(content: bytes) -> Iterator[Any]:
    """Yield the records between header and footer.

    Raises:
        KafkaError, WireError: a batch or record is damaged or unknown, or header or footer are not where they belong.
    """
    batches = list(read_batches(content))
    for batch in batches:
        batch.verify_crc()
    if not batches or control_type(batches[0]) is not ControlRecordType.SNAPSHOT_HEADER:
        raise WireError("no snapshot header at its beginning")
    is_whole = sum(batch.header.size_bytes for batch in batches) == len(content)
    # ``read_batches`` stops without an error at a batch that is cut short, so the bytes are counted as well.
    if not is_whole or control_type(batches[-1]) is not ControlRecordType.SNAPSHOT_FOOTER:
        raise WireError("no snapshot footer at its end")
    for batch in batches:
        if not batch.header.is_control:
            yield from (decode_metadata_record(record.value or b"") for record in batch.records())


def control_type(batch: RecordBatch) -> ControlRecordType | None:
    """What a control batch says first; None for a batch of records."""
    if not batch.header.is_control:
        return None
    return next((read_control_record(record).type for record in batch.records()), None)


# --- The image as records ---


def image_records(image: MetadataImage) -> Iterator[Any]:
    """Yield the records that fold into ``image``, in Kafka's order: features first, then brokers, topics, the rest."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic, index, partition)
    for resource, configs in image.configs_by_resource.items():
        for name, value in configs.items():
            yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    for records in image.keyed_records.values():
        yield from records.values()
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=NO_BROKER, next_producer_id=image.next_producer_id)


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def partition_record(topic: TopicImage, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )
