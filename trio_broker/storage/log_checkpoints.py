"""The checkpoints of all logs: how far each was synced, where it starts, how far it was compacted, scrubbed and seen.

Each data directory has files of its own, for the logs in it. A directory that is no longer in its place, or whose disk
failed, is passed over, and ``take_failures`` tells of it; the others get theirs.

What writes waits for the disk and is called in a worker thread, one at a time: each checkpoint has one temporary file,
and the later one must not write the older state. Which logs there are changes in another thread meanwhile.

Source: Kafka's LogManager and OffsetCheckpointFile; docs/formats/checkpoints.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath

from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.disk import Disk
from trio_broker.storage import checkpoints, file_names
from trio_broker.storage.errors import is_disk_failure
from trio_broker.storage.log import Log
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.log_loading import UnopenedLog

logger = logging.getLogger(__name__)


class LogCheckpoints:
    """See the head of the file. ``logs`` and ``unopened`` are those of the LogManager, which changes them."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: Sequence[LogDirectory],
        logs: Mapping[TopicPartition, Log],
        unopened: Mapping[TopicPartition, UnopenedLog],
    ) -> None:
        self.disk = disk
        self.directories = directories
        self._logs = logs
        self._unopened = unopened
        self._throttled_log = LogThrottle(logger, clock)
        # By data directory, a log that is about to come into it from another one: what is durable of it is here too.
        self.arriving: dict[PurePath, Log] = {}
        # What ``take_failures`` returns: found in worker threads, which may not take a directory offline.
        self._failures: dict[PurePath, OSError] = {}

    def write(self, *, with_reserve: bool = True) -> dict[PurePath, OSError]:
        """Write recovery points and log start offsets of all directories, and take what is no longer there out of the
        other checkpoints; return where that failed, and why.

        On a full disk ``with_reserve`` takes of what is kept back. A directory whose disk failed counts as failed and
        is not tried. Waits for the disk.
        """

        def write_into(directory: LogDirectory) -> None:
            logs = self.logs_in(directory)
            points = {partition: log.recovery_point for partition, log in logs.items()}
            # As in Kafka, only where the base of the first segment does not say it already, also after a power cut.
            starts = {
                partition: log.confirmed_start_offset
                for partition, log in logs.items()
                if log.confirmed_start_offset > log.segments[0].base_offset or log.has_unsynced_names
            }
            starts |= self._of_unopened(directory, directory.log_start_offsets)
            points |= self._of_unopened(directory, directory.recovery_points)
            # In this order: where there are recovery points, log starts have been there as well.
            checkpoints.write_offsets(self.disk, directory.path / file_names.LOG_START_OFFSET_CHECKPOINT, starts)
            checkpoints.write_offsets(self.disk, directory.path / file_names.RECOVERY_POINT_CHECKPOINT, points)
            directory.write_cleaner_offsets(self._cleaner_offsets(directory, logs))
            directory.keep_high_watermarks({*logs, *self._of_unopened(directory, directory.high_watermarks)})

        return self.in_each_directory(write_into, "its checkpoints were not written", with_reserve=with_reserve)

    def write_if_outdated(self) -> None:
        """Write them where they say more of a log than is there, once all logs are loaded."""
        if any(self._has_recovery_points_too_high(each) or self._names_what_is_gone(each) for each in self.directories):
            self.write()

    def _has_recovery_points_too_high(self, directory: LogDirectory) -> bool:
        """Whether a log was cut since its recovery point was written: by that, new records would count as durable."""
        points = directory.recovery_points.items()
        return any(
            partition in self._logs and self._logs[partition].recovery_point < point for partition, point in points
        )

    def _names_what_is_gone(self, directory: LogDirectory) -> bool:
        """Whether a checkpoint has a partition that is not there, of which the next start would think it lost."""
        return any(each not in self._logs and each not in self._unopened for each in directory.named_partitions)

    def forget(self, directory: LogDirectory, partition: TopicPartition) -> None:
        """Drop what the checkpoints say of an older partition of the same name, on the disk too.

        A new log that began at the old one's start offset, or was recovered only from its recovery point on, would
        lose records.

        Raises:
            OSError: they could not be written.
        """
        if directory.forget(partition) and (error := self.write().get(directory.path)):
            text = f"what the checkpoints say of {partition} cannot be changed: {error.strerror}"
            raise OSError(error.errno, text, str(directory.path))

    def _of_unopened(
        self, directory: LogDirectory, offsets: Mapping[TopicPartition, int] | None
    ) -> dict[TopicPartition, int]:
        """What a checkpoint says of the partitions whose logs could not be opened: all of it is true still."""
        unopened = list(self._unopened.items())
        here = [partition for partition, log in unopened if log.path.parent == directory.path]
        return {partition: offsets[partition] for partition in here if offsets and partition in offsets}

    def _cleaner_offsets(
        self, directory: LogDirectory, logs: Mapping[TopicPartition, Log]
    ) -> dict[TopicPartition, int]:
        """Where the part of each log begins that compaction has not gone over, of those it has gone over at all."""
        offsets = {partition: log.first_dirty_offset for partition, log in logs.items()}
        known = {partition: offset for partition, offset in offsets.items() if offset is not None}
        return known | self._of_unopened(directory, directory.cleaner_offsets)

    def write_cleaner_offsets(self) -> dict[PurePath, OSError]:
        """Write how far each log has been compacted; otherwise as ``write``, without reserve."""

        def write_into(directory: LogDirectory) -> None:
            directory.write_cleaner_offsets(self._cleaner_offsets(directory, self.logs_in(directory)))

        return self.in_each_directory(write_into, "its cleaner checkpoint was not written")

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[PurePath, OSError]:
        """Write the high watermarks, each into the directory of its log; otherwise as ``write``, without
        reserve.
        """

        def write_into(directory: LogDirectory) -> None:
            known = self._offsets_in(directory, high_watermarks)
            directory.write_high_watermarks(known | self._of_unopened(directory, directory.high_watermarks))

        return self.in_each_directory(write_into, f"{file_names.HIGH_WATERMARK_CHECKPOINT} was not written")

    def write_scrubber_positions(self, positions: Mapping[TopicPartition, int]) -> dict[PurePath, OSError]:
        """Write up to where the scrubber has read each log; otherwise as ``write_high_watermarks``."""

        def write_into(directory: LogDirectory) -> None:
            path = directory.path / file_names.SCRUBBER_CHECKPOINT
            checkpoints.write_offsets(self.disk, path, self._offsets_in(directory, positions))

        return self.in_each_directory(write_into, f"{file_names.SCRUBBER_CHECKPOINT} was not written")

    def _offsets_in(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ``offsets`` of the logs that are in the directory."""
        return {partition: offsets[partition] for partition in self.logs_in(directory) if partition in offsets}

    def in_each_directory(
        self, write: Callable[[LogDirectory], None], otherwise: str, *, with_reserve: bool = False
    ) -> dict[PurePath, OSError]:
        """Write into every directory that is in place and whose disk works; return where that failed, now or earlier,
        and why.
        """
        failed: dict[PurePath, OSError] = {}
        for directory in self.directories:
            if directory.failure is not None:
                failed[directory.path] = directory.failure
                continue
            try:
                self.require_in_place(directory)
                if with_reserve:
                    directory.with_reserve(partial(write, directory))
                else:
                    write(directory)
            except OSError as error:
                self._note_failure(directory, error)
                text = f"{directory.path}: {otherwise}: {error}"
                self._throttled_log.error(f"{directory.path}: {otherwise}: {error.errno}", text)
                failed[directory.path] = error
        return failed

    def require_in_place(self, directory: LogDirectory) -> None:
        """See ``LogDirectory.require_in_place``."""
        try:
            directory.require_in_place()
        except OSError as error:
            self._note_failure(directory, error)
            raise

    def _note_failure(self, directory: LogDirectory, error: OSError) -> None:
        if is_disk_failure(error):
            self._failures.setdefault(directory.path, error)

    def take_failures(self) -> dict[PurePath, OSError]:
        """Return the directories of which it was found, since the last call, that they have failed, for
        ``take_offline``."""
        failures, self._failures = self._failures, {}
        return failures

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, Log]:
        # A copy: worker threads come here while other logs are created or deleted. By text, since paths of ten thousand
        # logs take a tenth of a second of the interpreter to make and compare.
        inside = parent_text(directory.path / "log")
        logs = {partition: log for partition, log in list(self._logs.items()) if parent_text(log.directory) == inside}
        arriving = self.arriving.get(directory.path)
        return logs if arriving is None else {**logs, arriving.topic_partition: arriving}


def parent_text(path: PurePath) -> str:
    """The directory of ``path`` as text, with the separator behind it; empty where it has none."""
    text = str(path)
    return text[: text.rfind(os.sep) + 1]
