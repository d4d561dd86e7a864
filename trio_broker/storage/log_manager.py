"""All logs of a broker, over one or more data directories: opened together, closed together.

The order at start: lock every directory and compare whose it is; then ``load`` the logs, asking for each what its
topic's configuration is. A partition that nobody knows is renamed to ``…-stray`` and left to the operator; the metadata
log, which tells what is known, belongs to another floor and is left alone here. The order at stop: close every log,
write the checkpoints, and last the marker that says so.

A partition whose log cannot be opened stays where it is and is refused until somebody has looked: an empty log in its
place would hide what it holds. A directory whose disk failed is given up alone: the others keep their checkpoints and
their markers.

What waits for the disk is called in a worker thread, one at a time, as ``LogCheckpoints`` wants it. Which logs there
are changes in the thread that owns the manager alone.

Source: Kafka's LogManager; docs/formats/segment.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_BROKER_EPOCH
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.randomness import Random
from trio_broker.storage import file_names, partition_metadata
from trio_broker.storage.deleted_logs import DeletedLog, DeletedLogs, holder_of, rename_marked
from trio_broker.storage.directory_opening import CheckDirectories, DirectoryOpening, online
from trio_broker.storage.errors import CorruptCheckpoint, LogUnusable, StorageFailed, is_shortage
from trio_broker.storage.future_log import FutureLog, LogEnd, find_future_logs
from trio_broker.storage.log import Log
from trio_broker.storage.log_checkpoints import LogCheckpoints, parent_text
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.log_loading import (
    ConfigFor,
    KnownAs,
    LogLoading,
    PartitionLoad,
    UnopenedLog,
    find_partitions,
    lost_partitions,
)
from trio_broker.storage.recovery import OpenedLog, open_log
from trio_broker.storage.recovery_progress import RecoveryProgress
from trio_broker.storage.recovery_report import RecoveryReport
from trio_broker.storage.segmented_log import DeletedFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEFT_OVER_DELETE_DELAY_MS = LogConfig().file_delete_delay_ms
"""How long a partition that was deleted before the last stop stays: its topic's own setting went with the topic."""


MAX_PREFERRED = 10_000
"""Partitions that are not here yet and for which a directory was named: as many as one request may create."""


@attrs.define
class LoadReport:
    """What ``load`` found. ``failures`` are the partitions that could not be opened, and why."""

    recovered: list[RecoveryReport] = attrs.field(factory=list)
    failures: dict[TopicPartition, Exception] = attrs.field(factory=dict)
    strays: list[PurePath] = attrs.field(factory=list)
    progress: RecoveryProgress = attrs.field(factory=RecoveryProgress)


class LogManager:
    """See the head of the file. ``logs`` are the partitions' logs, without the metadata log."""

    def __init__(
        self,
        directories: Sequence[PurePath],
        *,
        disk: Disk,
        random: Random,
        node_id: int,
        clock: Clock,
        cluster_id: str | None = None,
        allow_new: bool = False,
        is_one_of_several: bool = False,
        sync_recovered: bool = False,
    ) -> None:
        """For ``allow_new`` (``log.dirs.allow.new``) and ``is_one_of_several`` see ``DirectoryOpening``.

        With ``sync_recovered`` all records of a log that was opened are durable. After a crash they are in the file,
        perhaps not on the disk; where consumers see only what is, they may have seen these.
        """
        assert directories, "a broker needs a data directory"
        self.disk = disk
        self.random = random
        self.node_id = node_id
        self.clock = clock
        self.directories = [LogDirectory(disk, path) for path in directories]
        self.logs: dict[TopicPartition, Log] = {}
        self.load_report = LoadReport()
        # Whether ``close`` has left the marker of a clean stop in every directory.
        self.closed_cleanly = False
        self._cluster_id = cluster_id
        self._opening = DirectoryOpening(
            node_id=node_id, random=random, allow_new=allow_new, is_one_of_several=is_one_of_several
        )
        self._sync_recovered = sync_recovered
        # Refused by ``create_log`` until the topic is deleted or the broker starts again.
        self._unopened: dict[TopicPartition, UnopenedLog] = {}
        self.checkpoints = LogCheckpoints(disk, clock, self.directories, self.logs, self._unopened)
        self.deleted_logs = DeletedLogs(disk, random, clock, self.directories, self.checkpoints)
        # Copies that the last stop has left under way.
        self.future_logs: list[FutureLog] = []
        # Where partitions that are not here yet shall lie.
        self.preferred_directories: dict[TopicPartition, LogDirectory] = {}

    @property
    def cluster_id(self) -> str:
        """The cluster the directories belong to; known once they are open."""
        assert self._cluster_id is not None, "open() tells the cluster id"
        return self._cluster_id

    def directory(self, path: PurePath) -> LogDirectory:
        """The data directory at ``path``, which is one of them."""
        return next(each for each in self.directories if each.path == path)

    # --- Start ---

    def open(self, check: CheckDirectories = lambda directories: None) -> None:
        """Lock all directories and see that they are ours; see ``DirectoryOpening.open``.

        Raises:
            DataDirectoryError, OSError: as there. None stays locked then.
        """
        try:
            self._cluster_id = self._opening.open(self.directories, self._cluster_id, check)
            self.restore_reserves()
        # Also for KeyboardInterrupt: a lock that stays held would refuse the next attempt in this process.
        except BaseException:
            self._unlock()
            raise

    def plan_load(self, config_for: ConfigFor, known_as: KnownAs) -> LogLoading:
        """Return what is to be loaded. Waits for the disk."""
        directories = online(self.directories)
        names = {
            each.path: {entry.name for entry in self.disk.list_directory(each.path) if entry.is_directory}
            for each in directories
        }
        self.future_logs = find_future_logs(self.disk, names)
        found = find_partitions(self.disk, directories, names, known_as)
        remove_at_ms = self.clock.now_ms() + LEFT_OVER_DELETE_DELAY_MS
        self.deleted_logs.note_marked(DeletedFile(path, remove_at_ms) for path in found.deleted)
        loads = list(found.loads)
        if len(directories) == len(self.directories):
            loads += lost_partitions(directories, found.loads, known_as)
        return LogLoading(self.clock, directories, loads, config_for, known_as)

    def expect(self, partition: TopicPartition) -> None:
        """Make no new log of a partition that is not found where a directory is offline: it may lie there.

        For ``plan_load``, and each partition that is to be here by then.
        """
        for directory in self.directories:
            if directory.failure is not None:
                self._unopened[partition] = UnopenedLog(directory.path / str(partition), directory.failure)

    def load_partition(self, loading: LogLoading, load: PartitionLoad) -> None:
        """Open the log of one partition. One that cannot be opened does not keep the others from it.

        Waits for the disk: call it in any thread, for each load in one.
        """
        for directory in load.directories:
            path = directory.path / str(load.partition)
            try:
                self._load_directory(loading, load, directory, path)
            except (OSError, CorruptCheckpoint, KafkaError) as error:
                logger.error("%s cannot be opened: %s", path, error)
                load.unopened = UnopenedLog(path, error)
        load.end()

    def _load_directory(
        self, loading: LogLoading, load: PartitionLoad, directory: LogDirectory, path: PurePath
    ) -> None:
        partition = load.partition
        known = loading.known_as(partition)
        topic_id = (
            known.topic_id if known is not None and load.is_lost else partition_metadata.topic_id_in(self.disk, path)
        )
        if topic_id is None and partition_metadata.is_unused(self.disk, path):
            # A power cut came soon after it was made. It is made again if its topic is there.
            self.disk.remove_tree(path)
            return
        config = loading.config_for(partition, topic_id) if topic_id is not None else None
        if topic_id is None and partition_metadata.has_records(self.disk, path):
            raise CorruptCheckpoint(f"{path} has records and no {file_names.PARTITION_METADATA}")
        if topic_id is None or config is None:
            load.strays.append(rename_marked(self.disk, self.random, path, partition, "stray"))
            self.disk.sync_directory(directory.path)
        elif load.opened is not None:
            raise CorruptCheckpoint(f"{path} is there twice: {load.opened.log.directory}")
        else:
            leader_epoch = None if known is None else known.leader_epoch
            opened = self._open(directory, partition, topic_id, config, leader_epoch, load.note_recovered)
            opened.log.first_dirty_offset = directory.cleaner_offsets.get(partition)
            load.opened = opened

    def end_load(self, loading: LogLoading) -> LoadReport:
        """Take over what was loaded. Waits for the disk."""
        report = LoadReport()
        for load in loading.loads:
            report.strays += load.strays
            if load.opened is not None:
                self.add(load.opened.log)
                report.recovered.append(load.opened.report)
            if load.unopened is not None:
                self._unopened[load.partition] = load.unopened
                report.failures[load.partition] = load.unopened.reason
        self.checkpoints.write_if_outdated()
        report.progress = loading.end()
        self.load_report = report
        return report

    def _open(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        leader_epoch: int | None = None,
        note_recovered: Callable[[int], None] | None = None,
    ) -> OpenedLog:
        starts = directory.log_start_offsets
        recovery_point = directory.recovery_points.get(partition, 0)
        opened = open_log(
            self.disk,
            directory.path / str(partition),
            partition,
            topic_id,
            config,
            recovery_point=recovery_point,
            log_start_offset=None if starts is None else starts.get(partition, 0),
            high_watermark=directory.high_watermarks.get(partition),
            clean=directory.was_clean,
            now_ms=self.clock.now_ms(),
            leader_epoch=leader_epoch,
            # A round of compaction writes the recovery point down before it removes anything.
            gaps_end=recovery_point if directory.has_recovery_points else None,
            note_recovered=note_recovered,
        )
        if self._sync_recovered and opened.log.recovery_point < opened.log.log_end_offset:
            opened.log.sync_after_crash()
        return opened

    # --- Logs come and go ---

    def add(self, log: Log) -> None:
        """Let ``log`` be one of ours from now on, if it is not."""
        self.logs[log.topic_partition] = log
        self._unopened.pop(log.topic_partition, None)

    def find_or_open(
        self, partition: TopicPartition, topic_id: bytes, config: LogConfig, beside: Sequence[Log] = ()
    ) -> Log:
        """Return the log of a partition: the one that is there, or a new one in the directory with the fewest.

        ``beside`` are others that were opened and not yet added. Waits for the disk: call it in a worker thread. A new
        one is for ``add``.

        Raises:
            LogUnusable: the partition is there, and could not be opened.
            OSError, CorruptCheckpoint: as ``open_log``, the latter when the directory is another topic's; or the data
                directory is gone.
        """
        if existing := self.logs.get(partition):
            return existing
        unopened = self._unopened.get(partition)
        if unopened is not None and not (is_shortage(unopened.reason) and self.is_online(unopened.path.parent)):
            raise LogUnusable(f"{unopened.path} could not be opened: {unopened.reason}")
        directory = holder = holder_of(self.disk, self.directories, partition)
        if directory is None:
            directory = self.preferred_directories.pop(partition, None)
            if directory is None or directory.failure is not None:
                directory = self._emptiest_directory(beside)
        self.checkpoints.require_in_place(directory)
        if holder is None:
            self.checkpoints.forget(directory, partition)
        return self._open(directory, partition, topic_id, config).log

    def prefer(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Have the log of a partition that is not here yet made in ``directory``."""
        self.preferred_directories[partition] = directory
        if len(self.preferred_directories) > MAX_PREFERRED:
            del self.preferred_directories[next(iter(self.preferred_directories))]

    def open_moved(self, future: FutureLog, log: Log, end: LogEnd) -> Log:
        """Return what a copy of ``log``, which ends so, has become in its place. Waits for the disk.

        Raises:
            OSError, CorruptCheckpoint: as ``open_log``.
        """
        opened = open_log(
            self.disk,
            future.place,
            log.topic_partition,
            log.topic_id,
            log.config,
            recovery_point=end.log_end_offset,
            log_start_offset=log.log_start_offset,
            clean=True,
            now_ms=self.clock.now_ms(),
            start_is_certain=True,
        )
        return opened.log

    def _emptiest_directory(self, beside: Sequence[Log]) -> LogDirectory:
        """Return the directory with the fewest logs. They are counted only where there is a choice: ten thousand logs
        created one after another would be counted five thousand times each.
        """
        # All of them when no disk works: using one then raises its error.
        directories = online(self.directories) or self.directories
        if len(directories) == 1:
            return directories[0]
        logs = [*list(self.logs.values()), *beside]
        return min(directories, key=lambda each: sum(log.directory.parent == each.path for log in logs))

    def take_logs(self, partitions: Iterable[TopicPartition]) -> list[DeletedLog]:
        """Let these partitions' logs be ours no longer, and release them. What is returned is for ``DeletedLogs``."""
        taken = []
        for partition in partitions:
            path, delay_ms = None, LEFT_OVER_DELETE_DELAY_MS
            unopened = self._unopened.pop(partition, None)
            if unopened is not None and self.is_online(unopened.path.parent):
                path = unopened.path
            if log := self.logs.pop(partition, None):
                log.release()
                path, delay_ms = log.directory, log.config.file_delete_delay_ms
            taken.append(DeletedLog(partition, path, delay_ms))
        return taken

    def log_bytes(self) -> dict[PurePath, int]:
        """How large the logs in each data directory are, together. For any thread."""
        return {
            each.path: sum(log.size_bytes for log in self.checkpoints.logs_in(each).values())
            for each in self.directories
        }

    def full_directories(self) -> frozenset[PurePath]:
        """The data directories whose disk works and is full. Waits for the disk."""
        return frozenset(each.path for each in online(self.directories) if each.is_full())

    def take_expired_files(self, now_ms: int, full: Collection[PurePath] = ()) -> list[PurePath]:
        """Return the deleted segments' files and partitions' directories whose time has come, each only once.

        In the data directories that are ``full`` it has come for all.
        """
        # By text, as in ``LogCheckpoints.logs_in``.
        inside = {parent_text(path / "log") for path in full}
        expired: list[PurePath] = []
        for log in self.logs.values():
            expired += log.take_expired_files(LONG_MAX if inside and parent_text(log.directory) in inside else now_ms)
        return expired + self.deleted_logs.take_expired(now_ms, inside)

    def with_reserve(self, path: PurePath, work: Callable[[], T]) -> T:
        """Do ``work`` on the files of a data directory; see ``LogDirectory.with_reserve``."""
        return self.directory(path).with_reserve(work)

    def make_room_to_close(self) -> None:
        """Give up what is kept back in full directories, so that all logs can be closed. Waits for the disk."""
        for directory in online(self.directories):
            directory.give_reserve_up_if_needed()

    def restore_reserves(self) -> None:
        """Keep space back in every directory whose disk works. Waits for the disk."""
        self.checkpoints.in_each_directory(LogDirectory.restore_reserve, "no space is kept back")

    def directory_ids(self) -> dict[PurePath, bytes]:
        """The ids of the data directories that were opened."""
        return {each.path: each.directory_id for each in self.directories if each.properties is not None}

    def offline_directory_ids(self) -> frozenset[bytes]:
        """Of those whose disk failed."""
        return frozenset(id for path, id in self.directory_ids().items() if not self.is_online(path))

    def is_online(self, path: PurePath) -> bool:
        """Whether the disk of a data directory is not known to have failed."""
        return all(directory.failure is None for directory in self.directories if directory.path == path)

    def take_offline(self, path: PurePath, error: OSError) -> list[TopicPartition]:
        """Give up a data directory whose disk failed: its logs accept nothing more. Returns their partitions."""
        for directory in self.directories:
            if directory.path == path and directory.failure is None:
                directory.failure = error
        affected = [partition for partition, log in self.logs.items() if log.directory.parent == path]
        for partition in affected:
            if self.logs[partition].failure is None:
                self.logs[partition].fail(error)
        return affected

    # --- Stop ---

    def close(
        self,
        *,
        clean: bool = True,
        unclosed: Collection[PurePath] = (),
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> bool:
        """Close everything and unlock. ``clean=False`` only releases, as a crash would.

        A directory in which a log could not be closed properly gets no marker: its logs are recovered next time.
        ``unclosed`` are those of which the caller knows that. Returns whether all directories got one.
        """
        for log in self.logs.values():
            log.bind_to_thread()  # nobody else reads them any more
        try:
            self.closed_cleanly = clean and self._close_cleanly(unclosed, high_watermarks or {}, broker_epoch)
            return self.closed_cleanly
        finally:
            for log in self.logs.values():
                log.release()
            self.logs.clear()
            self._unlock()

    def _close_cleanly(
        self, unclosed: Collection[PurePath], high_watermarks: Mapping[TopicPartition, int], broker_epoch: int
    ) -> bool:
        # What a crash left in a log that could not be opened has not been looked at: a marker would say that it was.
        unopened = {each.path.parent for each in self._unopened.values()}
        failed = {each.path for each in self.directories if not each.was_clean and each.path in unopened}
        failed |= set(unclosed)
        for log in self.logs.values():
            try:
                log.close()
            except StorageFailed as error:
                logger.error("%s was not closed properly: %s", log.topic_partition, error)
                failed.add(log.directory.parent)
        failed |= {*self.checkpoints.write(), *self.checkpoints.write_high_watermarks(high_watermarks)}

        # Last of all: the marker says that everything before it reached the disk.
        def mark(directory: LogDirectory) -> None:
            if directory.path not in failed:
                directory.write_clean_shutdown_marker(broker_epoch)

        failed |= {*self.checkpoints.in_each_directory(mark, "it has no marker of a clean stop")}
        return not failed

    def _unlock(self) -> None:
        for directory in self.directories:
            directory.unlock()
