"""The loading of all logs at a start: a plan of what is to be loaded, and how far it is.

``LogManager.plan_load`` makes it before the first log is opened. Any thread may do one of its ``loads``; their results
are taken over at the end, together and in the order of the plan, so that what a start finds does not depend on which
thread was first.

``progress`` may be asked for at any time: a load is changed by no thread but the one that does it.

Source: Kafka's LogManager.loadLogs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

import attrs

from kafka_wire.primitives import NO_UUID
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.disk import Disk
from trio_broker.storage import file_names
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.recovery import OpenedLog
from trio_broker.storage.recovery_progress import DirectoryRecovery, RecoveryProgress

ConfigFor = Callable[[TopicPartition, bytes], LogConfig | None]
"""Gives the configuration for a partition of a topic id, None when there is no such topic or partition.

Raises ``CorruptCheckpoint`` where the id must be a damaged one."""


@attrs.frozen
class KnownPartition:
    """What the metadata has of a partition; ``directory_id`` says where the replica here is, if that is known."""

    topic_id: bytes
    leader_epoch: int
    directory_id: bytes = NO_UUID


KnownAs = Callable[[TopicPartition], KnownPartition | None]
"""Gives what the metadata has of a partition, None for none of it."""


def known_as_none(partition: TopicPartition) -> None:
    """For those who have no metadata: every leader epoch found in a log is believed, and no log is missed."""


@attrs.frozen
class UnopenedLog:
    """The directory of a partition whose log could not be opened, and why."""

    path: PurePath
    reason: Exception


@attrs.define(eq=False)
class PartitionLoad:
    """One partition that is loaded, and what came of it.

    ``directories`` are those that hold one of its name: more than one where a topic was deleted, or a replica taken
    away, and made again while a directory was away. That of the metadata comes first, then it is the order of
    ``log.dirs``. With ``is_lost`` none does: the checkpoint of the one that is
    named tells of the partition, and nothing else. ``segments`` of ``size_bytes`` are to be read whole.
    """

    partition: TopicPartition
    directories: list[LogDirectory]
    is_lost: bool = False
    segments: int = 0
    size_bytes: int = 0
    recovered_segments: int = 0
    recovered_bytes: int = 0
    is_over: bool = False
    opened: OpenedLog | None = None
    unopened: UnopenedLog | None = None
    strays: list[PurePath] = attrs.field(factory=list)

    def note_recovered(self, size_bytes: int) -> None:
        """Count a segment of this size as read. A damaged checkpoint or index may have more read than was planned."""
        self.recovered_segments = min(self.recovered_segments + 1, self.segments)
        self.recovered_bytes = min(self.recovered_bytes + size_bytes, self.size_bytes)

    def end(self) -> None:
        """Count it as loaded, and all that was planned as read: damage may have ended it early."""
        self.recovered_segments, self.recovered_bytes = self.segments, self.size_bytes
        self.is_over = True


@attrs.frozen
class FoundPartitions:
    """What the data directories hold: partitions to be loaded, and the directories of those that were deleted."""

    loads: Sequence[PartitionLoad]
    deleted: Sequence[PurePath]


def find_partitions(
    disk: Disk, directories: Sequence[LogDirectory], names: Mapping[PurePath, set[str]], known_as: KnownAs
) -> FoundPartitions:
    """Return what the data directories hold, in which are directories of these ``names``. Waits for the disk."""
    loads: dict[TopicPartition, PartitionLoad] = {}
    deleted: list[PurePath] = []
    for directory in directories:
        for name in sorted(names[directory.path]):
            path = directory.path / name
            if file_names.is_marked_directory(name, "delete"):
                deleted.append(path)
                continue
            partition = file_names.parse_partition_directory(name)
            # Foreign directories such as lost+found are no error.
            if partition is None or name == file_names.CLUSTER_METADATA_DIRECTORY:
                continue
            load = loads.setdefault(partition, PartitionLoad(partition, []))
            load.directories.append(directory)
            if not directory.was_clean:
                sizes = sizes_to_recover(disk, path, directory.recovery_points.get(partition, 0))
                load.segments += len(sizes)
                load.size_bytes += sum(sizes)
    for load in loads.values():
        if len(load.directories) > 1 and (known := known_as(load.partition)) is not None:
            load.directories = with_first(load.directories, known.directory_id)
    return FoundPartitions(list(loads.values()), deleted)


def with_first(directories: Sequence[LogDirectory], directory_id: bytes) -> list[LogDirectory]:
    """``directories`` with the one of this id before the others, if it is among them."""
    return sorted(directories, key=lambda each: each.directory_id != directory_id)


def lost_partitions(
    directories: Sequence[LogDirectory], found: Sequence[PartitionLoad], known_as: KnownAs
) -> list[PartitionLoad]:
    """The partitions that have had records and of which nothing is there.

    What the checkpoints say proves it: it is forgotten on the disk before a new partition takes the name.
    """
    seen = {load.partition for load in found}
    lost = []
    for directory in directories:
        for partition in directory.named_partitions:
            if partition not in seen and known_as(partition) is not None:
                seen.add(partition)
                lost.append(PartitionLoad(partition, [directory], is_lost=True))
    return lost


class LogLoading:
    """See the head of the file."""

    def __init__(
        self,
        clock: Clock,
        directories: Sequence[LogDirectory],
        loads: Sequence[PartitionLoad],
        config_for: ConfigFor,
        known_as: KnownAs,
    ) -> None:
        self.loads: Sequence[PartitionLoad] = loads
        self.config_for = config_for
        self.known_as = known_as
        self._clock = clock
        self._began = clock.monotonic()
        self._at_end: RecoveryProgress | None = None
        self._directories = directories
        self._by_directory = {directory.path: self.loads_of(directory) for directory in directories}

    def loads_of(self, directory: LogDirectory) -> list[PartitionLoad]:
        """The loads that the threads of a data directory do."""
        return [load for load in self.loads if load.directories[0] is directory]

    def end(self) -> RecoveryProgress:
        """Have no more time pass, and keep no log from being freed when its partition is deleted."""
        self._at_end = attrs.evolve(self.progress(), is_over=True)
        self.loads = ()
        self._by_directory.clear()
        return self._at_end

    def progress(self) -> RecoveryProgress:
        """How far it is now."""
        if self._at_end is not None:
            return self._at_end
        directories = tuple(directory_progress(each, self._by_directory[each.path]) for each in self._directories)
        return RecoveryProgress(directories, self._clock.monotonic() - self._began)


def directory_progress(directory: LogDirectory, loads: Sequence[PartitionLoad]) -> DirectoryRecovery:
    """How far the ``loads`` of a data directory are."""
    return DirectoryRecovery(
        path=directory.absolute_path,
        was_clean=directory.was_clean,
        logs=len(loads),
        loaded_logs=sum(load.is_over for load in loads),
        segments=sum(load.segments for load in loads),
        recovered_segments=sum(load.recovered_segments for load in loads),
        size_bytes=sum(load.size_bytes for load in loads),
        recovered_bytes=sum(load.recovered_bytes for load in loads),
    )


def sizes_to_recover(disk: Disk, path: PurePath, recovery_point: int) -> list[int]:
    """Return the sizes of the segments in ``path`` that a start after a crash reads; none where they cannot be read."""
    try:
        names = [entry.name for entry in disk.list_directory(path)]
        segments = sorted(
            (offset, name)
            for name in names
            if (offset := file_names.offset_of(name, file_names.LOG_SUFFIX)) is not None
        )
        # From the one that holds the recovery point, or ends there.
        first = max((index for index, (offset, _) in enumerate(segments) if offset < recovery_point), default=0)
        return [disk.status(path / name).size_bytes for _, name in segments[first:]]
    except OSError:
        return []
