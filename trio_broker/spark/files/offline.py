"""Data directories without a broker: backups, and the disks of a broker that does not run.

They stand in for a cluster (partitions and offsets) and for its brokers (manifests). Everything is read from the files,
which are not changed. A directory in use by a broker is refused: only the broker knows which of its records count.

Of a partition that several brokers of a cluster have, the replica with the highest high watermark is read: below that
all have the same records.

Results are kept, since the files do not change.

Source: docs/formats/checkpoints.md; docs/formats/segment.md.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.errors import OptionError, SourceUnavailable
from trio_broker.spark.files.manifest import NoSuchTopic, PartitionLog, TopicLogFiles
from trio_broker.spark.files.offline_log import Checkpoints, read_log, segment_paths
from trio_broker.spark.files.offline_times import offset_for_time
from trio_broker.spark.files.offline_transactions import with_transactions
from trio_broker.spark.files.segment_files import FilesChanged, properties_in, topic_id_in
from trio_broker.spark.options.selection import Assign, Selection, Subscribe, SubscribePattern
from trio_broker.storage import checkpoints, file_names
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.log_directory import MetaProperties

log = logging.getLogger(__name__)

PATH_OPTION: Final = "path"


@attrs.frozen
class DataDirectory:
    """A data directory's checkpoints; empty where a backup left them out."""

    path: Path
    properties: MetaProperties | None
    was_clean: bool
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]

    @classmethod
    def read(cls, path: Path) -> DataDirectory:
        """Read the files in ``path`` that belong to no partition.

        Raises:
            OptionError: the directory does not exist, or a broker uses it.
        """
        if not path.is_dir():
            raise OptionError(PATH_OPTION, f"there is no directory {path}")
        _refuse_locked(path)
        return cls(
            path=path,
            properties=properties_in(path),
            was_clean=(path / file_names.CLEAN_SHUTDOWN_MARKER).exists(),
            recovery_points=_offsets(path / file_names.RECOVERY_POINT_CHECKPOINT),
            log_start_offsets=_offsets(path / file_names.LOG_START_OFFSET_CHECKPOINT),
            high_watermarks=_offsets(path / file_names.HIGH_WATERMARK_CHECKPOINT),
        )

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, empty where it is not known."""
        return "" if self.properties is None else self.properties.cluster_id

    def topic_id_of(self, partition: TopicPartition) -> str:
        """Return the topic id in a partition's directory, the empty string where there is none."""
        return topic_id_in(self.path / str(partition))

    def checkpoints_of(self, partition: TopicPartition) -> Checkpoints:
        """Return the checkpoints of one partition."""
        return Checkpoints(
            was_clean=self.was_clean,
            recovery_point=self.recovery_points.get(partition),
            log_start_offset=self.log_start_offsets.get(partition),
            high_watermark=self.high_watermarks.get(partition),
        )


class OfflineLogs:
    """An ``OffsetSource`` and a ``ManifestSource`` over the data directories at ``paths``."""

    def __init__(self, paths: Sequence[str], *, read_committed: bool = True) -> None:
        self._read_committed = read_committed
        self._directories = [DataDirectory.read(Path(path)) for path in paths]
        self._partitions: dict[TopicPartition, DataDirectory] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        for directory in self._directories:
            for partition in _partitions_in(directory.path):
                other = self._partitions.get(partition)
                self._partitions[partition] = directory if other is None else _fuller(partition, other, directory)

    # --- OffsetSource ---

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """Return the partitions of ``selection``, sorted; assigned ones that do not exist are left out.

        Raises:
            OptionError: a named topic is not here, or is one of Kafka's own.
        """
        match selection:
            case SubscribePattern():
                chosen = [
                    each
                    for each in self._partitions
                    if each.topic not in INTERNAL_TOPICS and selection.matches(each.topic)
                ]
            case Subscribe(topics=names):
                self._check_named(names, "subscribe")
                chosen = [each for each in self._partitions if each.topic in names]
            case Assign(partitions=assigned):
                self._check_named({each.topic for each in assigned}, "assign")
                chosen = [each for each in assigned if each in self._partitions]
        return sorted(set(chosen))

    def _check_named(self, names: Iterable[str], option: str) -> None:
        if internal := sorted(INTERNAL_TOPICS.intersection(names)):
            raise OptionError(option, f"{', '.join(internal)}: topics that Kafka keeps for itself are not read")
        if missing := sorted(set(names) - {each.topic for each in self._partitions}):
            where = ", ".join(str(each.path) for each in self._directories)
            raise OptionError(option, f"there is no topic {', '.join(map(repr, missing))} in {where}")

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each; partitions that are not here are left out."""
        return {each: self._log(each).log_start_offset for each in partitions if each in self._partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each for ``read_committed``, else the high watermark."""
        return {each: self._end_offset(self._log(each)) for each in partitions if each in self._partitions}

    def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at least as young as the time (ms since 1970), None where none is."""
        return {each: self._for_time(each, time_ms) for each, time_ms in times.items() if each in self._partitions}

    def _for_time(self, partition: TopicPartition, time_ms: int) -> int | None:
        found, directory = self._log(partition), self._partitions[partition]
        known = directory.checkpoints_of(partition)
        end_offset = self._end_offset(found)
        # The indexes of an active segment are written behind, up to a clean stop.
        last = found.segments[-1]
        indexed_up_to = last.next_offset if known.was_clean else min(known.recovery_point or 0, last.base_offset)
        with _as_job_errors(partition):
            paths = segment_paths(directory.path / found.directory_name, partition)
            return offset_for_time(found, paths, time_ms, end_offset, indexed_up_to=indexed_up_to)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the id of each topic as Kafka prints it, ``""`` where it is not known."""
        return {topic: self._topic_id(topic) for topic in topics}

    def _topic_id(self, topic: str) -> str:
        """Return the id in the directory of the first partition; another partition may be left over from a deleted
        topic."""
        mine = sorted(each for each in self._partitions if each.topic == topic)
        return self._partitions[mine[0]].topic_id_of(mine[0]) if mine else ""

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    # --- ManifestSource ---

    def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicLogFiles:
        """Return these partitions of a topic, or all.

        Raises:
            NoSuchTopic: not all of them are here.
            SourceUnavailable: one cannot be read.
        """
        here = {each.partition for each in self._partitions if each.topic == topic}
        if not here or not here.issuperset(partitions):
            names = ", ".join(map(str, sorted(set(partitions) - here)))
            raise NoSuchTopic(f"there is no topic {topic!r}" if not here else f"{topic!r} has no partition {names}")
        numbers = sorted(partitions or here)
        logs = {number: self._log(TopicPartition(topic, number)) for number in numbers}
        cluster_id = self._partitions[TopicPartition(topic, numbers[0])].cluster_id
        return TopicLogFiles(topic, self._topic_id(topic), cluster_id, logs)

    def for_workers(self) -> None:
        """Return None: nothing changes."""
        return

    # --- Logs ---

    def _end_offset(self, found: PartitionLog) -> int:
        return found.last_stable_offset if self._read_committed else found.high_watermark

    def _log(self, partition: TopicPartition) -> PartitionLog:
        found = self._logs.get(partition)
        if found is None:
            directory = self._partitions[partition]
            path = directory.path / str(partition)
            with _as_job_errors(partition):
                found = read_log(path, partition, directory.checkpoints_of(partition))
                if self._read_committed:
                    found = with_transactions(found, path, segment_paths(path, partition))
            node_id = None if directory.properties is None else directory.properties.node_id
            self._logs[partition] = found = attrs.evolve(found, node_id=node_id)
        return found


@contextmanager
def _as_job_errors(partition: TopicPartition) -> Iterator[None]:
    """Turn the errors of files into errors of the job.

    Raises:
        SourceUnavailable: a file cannot be read, or was shortened while it was read.
    """
    try:
        yield
    except (OSError, FilesChanged) as error:
        raise SourceUnavailable(f"{partition}: {error}") from error


def _partitions_in(path: Path) -> list[TopicPartition]:
    found = [file_names.parse_partition_directory(entry.name) for entry in os.scandir(path) if entry.is_dir()]
    return [each for each in found if each is not None and each.topic != CLUSTER_METADATA_TOPIC]


def _refuse_locked(path: Path) -> None:
    """Raise if a broker, this one or Kafka's, uses the directory: see ``storage.log_directory`` for the two locks."""
    lock = path / file_names.LOCK_FILE
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s cannot be opened to see whether a broker works there: %s", lock, error.strerror)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        reason = f"a broker works in {path}: name it by kafka.bootstrap.servers, since only it knows what counts"
        raise OptionError(PATH_OPTION, reason) from error
    finally:
        os.close(descriptor)


def _fuller(partition: TopicPartition, one: DataDirectory, other: DataDirectory) -> DataDirectory:
    """Return the directory with more committed records of a partition that two brokers of a cluster have.

    Raises:
        OptionError: they are not of two brokers of a cluster, or it is not known up to where both have the same.
    """
    marks = [each.high_watermarks.get(partition) for each in (one, other)]
    are_replicas = (
        one.properties is not None
        and other.properties is not None
        and one.cluster_id == other.cluster_id
        and one.properties.node_id != other.properties.node_id
        and one.topic_id_of(partition) == other.topic_id_of(partition)
    )
    if not are_replicas or marks[0] is None or marks[1] is None:
        reason = f"{partition} is in {one.path} and in {other.path}: which one counts?"
        raise OptionError(PATH_OPTION, reason)
    return one if marks[0] >= marks[1] else other


def _offsets(path: Path) -> Mapping[TopicPartition, int]:
    """Return a checkpoint's offsets. Without them more is read, and the log ends with its last batch."""
    try:
        return checkpoints.read_offsets(RealDisk(), path)
    except (CorruptCheckpoint, OSError) as error:
        log.warning("not using a checkpoint: %s", error)
        return {}
