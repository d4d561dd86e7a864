"""What a move from trio-broker to Kafka has in common with one from Kafka to trio-broker.

Partitions, checkpoints and ``meta.properties`` are in the same formats on both sides and stay as they are. Metadata
records are too, but not all mean something on the other side: ``RECORD_KINDS`` says which do. A move starts from data
directories that were left by a clean stop and hold every partition of a cluster of one node.

Source: docs/kafka-data-directories.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Final

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.stored import metadata as records
from trio_broker.cluster.metadata_delta import ContradictoryMetadata
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import Disk, names_in
from trio_broker.storage import file_names, partition_metadata
from trio_broker.storage.errors import CorruptCheckpoint, CorruptSnapshot, DataDirectoryError
from trio_broker.storage.log_directory import LogDirectory, MetaProperties


class HandoverRefused(Exception):
    """The directories cannot be moved; the text is one line that says why."""


class RecordKind(enum.Enum):
    """What becomes of a metadata record on the other side."""

    SHARED = "means the same on both sides"
    FEATURE = "each side finalizes the features that it knows"
    REGISTRATION = "brokers and controllers register anew at every start"
    WITHOUT_EFFECT = "changes nothing in a cluster of one node"


RECORD_KINDS: Final[Mapping[type[Any], RecordKind]] = {
    records.TopicRecord: RecordKind.SHARED,
    records.RemoveTopicRecord: RecordKind.SHARED,
    records.PartitionRecord: RecordKind.SHARED,
    records.PartitionChangeRecord: RecordKind.SHARED,
    records.ConfigRecord: RecordKind.SHARED,
    records.ProducerIdsRecord: RecordKind.SHARED,
    records.FeatureLevelRecord: RecordKind.FEATURE,
    records.RegisterBrokerRecord: RecordKind.REGISTRATION,
    records.BrokerRegistrationChangeRecord: RecordKind.REGISTRATION,
    records.FenceBrokerRecord: RecordKind.REGISTRATION,
    records.UnfenceBrokerRecord: RecordKind.REGISTRATION,
    records.UnregisterBrokerRecord: RecordKind.REGISTRATION,
    records.RegisterControllerRecord: RecordKind.REGISTRATION,
    records.UnregisterControllerRecord: RecordKind.REGISTRATION,
    records.AccessControlEntryRecord: RecordKind.SHARED,
    records.RemoveAccessControlEntryRecord: RecordKind.SHARED,
    records.UserScramCredentialRecord: RecordKind.SHARED,
    records.RemoveUserScramCredentialRecord: RecordKind.SHARED,
    records.DelegationTokenRecord: RecordKind.SHARED,
    records.RemoveDelegationTokenRecord: RecordKind.SHARED,
    records.ClientQuotaRecord: RecordKind.SHARED,
    records.ClearElrRecord: RecordKind.WITHOUT_EFFECT,
    records.NoOpRecord: RecordKind.WITHOUT_EFFECT,
    records.ZkMigrationStateRecord: RecordKind.WITHOUT_EFFECT,
    records.BeginTransactionRecord: RecordKind.WITHOUT_EFFECT,
    records.EndTransactionRecord: RecordKind.WITHOUT_EFFECT,
    records.AbortTransactionRecord: RecordKind.WITHOUT_EFFECT,
}
"""Every record of ``kafka_wire.stored.metadata``. Transactions are resolved by ``stored_metadata``."""


UNREADABLE: Final = (
    DataDirectoryError,
    CorruptCheckpoint,
    CorruptSnapshot,
    ContradictoryMetadata,
    KafkaError,
    WireError,
)
"""What says that a file cannot be read, or is not what it should be."""


@contextmanager
def stopped_directories(disk: Disk, paths: Sequence[PurePath]) -> Iterator[MetaProperties]:
    """Hold the locks of data directories that a clean stop left; gives the properties of the first.

    ``UNREADABLE`` that is raised inside becomes ``HandoverRefused``.

    Raises:
        HandoverRefused: one is no data directory, or in use, or was not stopped cleanly, or they are not of one node.
        OSError: the disk refused.
    """
    directories = [LogDirectory(disk, path) for path in paths]
    opened: list[MetaProperties] = []
    try:
        for directory in directories:
            if not disk.exists(directory.path / file_names.META_PROPERTIES):
                raise HandoverRefused(f"{directory.path} is not a data directory: it has no meta.properties")
            properties = directory.open()
            assert properties is not None, "meta.properties is there"
            opened.append(properties)
            if (properties.cluster_id, properties.node_id) != (opened[0].cluster_id, opened[0].node_id):
                raise HandoverRefused(f"{directory.path} and {paths[0]} are not of one node in one cluster")
            if not was_stopped_cleanly(disk, directory.path):
                raise HandoverRefused(
                    f"{directory.path} was not left by a clean stop: start its broker once more and stop it"
                )
        yield opened[0]
    except UNREADABLE as error:
        raise HandoverRefused(str(error)) from error
    finally:
        for directory in directories:
            directory.unlock()


def was_stopped_cleanly(disk: Disk, path: PurePath) -> bool:
    """Whether a stop marked the directory. One with nothing but metadata (``metadata.log.dir``) is never marked, and
    never needs it: what is appended there is synced."""
    names = names_in(disk.list_directory(path))
    return disk.exists(path / file_names.CLEAN_SHUTDOWN_MARKER) or not any(
        name != file_names.CLUSTER_METADATA_DIRECTORY and file_names.parse_partition_directory(name) for name in names
    )


def metadata_directory(disk: Disk, paths: Sequence[PurePath]) -> PurePath:
    """Return the one of the data directories that has the metadata log.

    Raises:
        HandoverRefused: none has, or several have.
    """
    found = [path for path in paths if disk.is_directory(path / file_names.CLUSTER_METADATA_DIRECTORY)]
    if len(found) != 1:
        which = "none" if not found else " and ".join(map(str, found))
        raise HandoverRefused(f"one directory has to have the metadata log, {which} of those named has")
    return found[0]


def partition_directories(
    disk: Disk, paths: Sequence[PurePath], image: MetadataImage, node_id: int
) -> dict[TopicPartition, PurePath]:
    """Return where each partition of all topics lies, which has to be in one of ``paths``.

    Raises:
        HandoverRefused: one is on another node or in another data directory, or its directory is another topic's.
        CorruptCheckpoint: a ``partition.metadata`` is malformed.
    """
    found: dict[TopicPartition, PurePath] = {}
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            partition = TopicPartition(topic.name, index)
            if tuple(state.replicas) != (node_id,):
                raise HandoverRefused(
                    f"{partition} has replicas on {list(state.replicas)}, and only node {node_id} is here"
                )
            held = [path / str(partition) for path in paths if disk.is_directory(path / str(partition))]
            if len(held) != 1:
                where = " and ".join(str(each.parent) for each in held) or f"none of {', '.join(map(str, paths))}"
                raise HandoverRefused(f"{partition} is in {where}: name all directories of log.dirs")
            if partition_metadata.read(disk, held[0]) not in (topic.topic_id, None):
                raise HandoverRefused(f"{held[0]} is of another topic with the name {topic.name}")
            found[partition] = held[0]
    return found
