"""A copy of a log in another data directory, ``topic-0.<32 hex digits>-future``, which takes its place in the end.

Files are copied as they are, so offsets, leader epochs, gaps and the ends of transactions need no second look. Only
sealed segments are, so the log is rolled before each pass over it, and once more at the end, when nobody appends::

    copy of what is sealed ─▶ … of what has been sealed since ─▶ nobody appends: the rest, durably
        ─▶ topic-0 is renamed to topic-0.<the same digits>-delete ─▶ topic-0.<…>-future is renamed to topic-0

A copy that is under way says at the next start that the replica is to be moved, and nothing more: it is begun anew. The
first of the two names is what counts: a copy beside a deleted log with the same digits is complete, and a start gives
it its name. So whatever comes in between, just one log is there.

Source: Kafka's LogManager.replaceCurrentWithFutureLog, which may leave two; KIP-113.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import Disk, OpenMode, sync_file, write_all
from trio_broker.storage import file_names, partition_metadata, producer_snapshot
from trio_broker.storage.log import Log
from trio_broker.storage.producer_state import ProducerEntry
from trio_broker.storage.segment import Segment

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
"""What is copied at a time: so much more than its rate allows a move may copy at once."""


@attrs.frozen
class LogEnd:
    """What a log has beside its sealed segments when nobody appends to it: taken by its owner, for a thread."""

    topic_id: bytes
    segments: Sequence[Segment]
    log_end_offset: int
    producers: Sequence[ProducerEntry]

    @classmethod
    def of(cls, log: Log) -> LogEnd:
        """The end of ``log``, which has just been rolled."""
        return cls(log.topic_id, log.segments, log.log_end_offset, list(log.producers.producers.values()))


class FutureLog:
    """See the head of the file. ``size_bytes`` are copied so far, and all before ``end_offset``. What is done to files
    is for a thread, one at a time."""

    def __init__(self, disk: Disk, topic_partition: TopicPartition, path: PurePath) -> None:
        self.disk = disk
        self.topic_partition = topic_partition
        self.path = path
        self.size_bytes = self.end_offset = 0
        self._copied: dict[int, Segment] = {}
        self._cuts = 0

    @property
    def directory(self) -> PurePath:
        """The data directory that it is in."""
        return self.path.parent

    @property
    def place(self) -> PurePath:
        """Where it will be."""
        return self.directory / str(self.topic_partition)

    def begin(self, log: Log) -> None:
        """Make the directory, without anything of an earlier copy.

        Raises:
            OSError: the disk refused or failed, or there is another log.
        """
        if self.disk.exists(self.place):
            raise FileExistsError(f"{self.place} is there already")
        if self.disk.exists(self.path):
            self.disk.remove_tree(self.path)
        self.disk.make_directory(self.path)
        partition_metadata.write_durably(self.disk, self.path, log.topic_id)
        self._copied, self._cuts = {}, log.cuts
        self.size_bytes, self.end_offset = 0, log.log_start_offset

    def is_beginning_of(self, log: Log) -> bool:
        """Whether all that is copied is in the log still: it was not cut since."""
        return log.cuts == self._cuts

    def remove(self) -> None:
        """Take it away: the log stays where it is.

        Raises:
            OSError: the disk refused or failed.
        """
        self.disk.remove_tree(self.path)
        self.disk.sync_directory(self.directory)

    def give_room_back(self) -> None:
        """Have nothing copied. What is left says at the next start that the replica is to be moved.

        Raises:
            OSError: the disk refused or failed.
        """
        for entry in self.disk.list_directory(self.path):
            if entry.name != file_names.PARTITION_METADATA:
                self.disk.unlink(self.path / entry.name)
        self.end_offset = min(self._copied, default=self.end_offset)
        self._copied, self.size_bytes = {}, 0

    # --- the copy ---

    def copy(self, sealed: Sequence[Segment]) -> Iterator[int]:
        """Copy the segments that are not there yet, and remove what the log has no more, in steps of so many bytes.

        Raises:
            OSError: a disk refused or failed; or the log has lost a segment meanwhile, and the caller looks again.
        """
        wanted = {each.base_offset: each for each in sealed}
        for base_offset, copied in list(self._copied.items()):
            if wanted.get(base_offset) is not copied:
                self._remove(self._copied.pop(base_offset))
        for segment in sealed:
            if segment.base_offset not in self._copied:
                yield from self._copy_segment(segment)

    def _copy_segment(self, segment: Segment) -> Iterator[int]:
        size_bytes = segment.size
        for suffix in (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT_SUFFIX):
            source, target = segment.path(suffix), self._path_of(segment, suffix)
            is_log = suffix == file_names.LOG_SUFFIX
            if is_log or self.disk.exists(source):
                # A log that was given its size in advance ends before its file does.
                limit = size_bytes if is_log else self.disk.status(source).size_bytes
                yield from copy_file(self.disk, source, target, limit)
        self._copied[segment.base_offset] = segment
        self.size_bytes, self.end_offset = self.size_bytes + size_bytes, segment.next_offset

    def _remove(self, segment: Segment) -> None:
        for suffix in (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT_SUFFIX):
            self.disk.unlink(self._path_of(segment, suffix), missing_ok=True)
        self.size_bytes -= segment.size

    def _path_of(self, segment: Segment, suffix: str) -> PurePath:
        return file_names.segment_path(self.path, segment.base_offset, suffix)

    # --- the end ---

    def complete(self, end: LogEnd, epochs_of: PurePath) -> None:
        """Copy the rest of the log in ``epochs_of``, to which nobody appends. What was copied before is on the disk.

        Raises:
            OSError: a disk refused or failed; nothing but the copy has changed.
        """
        *sealed, active = end.segments
        for _ in self.copy(sealed):
            pass
        Segment.create(self.disk, self.path, active.base_offset, active.config, active.created_ms)
        for suffix in file_names.SEGMENT_SUFFIXES:
            sync_file(self.disk, self._path_of(active, suffix))
        producer_snapshot.write(self.disk, self.path, end.log_end_offset, end.producers, sync=True)
        epochs = epochs_of / file_names.LEADER_EPOCH_CHECKPOINT
        if self.disk.exists(epochs):
            for _ in copy_file(self.disk, epochs, self.path / epochs.name, self.disk.status(epochs).size_bytes):
                pass
        self.disk.sync_directory(self.path)

    def retired(self, current: PurePath) -> PurePath:
        """What becomes of the log in ``current`` when this one takes its place: a directory that is to be removed."""
        return current.with_name(file_names.retired_by(self.path.name))

    def replace(self, current: PurePath) -> None:
        """Take the place of the log in ``current``, durably.

        Raises:
            OSError: a disk failed. If ``current`` is there still, nothing has changed.
        """
        self.disk.rename(current, self.retired(current))
        # The order of names on two disks is the order of these syncs: two logs would be one too many.
        self.disk.sync_directory(current.parent)
        self._take_place()

    def _take_place(self) -> None:
        self.disk.rename(self.path, self.place)
        self.disk.sync_directory(self.directory)
        logger.info("renamed %s to %s", self.path, self.place.name)


def copy_file(disk: Disk, source: PurePath, target: PurePath, size_bytes: int) -> Iterator[int]:
    """Copy so much of a file, durably, with its time of modification, by which retention goes, in steps."""
    reading, writing = disk.open(source, OpenMode.READ), disk.open(target, OpenMode.REPLACE)
    position = 0
    while position < size_bytes:
        data = reading.read(min(CHUNK_BYTES, size_bytes - position), position)
        if not data:
            raise OSError(f"{source} ends at {position}, before {size_bytes}")
        write_all(writing, data, position)
        position += len(data)
        yield len(data)
    disk.set_modified(target, disk.status(source).modified_ns)
    writing.sync()


def find_future_logs(disk: Disk, names: Mapping[PurePath, set[str]]) -> list[FutureLog]:
    """Return the copies that are under way, once those that are complete have their names. Blocks.

    ``names`` are those of the directories in each data directory, which are changed with them.

    Raises:
        OSError: a disk refused or failed.
    """
    found = []
    for path, inside in names.items():
        for name in sorted(inside):
            if (partition := file_names.parse_future_directory(name)) is None:
                continue
            future = FutureLog(disk, partition, path / name)
            if any(str(partition) in each for each in names.values()):
                found.append(future)
            elif any(file_names.retired_by(name) in each for each in names.values()):
                future._take_place()
                inside.remove(name)
                inside.add(str(partition))
            else:
                logger.error("%s is left alone: there is no log that it is a copy of", future.path)
    return found
