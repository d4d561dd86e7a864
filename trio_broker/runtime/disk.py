"""A disk as the broker sees it: files, names, and what makes each of them durable.

A broker opens no file by itself. It is given a ``Disk``: ``RealDisk`` is the file systems of this machine,
``SimulatedDisk`` one in memory that loses, on a power cut, exactly what nobody synced.

Paths are ``PurePath``: they name a file and cannot touch it. Everything here blocks and is safe in any thread.

What is durable is POSIX's promise and no more. The bytes of a file are on the disk after its ``sync``; its name is
there after ``sync_directory`` of the directory that holds the name. A rename replaces the old name as a whole, and is
itself a change of names.

Errors are ``OSError`` with the numbers of POSIX, from both disks.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import PurePath
from typing import Protocol

import attrs

from trio_broker.runtime.descriptors import OpenFiles

Bytes = bytes | bytearray | memoryview

SECTOR_BYTES = 512
"""What a disk writes as a whole, or not at all."""


class OpenMode(enum.Enum):
    """What ``Disk.open`` does with the file, and what may be done with it afterwards."""

    READ = "an existing file, to be read"
    UPDATE = "an existing file, to be read and written"
    CREATE = "to be read and written; made, empty, where there is none"
    REPLACE = "to be read and written; made where there is none, emptied where there is one; a link is replaced"


@attrs.frozen
class FileStatus:
    """The length of a file in bytes, and when its content was changed last (nanoseconds since 1970)."""

    size_bytes: int
    modified_ns: int


@attrs.frozen
class FileIdentity:
    """Which file or directory it is, whatever its name: the same as long as it is open or has a name."""

    device: int
    inode: int


@attrs.frozen
class DirectoryEntry:
    """One name in a directory."""

    name: str
    is_directory: bool


@attrs.frozen
class VolumeSpace:
    """The size of a volume in bytes, and how many of them a process without privileges may still write."""

    total_bytes: int
    usable_bytes: int


class FileRegion(Protocol):
    """``size`` bytes of a file from ``position``, readable as long as this object lives: it holds the file open,
    whatever happens to the file's name."""

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int: ...

    def __len__(self) -> int: ...

    def read(self, size: int | None = None) -> bytes:
        """Return the first ``size`` bytes of the region, or all. Short only if the file was truncated meanwhile."""
        ...

    def read_cached(self) -> bytes | bytearray | None:
        """As ``read``, without waiting for the disk; None where it would have to wait, or the region is short."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the file from ``position``, fewer where it ends."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether ``size`` bytes of the file from ``position`` seem to be in memory; False where nobody can tell."""
        ...

    def send(self, socket_number: int, position: int, size: int) -> int:
        """Send up to ``size`` bytes of the file from ``position`` to a socket; return how many it took.

        0 only where the file ends.

        Raises:
            BlockingIOError: the socket has no room.
        """
        ...

    def send_cold(self, socket_number: int, position: int, size: int) -> int:
        """As ``send``, of bytes that have to come from the disk, with one large read ahead."""
        ...


class File(Protocol):
    """An open file. It is closed when the last reference to it is gone, also when its name has gone long before."""

    def read(self, size: int, position: int, /) -> bytes:
        """Return up to ``size`` bytes from ``position``, fewer at the end of the file."""
        ...

    def read_cached(self, size: int, position: int) -> bytes | bytearray:
        """As ``read``, without waiting for the disk.

        Raises:
            BlockingIOError: it would have to wait, or nobody can tell.
        """
        ...

    def write(self, data: Bytes, position: int, /) -> int:
        """Write from ``position`` on; return how many bytes of ``data`` were taken, at least one."""
        ...

    def size(self) -> int:
        """The length of the file in bytes."""
        ...

    def identity(self) -> FileIdentity:
        """Which file it is, whatever its name leads to now."""
        ...

    def truncate(self, size: int, /) -> None:
        """Cut the file, or extend it with zeros, to ``size`` bytes."""
        ...

    def preallocate(self, size: int) -> None:
        """Reserve ``size`` bytes, zero-filled, so that later syncs need not write block lists."""
        ...

    def sync(self) -> None:
        """Wait until what was written before the call, and the length, are on the disk."""
        ...

    def forget(self, position: int, size: int) -> None:
        """Let the system drop these bytes from the page cache, where it takes such advice. Nothing else changes."""
        ...

    def region(self, position: int, size: int) -> FileRegion:
        """Return a region that stays readable as long as it is referenced."""
        ...


class DirectoryLock(Protocol):
    """A lock that lasts until it is released, or the process ends."""

    def release(self) -> None: ...


class LockHeld(OSError):
    """Another process has the lock. ``holder`` is its process id, None where it cannot be known."""

    def __init__(self, path: PurePath, holder: int | None) -> None:
        super().__init__(f"{path} is locked")
        self.holder = holder


class Disk(Protocol):
    """Names, and the files behind them. Nothing here is durable before ``sync_directory`` of the parent.

    Owners of files that stay open between two uses have them counted by ``open_files``.
    """

    @property
    def open_files(self) -> OpenFiles: ...

    def open(self, path: PurePath, mode: OpenMode, *, permissions: int = 0o644) -> File:
        """Open a file; ``permissions`` count where it is made."""
        ...

    def read_file(self, path: PurePath) -> bytes:
        """Return the whole content of a file."""
        ...

    def status(self, path: PurePath) -> FileStatus:
        """Return length and modification time of a file."""
        ...

    def identity(self, path: PurePath) -> FileIdentity:
        """Return which file or directory has this name now; of a link, what it leads to."""
        ...

    def exists(self, path: PurePath) -> bool:
        """Whether there is anything by this name; of a link, whether there is what it leads to."""
        ...

    def is_directory(self, path: PurePath) -> bool:
        """Whether there is a directory by this name."""
        ...

    def list_directory(self, path: PurePath) -> list[DirectoryEntry]:
        """Return the names in a directory, in no particular order."""
        ...

    def make_directory(self, path: PurePath) -> None:
        """Make a directory and those above it; nothing to do where it is there.

        Raises:
            FileExistsError, NotADirectoryError: the path, or one above it, is something else.
        """
        ...

    def rename(self, old: PurePath, new: PurePath) -> None:
        """Give a file or directory another name; a file of the new name is replaced."""
        ...

    def unlink(self, path: PurePath, *, missing_ok: bool = False) -> None:
        """Remove the name of a file."""
        ...

    def remove_tree(self, path: PurePath) -> None:
        """Remove a directory with all in it, as far as that is possible; never raises. Of a link, the link alone."""
        ...

    def copy(self, source: PurePath, target: PurePath) -> None:
        """Copy the content of a file; the copy is not synced."""
        ...

    def set_modified(self, path: PurePath, modified_ns: int) -> None:
        """Set the modification time of a file."""
        ...

    def sync_directory(self, path: PurePath) -> None:
        """Make the names in a directory durable: created, renamed and removed ones."""
        ...

    def lock(self, path: PurePath) -> DirectoryLock:
        """Take the lock that the file ``path`` stands for, which is made where there is none.

        Raises:
            LockHeld: another process has it.
        """
        ...

    def space(self, path: PurePath) -> VolumeSpace:
        """Measure the volume that ``path`` is on."""
        ...


def write_all(file: File, data: Bytes, position: int) -> None:
    """Write all of ``data`` at ``position``, however little the disk takes at a time."""
    view = memoryview(data)
    while view:
        written = file.write(view, position)
        position += written
        view = view[written:]


def write_atomically(disk: Disk, path: PurePath, content: bytes, *, permissions: int = 0o644) -> None:
    """Replace the content of ``path`` so that a crash at any moment leaves either the old or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, OpenMode.REPLACE, permissions=permissions)
    write_all(file, content, 0)
    # Before the rename: a power cut could otherwise leave the name with an empty file behind it.
    file.sync()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def sync_file(disk: Disk, path: PurePath) -> None:
    """Make a file that is not held open durable; one that is not there has nothing to lose."""
    try:
        disk.open(path, OpenMode.UPDATE).sync()
    except FileNotFoundError:
        return


def names_in(entries: Iterable[DirectoryEntry]) -> list[str]:
    """Return the names of ``entries``."""
    return [entry.name for entry in entries]
