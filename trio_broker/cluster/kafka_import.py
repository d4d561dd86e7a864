"""Data directories that a Kafka has left as ours: ``trio-broker import-kafka``.

Nothing is copied. The metadata of Kafka's log, as far as this broker keeps it, becomes one snapshot in the same
directory, of all records up to the log's end. That is what every start of ours goes by, and Kafka's own records lie
before it. The import is the rename that gives the snapshot its name: before it the directories are Kafka's and
unchanged, after it they are ours, and an import that was cut short is run again.

Whatever cannot be kept is refused before: nobody should find out later that access control or a quota is gone.

Source: docs/kafka-data-directories.md, docs/decisions/0046-an-import-is-one-rename.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import attrs

from kafka_wire.records.batch import MAGIC, MAGIC_POSITION
from kafka_wire.stored.groups import ShareGroupMetadataKey, unkept_group
from kafka_wire.stored.metadata import RegisterBrokerRecord, UnregisterBrokerRecord
from trio_broker.cluster.features import SUPPORTED
from trio_broker.cluster.kafka_handover import (
    RECORD_KINDS,
    HandoverRefused,
    RecordKind,
    metadata_directory,
    partition_directories,
    stopped_directories,
)
from trio_broker.cluster.metadata_delta import replayed
from trio_broker.cluster.metadata_image import NO_LEADER, ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.cluster.metadata_log import read_quorum_state
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot, SnapshotId, image_records, write_snapshot
from trio_broker.cluster.stored_metadata import StoredMetadata, is_of_kafka, read_stored_metadata, stored_batches
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.client_metrics_config import check_client_metrics_configs
from trio_broker.config.entries import ConfigScope
from trio_broker.config.errors import ConfigError
from trio_broker.config.resource_config import check_group_configs, check_topic_configs
from trio_broker.runtime.disk import Disk, OpenMode, names_in
from trio_broker.storage import file_names

FOLDED_KINDS: Final = frozenset({RecordKind.SHARED, RecordKind.FEATURE})


@attrs.frozen
class Imported:
    """What was imported. ``log_dirs`` are the directories, first the one with the metadata; ``snapshot`` is the file
    that makes them ours."""

    cluster_id: str
    node_id: int
    topics: int
    partitions: int
    log_dirs: tuple[PurePath, ...]
    snapshot: PurePath


def import_from_kafka(disk: Disk, paths: Sequence[PurePath], now_ms: int) -> Imported:
    """Make all data directories of a Kafka that was stopped those of a broker of ours, in place.

    Raises:
        HandoverRefused: a broker works in one, or it was not stopped cleanly, or they do not hold all of a cluster of
            one node, or something in them cannot be kept or read. Nothing was changed.
        OSError: the disk refused. The directories are Kafka's still, unless the last sync failed.
    """
    with stopped_directories(disk, paths) as properties:
        holder = metadata_directory(disk, paths)
        directory = holder / file_names.CLUSTER_METADATA_DIRECTORY
        if not is_of_kafka(disk, directory):
            raise HandoverRefused(f"{holder} has no metadata of Apache Kafka: trio-broker starts on it as it is")
        stored = read_stored_metadata(disk, directory)
        leader = read_quorum_state(disk, directory / file_names.QUORUM_STATE).leader_id
        require_one_node(stored, leader, properties.node_id)
        image = kept_image(stored.records)
        require_known_configs(image, properties.node_id)
        partitions = partition_directories(disk, paths, image, properties.node_id)
        image = in_sync(image)
        for partition, partition_directory in partitions.items():
            require_current_batches(disk, partition_directory)
            if partition.topic == CONSUMER_OFFSETS_TOPIC:
                require_no_other_groups(disk, partition_directory)
        # An epoch that Kafka never used, so that none of its snapshots has this name.
        snapshot = SnapshotId(stored.end_offset, stored.epoch + 1)
        records = image_records(image)
        write_snapshot(disk, directory, MetadataSnapshot.of(snapshot, records, last_timestamp_ms=now_ms, now_ms=now_ms))
    return Imported(
        properties.cluster_id,
        properties.node_id,
        len(image.topics),
        len(partitions),
        tuple(sorted(paths, key=lambda path: path != holder)),
        directory / snapshot.file_name,
    )


def kept_image(records: Iterable[Any]) -> MetadataImage:
    """The image of what both sides share, with the levels of the features that this broker has.

    A feature without a level is off in Kafka, where a start of ours would take it for one to be switched on.
    """
    image = replayed(record for record in records if RECORD_KINDS[type(record)] in FOLDED_KINDS)
    for name, levels in SUPPORTED.items():
        if image.features.get(name, 0) > levels.high:
            raise HandoverRefused(f"the feature {name} is at level {image.features[name]}, {levels.high} is supported")
    return attrs.evolve(image, features={name: image.features.get(name, 0) for name in SUPPORTED})


def in_sync(image: MetadataImage) -> MetadataImage:
    """Return ``image`` with the only replica of each partition in sync, as a stop does not leave it.

    Kafka takes a broker that stops out of the replicas in sync and makes it an eligible leader (KIP-966). After a clean
    stop it has every record.
    """
    topics = {
        name: attrs.evolve(
            topic,
            partitions={
                index: attrs.evolve(each, isr=each.replicas, eligible_leader_replicas=(), last_known_elr=())
                for index, each in topic.partitions.items()
            },
        )
        for name, topic in image.topics.items()
    }
    return attrs.evolve(image, topics=topics, topics_by_id={topic.topic_id: topic for topic in topics.values()})


def require_one_node(stored: StoredMetadata, leader: int, node_id: int) -> None:
    """Refuse the metadata of a cluster of several nodes: others may have records that this one has not.

    ``leader`` is the controller of the last epoch, ``NO_LEADER`` if it has resigned.

    Raises:
        HandoverRefused: another broker is registered, or there are other voters in the quorum.
    """
    brokers = set()
    for record in stored.records:
        if isinstance(record, RegisterBrokerRecord):
            brokers.add(record.broker_id)
        elif isinstance(record, UnregisterBrokerRecord):
            brokers.discard(record.broker_id)
    if others := sorted(brokers - {node_id}):
        raise HandoverRefused(f"broker {others[0]} is registered too: only a cluster of one node can be taken over")
    voters = 1
    if stored.leader_change is not None:
        leader, voters = stored.leader_change.leader_id, stored.leader_change.voters
    if leader not in (node_id, NO_LEADER) or voters != 1:
        raise HandoverRefused(
            f"the controller is node {leader} in a quorum of {voters}: only a cluster of one node, which is broker and"
            " controller, can be taken over"
        )


def require_known_configs(image: MetadataImage, node_id: int) -> None:
    """Refuse settings that this broker does not have, or takes no such values for.

    Raises:
        HandoverRefused: there is one.
    """
    for resource, values in image.configs_by_resource.items():
        try:
            require_known(resource, values, node_id)
        except ConfigError as error:
            name = f" {resource.name}" if resource.name else ""
            raise HandoverRefused(f"a setting of {resource.type.name.lower()}{name} cannot be kept: {error}") from error


def require_known(resource: ConfigResource, values: Mapping[str, str], node_id: int) -> None:
    """Check the settings of one resource.

    Raises:
        ConfigError: one is unknown here, or has a value that is not valid.
    """
    match resource.type:
        case ConfigResourceType.TOPIC:
            check_topic_configs(values)
        case ConfigResourceType.GROUP:
            check_group_configs(values, BrokerConfig())
        case ConfigResourceType.BROKER if resource.name in ("", str(node_id)):
            scope = ConfigScope.BROKER if resource.name else ConfigScope.CLUSTER
            BrokerConfig().check_change(scope, dict(values), any_pool_size=True)
        case ConfigResourceType.CLIENT_METRICS:
            check_client_metrics_configs(values)


def require_current_batches(disk: Disk, directory: PurePath) -> None:
    """Refuse a partition with segments from before Kafka 0.11, which Kafka converts when it reads them.

    The first batch of a segment tells: formats of one log do not become older.

    Raises:
        HandoverRefused: there is one.
    """
    for name in names_in(disk.list_directory(directory)):
        if file_names.offset_of(name, file_names.LOG_SUFFIX) is not None:
            head = disk.open(directory / name, OpenMode.READ).read(MAGIC_POSITION + 1, 0)
            if len(head) > MAGIC_POSITION and head[MAGIC_POSITION] != MAGIC:
                raise HandoverRefused(
                    f"{directory / name} has records in format {head[MAGIC_POSITION]}, which is from before Kafka 0.11:"
                    " only format 2 can be taken over"
                )


def require_no_other_groups(disk: Disk, directory: PurePath) -> None:
    """Refuse a partition of ``__consumer_offsets`` with a group that this broker would not know to be there.

    Raises:
        HandoverRefused: there is one. A group of the same name beside it would be unreadable for Kafka.
        KafkaError, WireError: a batch is damaged.
    """
    left: dict[bytes, str] = {}
    for batch in stored_batches(disk, directory):
        for key, value in () if batch.header.is_control else batch.keys_and_values():
            group = unkept_group(key) if key is not None else None
            if key is not None and group is not None:
                kind = "share" if isinstance(group, ShareGroupMetadataKey) else "streams"
                left[key] = f"{group.group_id!r} is a {kind} group"
                if value is None:
                    del left[key]
    for found in left.values():
        raise HandoverRefused(f"{found}, which trio-broker does not have: delete it in Kafka first")
