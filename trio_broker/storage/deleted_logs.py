"""Logs that were deleted: their directories are renamed at once, and removed ``file.delete.delay.ms`` later.

Source: Kafka's LogManager (``asyncDelete``, ``deleteLogs``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.randomness import Random, random_uuid
from trio_broker.storage import file_names
from trio_broker.storage.directory_opening import online
from trio_broker.storage.log_checkpoints import LogCheckpoints, parent_text
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.segmented_log import DeletedFile

logger = logging.getLogger(__name__)


@attrs.frozen
class DeletedLog:
    """A partition whose log is deleted: where it lies, None for nowhere, and how long it stays there (ms)."""

    partition: TopicPartition
    path: PurePath | None
    delay_ms: int


@attrs.frozen
class MarkedLogs:
    """The result of a deletion of logs: the directories that are to be removed, and the errors of those that could not
    be renamed for certain."""

    files: Sequence[DeletedFile]
    failures: Mapping[TopicPartition, OSError]


class DeletedLogs:
    """See the head of the file. ``mark`` is for a worker thread, the rest for the thread of the ``LogManager``."""

    def __init__(
        self,
        disk: Disk,
        random: Random,
        clock: Clock,
        directories: Sequence[LogDirectory],
        checkpoints: LogCheckpoints,
    ) -> None:
        self.disk = disk
        self.random = random
        self.clock = clock
        self.directories = directories
        self.checkpoints = checkpoints
        # The renamed directories, and when each may be removed.
        self._marked: list[DeletedFile] = []

    def mark(self, taken: Sequence[DeletedLog]) -> MarkedLogs:
        """Rename the directories of deleted logs; the files that are returned are for ``note_marked``.

        Each data directory is synced once, and the checkpoints are written anew, once, so that later partitions of
        these names do not inherit them. Waits for the disk: call it in a worker thread.
        """
        files: list[DeletedFile] = []
        failures: dict[TopicPartition, OSError] = {}
        renamed: dict[PurePath, dict[TopicPartition, DeletedFile]] = {}
        for each in taken:
            # A log that could not be made may have left its directory, with the id of its topic.
            holder = holder_of(self.disk, self.directories, each.partition) if each.path is None else None
            left = each.path if holder is None else holder.path / str(each.partition)
            if left is None:
                continue
            try:
                path = rename_marked(self.disk, self.random, left, each.partition, "delete")
            except OSError as error:
                failures[each.partition] = error
            else:
                file = DeletedFile(path, self.clock.now_ms() + each.delay_ms)
                renamed.setdefault(path.parent, {})[each.partition] = file
        for parent, inside in renamed.items():
            try:
                self.disk.sync_directory(parent)
            except OSError as error:
                failures.update(dict.fromkeys(inside, error))
            else:
                files += inside.values()
        if len(failures) == len(taken):
            return MarkedLogs(files, failures)
        # Only where the file no longer names them are they forgotten; elsewhere ``find_or_open`` tries again.
        failed = self.checkpoints.write()
        for directory in self.directories:
            for each in taken:
                if directory.path not in failed:
                    directory.forget(each.partition)
                else:
                    # Also one that is there only since this start, of which the tables know nothing.
                    directory.recovery_points.setdefault(each.partition, 0)
        return MarkedLogs(files, failures)

    def note_marked(self, marked: Iterable[DeletedFile]) -> None:
        """Have directories removed when their time has come."""
        self._marked += marked

    def take_expired(self, now_ms: int, full: Collection[str]) -> list[PurePath]:
        """Return the directories whose time has come, each only once; in the data directories ``full`` that is all."""
        marked, self._marked = self._marked, []
        expired = []
        for each in marked:
            if each.remove_at_ms <= now_ms or (full and parent_text(each.path) in full):
                expired.append(each.path)
            else:
                self._marked.append(each)
        return expired


def holder_of(disk: Disk, directories: Sequence[LogDirectory], partition: TopicPartition) -> LogDirectory | None:
    """Return the directory that holds the partition although it was not loaded: its creation was cut short.

    One that is offline is not asked.
    """
    return next((each for each in online(directories) if disk.exists(each.path / str(partition))), None)


def rename_marked(disk: Disk, random: Random, path: PurePath, partition: TopicPartition, kind: str) -> PurePath:
    """Give the directory of a partition a new name that says why no log is opened there (``file_names``)."""
    target = path.with_name(file_names.marked_directory_name(partition, kind, random_uuid(random)))
    disk.rename(path, target)
    logger.info("renamed %s to %s", path, target.name)
    return target


def remove_expired(disk: Disk, expired: Iterable[PurePath]) -> None:
    """Remove what ``LogManager.take_expired_files`` returned. Waits for the disk: call it in a worker thread."""
    for path in expired:
        # What cannot be removed keeps its name and is tried again after the next start.
        if file_names.is_marked_directory(path.name, "delete"):
            disk.remove_tree(path)
        else:
            disk.unlink(path, missing_ok=True)
