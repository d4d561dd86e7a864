"""One entry of ``log.dirs``: whose it is, that nobody else works in it, and how it was left.

``meta.properties`` names the cluster, the node and the directory. A directory with partitions but without it, or with
another node's or cluster's, is refused: it is more likely a wrong mount than what was meant. So is one with a
directory in it that no Kafka broker makes, because Kafka itself would refuse to start on it later.

``.lock`` is held for as long as the directory is open: by flock, and by a POSIX lock as well, which is the kind that
a Java broker takes. Open files outlive their names, so a directory that was removed, renamed or unmounted is noticed
only by ``require_in_place``, which is asked before each checkpoint.

``.kafka_cleanshutdown`` says that everything was closed properly; it is removed before the first log is opened, so that
a crash from then on counts as one.

``.space-reserve`` is space and nothing else. ``with_reserve`` gives it up where the disk is full, a part at a time, so
that topics and records can still be deleted; ``restore_reserve`` takes it back later.

Source: Kafka's LogManager, MetaProperties and CleanShutdownFileHandler; docs/formats/checkpoints.md.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import PurePath
from typing import TypeVar

import attrs

from kafka_wire.primitives import NO_BROKER_EPOCH, NO_UUID, parse_uuid
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import (
    DirectoryLock,
    Disk,
    FileIdentity,
    LockHeld,
    OpenMode,
    VolumeSpace,
    write_atomically,
)
from trio_broker.storage import checkpoints, file_names, interrupted_swaps
from trio_broker.storage.errors import (
    SPACE_ERRNOS,
    CorruptCheckpoint,
    DirectoryLocked,
    DirectoryUnusable,
    ForeignDirectory,
    StorageFailed,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

META_PROPERTIES_VERSION = 1
UNSYNCABLE = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP})
"""Of a directory that this process may not read, or of a file system without syncs: it has made nothing there."""

RESERVE_BYTES = 4 * 1024 * 1024
"""Space kept back in each directory, for what frees space on a full disk: the checkpoints of 20,000 partitions, some
2 MB while they are replaced, files of leader epochs, and records of the metadata log."""

RESERVE_SHARE = 8
"""On a smaller disk the reserve takes one part in so many of what is free: it is not what makes the disk full."""

RESERVE_PART_BYTES = 256 * 1024
"""What is given up of the reserve at a time: producers that wait for space may get what is left of it, so little is.
Below that, none is kept."""

FULL_BYTES = RESERVE_SHARE * RESERVE_BYTES
"""A disk with less to write on counts as full: what is deleted leaves it at once. At 100 MB/s that is a third of a
second."""

MARKED_KINDS = ("delete", "stray", "future")


@attrs.frozen
class MetaProperties:
    """The content of ``meta.properties``; ids as text, in Kafka's base64 form."""

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        """Return the file's content, as Java's Properties read it."""
        return (
            f"version={META_PROPERTIES_VERSION}\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\n"
            f"directory.id={self.directory_id}\n"
        ).encode()

    @classmethod
    def decode(cls, content: bytes, name: str) -> MetaProperties:
        """Read the file's content.

        Raises:
            ForeignDirectory: a property is missing, or of another version (0 was ZooKeeper's, a later one is of a newer
                broker).
        """
        values = {}
        for line in content.decode(errors="replace").splitlines():
            line = line.strip()
            if line and line[0] not in "#!":
                key, _, value = line.partition("=")
                values[key.strip()] = value.strip().replace("\\", "")
        try:
            if (version := int(values["version"])) != META_PROPERTIES_VERSION:
                newer = ", as a newer version may write" if version > META_PROPERTIES_VERSION else ""
                raise ForeignDirectory(f"{name}: version {version}, expected {META_PROPERTIES_VERSION}{newer}")
            return cls(values["cluster.id"], int(values["node.id"]), values.get("directory.id", ""))
        except (KeyError, ValueError) as error:
            raise ForeignDirectory(f"{name}: no good version, cluster.id or node.id: {error}") from error

    @property
    def directory_uuid(self) -> bytes:
        """The directory's id as bytes; zero where the file names none, or nothing that is one."""
        try:
            return parse_uuid(self.directory_id)
        except ValueError:
            return NO_UUID


class LogDirectory:
    """A data directory, locked from ``open`` to ``close``. ``failure`` is set when its disk was given up."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self.disk = disk
        self.path = path
        self.properties: MetaProperties | None = None
        self.was_clean = False
        self.recovery_points: dict[TopicPartition, int] = {}
        # Whether nothing is compacted of a partition without one; otherwise the file was lost or damaged.
        self.has_recovery_points = True
        # None where the file is lost: then nothing is known of any.
        self.log_start_offsets: dict[TopicPartition, int] | None = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.failure: OSError | None = None
        self._written_high_watermarks: dict[TopicPartition, int] = {}
        self._written_cleaner_offsets: dict[TopicPartition, int] | None = None
        self._lock: DirectoryLock | None = None
        # What the directory cannot be without, and which files these were at the start.
        self._watched: dict[PurePath, FileIdentity] = {}

    @property
    def directory_id(self) -> bytes:
        """Zero before it is opened, and where the directory names no id."""
        return NO_UUID if self.properties is None else self.properties.directory_uuid

    @property
    def absolute_path(self) -> str:
        """The path by which the admin APIs name the directory."""
        return str(file_names.absolute(self.path))

    def open(self) -> MetaProperties | None:
        """Make and lock the directory and look at what is in it. Returns its properties, None for a new one.

        Raises:
            DirectoryLocked: another process works in it.
            ForeignDirectory: it holds what no broker puts there, or partitions without ``meta.properties``.
            DirectoryUnusable: it cannot be made or read.
        """
        try:
            self._make()
            self._take_lock()
            self.properties = self._identify()
            return self.properties
        except OSError as error:
            self.unlock()
            raise DirectoryUnusable(f"{error.filename or self.path}: {error.strerror}", error.errno) from error
        except BaseException:
            self.unlock()
            raise

    def _make(self) -> None:
        try:
            self.disk.make_directory(self.path)
            if not self.disk.exists(self.path / file_names.META_PROPERTIES):
                self._sync_names_above()
        except (FileExistsError, NotADirectoryError) as error:
            disk, paths = self.disk, (self.path, *self.path.parents)
            taken = (str(path) for path in paths if disk.exists(path) and not disk.is_directory(path))
            # A dangling link takes the name as well, and does not count as there.
            blocking = next(taken, None) or error.filename or self.path
            text = f"{self.path} cannot be a data directory: {blocking} is not a directory"
            raise DirectoryUnusable(text, error.errno) from None

    def _sync_names_above(self) -> None:
        """Make the directory's own name durable: a power cut could take it with all that was synced in it.

        All names above it, since an earlier start that was cut short may have made any of them.
        """
        for above in self.path.parents:
            try:
                self.disk.sync_directory(above)
            except OSError as error:
                if error.errno not in UNSYNCABLE:
                    raise

    def _take_lock(self) -> None:
        path = self.path / file_names.LOCK_FILE
        try:
            self._lock = self.disk.lock(path)
        except LockHeld as error:
            by = f" by process {error.holder}" if error.holder else ""
            raise DirectoryLocked(f"{self.path} is in use by another broker: {path} is locked{by}") from error
        self.watch(self.path)
        self.watch(path)

    def watch(self, path: PurePath) -> None:
        """Let the directory count as gone once ``path`` is no longer the file or directory that it is now.

        Raises:
            OSError: it is not there.
        """
        # Another mapping, since a thread may be going through this one.
        self._watched = {**self._watched, path: self.disk.identity(path)}

    def require_in_place(self) -> None:
        """Refuse to go on with a directory that is no longer the one that was locked: what is written to its files is
        in none that the next start finds.

        Raises:
            OSError: ESTALE, which is the failure of a disk; or the disk failed.
        """
        for path, identity in self._watched.items():
            try:
                is_in_place = self.disk.identity(path) == identity
            except (FileNotFoundError, NotADirectoryError):
                is_in_place = False
            if not is_in_place:
                raise OSError(errno.ESTALE, "removed, renamed or unmounted while the broker runs", str(path))

    def _identify(self) -> MetaProperties | None:
        partitions = False
        for entry in self.disk.list_directory(self.path):
            if entry.is_directory:
                partitions |= self._check_name(entry.name)
        path = self.path / file_names.META_PROPERTIES
        try:
            return MetaProperties.decode(self.disk.read_file(path), str(path))
        except FileNotFoundError:
            if partitions:
                raise ForeignDirectory(f"{self.path} holds partitions but no {file_names.META_PROPERTIES}") from None
            return None

    def _check_name(self, name: str) -> bool:
        """Return whether a directory is a partition's; refuse one that is nothing of Kafka's."""
        if name == file_names.REMOTE_INDEX_CACHE_DIRECTORY:
            return False
        retired = any(file_names.is_marked_directory(name, kind) for kind in MARKED_KINDS)
        if not retired and file_names.parse_partition_directory(name) is None:
            raise ForeignDirectory(
                f"{self.path} holds a directory {name!r}, which is not of the form topic-partition:"
                " is this a Kafka data directory?"
            )
        return True

    def begin(self) -> None:
        """Note how the directory was left and read its checkpoints; from here on a crash counts as one.

        An unreadable checkpoint costs time, not records: without recovery points everything is read, and without the
        cleaner's everything is compacted anew.
        """
        marker = self.path / file_names.CLEAN_SHUTDOWN_MARKER
        self.was_clean = self.disk.exists(marker)
        if self.was_clean:
            self.disk.unlink(marker)
        # Without a marker too: the process before may have been killed before it synced the name of a new partition, in
        # which records are acknowledged from now on.
        self.disk.sync_directory(self.path)
        # The three that are written together: where one is there, so were the others.
        has_checkpoints = self.disk.exists(self.path / file_names.RECOVERY_POINT_CHECKPOINT)
        points = self._read_offsets(file_names.RECOVERY_POINT_CHECKPOINT)
        # The cleaner's is written after it, and before the first record is compacted.
        may_be_compacted = self.disk.exists(self.path / file_names.CLEANER_CHECKPOINT)
        self.has_recovery_points = points is not None and (has_checkpoints or not may_be_compacted)
        self.recovery_points = points or {}
        self.log_start_offsets = self._read_offsets(file_names.LOG_START_OFFSET_CHECKPOINT, must_exist=has_checkpoints)
        self.high_watermarks = self._read_offsets(file_names.HIGH_WATERMARK_CHECKPOINT) or {}
        self._written_high_watermarks = dict(self.high_watermarks)
        self.cleaner_offsets = self._read_offsets(file_names.CLEANER_CHECKPOINT) or {}
        self._written_cleaner_offsets = dict(self.cleaner_offsets) if may_be_compacted else None

    def _read_offsets(self, name: str, *, must_exist: bool = False) -> dict[TopicPartition, int] | None:
        """Return what a checkpoint says; None where it is damaged, and then kept aside, or lost."""
        path = self.path / name
        if must_exist and not self.disk.exists(path):
            logger.error("%s is lost", path)
            return None
        try:
            return checkpoints.read_offsets(self.disk, path)
        except CorruptCheckpoint as error:
            aside = path.with_name(name + checkpoints.DAMAGED_SUFFIX)
            self.disk.rename(path, aside)
            logger.error("not using a checkpoint, which is kept as %s: %s", aside.name, error)
            return None

    @property
    def named_partitions(self) -> set[TopicPartition]:
        """The partitions that have records by the checkpoints."""
        tables = (self.recovery_points, self.high_watermarks)
        return {partition for table in tables for partition, offset in table.items() if offset}

    def forget(self, partition: TopicPartition) -> bool:
        """Drop what the checkpoints said of a partition. Returns whether they said anything."""
        tables = (self.recovery_points, self.log_start_offsets or {}, self.high_watermarks, self.cleaner_offsets)
        known = [table.pop(partition, None) for table in tables]
        return any(offset is not None for offset in known)

    def write_high_watermarks(self, offsets: dict[TopicPartition, int]) -> None:
        """Write the high watermarks down.

        Raises:
            OSError: they could not be written.
        """
        checkpoints.write_offsets(self.disk, self.path / file_names.HIGH_WATERMARK_CHECKPOINT, offsets)
        self._written_high_watermarks = offsets

    def keep_high_watermarks(self, partitions: Collection[TopicPartition]) -> None:
        """Take all but those of ``partitions`` out of what is written down; otherwise as ``write_high_watermarks``."""
        kept = {each: offset for each, offset in self._written_high_watermarks.items() if each in partitions}
        if len(kept) < len(self._written_high_watermarks):
            self.write_high_watermarks(kept)

    def write_cleaner_offsets(self, offsets: dict[TopicPartition, int]) -> None:
        """Write down how far each partition has been compacted, unless that is what the file says already.

        Raises:
            OSError: it could not be written.
        """
        if offsets != self._written_cleaner_offsets:
            checkpoints.write_offsets(self.disk, self.path / file_names.CLEANER_CHECKPOINT, offsets)
            self._written_cleaner_offsets = offsets

    def write_meta_properties(self, properties: MetaProperties) -> None:
        """Write whose directory this is, durably."""
        write_atomically(self.disk, self.path / file_names.META_PROPERTIES, properties.encode())
        self.properties = properties

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """Say that everything in here was closed properly. The last thing to be written."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
        write_atomically(self.disk, self.path / file_names.CLEAN_SHUTDOWN_MARKER, content)

    def with_reserve(self, work: Callable[[], T]) -> T:
        """Do ``work``, which is what an operator frees space with; if the disk is full, again with more and more of
        the reserve.

        Waits for the disk. ``work`` has changed nothing when it finds the disk full.

        Raises:
            OSError: what ``work`` raises.
        """
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in SPACE_ERRNOS or isinstance(error, StorageFailed) or not self.give_part_up():
                    raise

    def give_part_up(self) -> bool:
        """Free a part of the space that is kept back; return whether there was any. Waits for the disk."""
        path = self.path / file_names.SPACE_RESERVE
        try:
            left = self.disk.status(path).size_bytes - RESERVE_PART_BYTES
            if left > 0:
                self.disk.open(path, OpenMode.UPDATE).truncate(left)
            else:
                self.disk.unlink(path)
        except OSError:
            return False
        logger.warning("%s is full: using %d KiB of the space kept back", self.path, RESERVE_PART_BYTES // 1024)
        return True

    def _give_reserve_up(self) -> bool:
        try:
            self.disk.unlink(self.path / file_names.SPACE_RESERVE)
        except OSError:
            return False
        return True

    def give_reserve_up_if_needed(self) -> None:
        """Give the reserve up where little else is left: everything is about to be closed, which writes some files."""
        try:
            if self.volume_space().usable_bytes < RESERVE_BYTES and self._give_reserve_up():
                logger.warning("%s is full: using the %d MiB kept back", self.path, RESERVE_BYTES >> 20)
        except OSError as error:
            logger.warning("%s: its space cannot be measured: %s", self.path, error)

    def remove_deleted_if_needed(self) -> None:
        """Remove the files and directories of what is deleted where little space is left, whatever their delay.

        For a start, which nobody has read from yet, and which writes before it opens the logs. Waits for the disk.
        """
        try:
            if not self.is_full():
                return
            for entry in self.disk.list_directory(self.path):
                path = self.path / entry.name
                if file_names.is_marked_directory(entry.name, "delete"):
                    logger.info("removing %s", path)
                    self.disk.remove_tree(path)
                elif entry.is_directory and file_names.parse_partition_directory(entry.name) is not None:
                    interrupted_swaps.remove_deleted(self.disk, path)
        except OSError as error:
            # The start goes on with what there is, and says what is missing where it needs it.
            logger.warning("%s: not all deleted files are removed: %s", self.path, error)

    def restore_reserve(self) -> None:
        """Keep space back, as much as there is enough for. Waits for the disk."""
        path = self.path / file_names.SPACE_RESERVE
        try:
            kept = self.disk.status(path).size_bytes if self.disk.exists(path) else 0
            if kept >= RESERVE_BYTES:
                return
            share = (self.volume_space().usable_bytes + kept) // RESERVE_SHARE
            wanted = min(RESERVE_BYTES, share - share % RESERVE_PART_BYTES)
            if wanted > kept:
                self.disk.open(path, OpenMode.CREATE).preallocate(wanted)
        except OSError as error:
            # A file without its space would be none; and nothing that clients ask for depends on it.
            self._give_reserve_up()
            logger.warning("%s: no space is kept back: %s", self.path, error)

    def is_full(self) -> bool:
        """Whether there is hardly anything left to write on. Waits for the disk, and is False if that fails."""
        try:
            return self.volume_space().usable_bytes < FULL_BYTES
        except OSError:
            return False

    def volume_space(self) -> VolumeSpace:
        """Measure the volume that the directory is on. Waits for the disk.

        Raises:
            OSError: it cannot be measured.
        """
        return self.disk.space(self.path)

    def unlock(self) -> None:
        """Release the lock on the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def known_cluster_id(disk: Disk, directory: PurePath) -> str | None:
    """The cluster that a data directory is of, None of one that is new. Waits for the disk.

    Raises:
        DataDirectoryError: it is not a data directory as they are written here.
    """
    path = directory / file_names.META_PROPERTIES
    try:
        return MetaProperties.decode(disk.read_file(path), str(path)).cluster_id
    except FileNotFoundError:
        return None


def clean_shutdown_epoch(disk: Disk, directories: Sequence[PurePath]) -> int:
    """The broker epoch that a clean stop has left in all data directories, ``NO_BROKER_EPOCH`` after any other end, and
    where one of them is new or was given up. Waits for the disk."""
    epochs = {_clean_shutdown_epoch_in(disk, each) for each in directories}
    return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH


def _clean_shutdown_epoch_in(disk: Disk, directory: PurePath) -> int:
    try:
        return int(json.loads(disk.read_file(directory / file_names.CLEAN_SHUTDOWN_MARKER))["brokerEpoch"])
    # What is no directory, or cannot be read, is refused by name when it is locked.
    except (OSError, ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
