"""The file systems of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import struct
import sys
from functools import partial
from pathlib import Path, PurePath

import attrs

from trio_broker.runtime.descriptors import OpenFiles, max_kept_files
from trio_broker.runtime.disk import Bytes, DirectoryEntry, FileIdentity, FileStatus, LockHeld, OpenMode, VolumeSpace

FLAGS = {
    OpenMode.READ: os.O_RDONLY,
    OpenMode.UPDATE: os.O_RDWR,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT,
    OpenMode.REPLACE: os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW,
}

PROBE_STRIDE_BYTES = 256 * 1024
"""Distance of the probed pages. The cache fills and empties in runs of about the read-ahead (128 KiB), so a hole
that lies between two probes costs at most a short disk read on the loop; probing every page would cost more than
sending."""

RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""0 where the platform has none; then nobody can tell what is in the page cache."""

F_FULLFSYNC: int = getattr(fcntl, "F_FULLFSYNC", 0)
"""0 but on macOS, whose fsync leaves the data in the cache of the drive."""

HAS_FALLOCATE = hasattr(os, "posix_fallocate")

ZEROS = bytes(64 * 1024)
"""Written at a time where space cannot be allocated otherwise."""


class RealFile:
    """An open file descriptor, closed when the last reference to it goes.

    Closing the number under a reader would be worse than a leak: the number is given to the next file opened.
    """

    __slots__ = ("number", "path")

    def __init__(self, path: PurePath, flags: int, permissions: int) -> None:
        # Set first: ``__del__`` runs even if ``os.open`` raises, and must find the attribute.
        self.number = -1
        self.path = path
        self.number = os.open(path, flags | os.O_CLOEXEC, permissions)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)

    def read(self, size: int, position: int, /) -> bytes:
        return os.pread(self.number, size, position)

    def write(self, data: Bytes, position: int, /) -> int:
        return os.pwrite(self.number, data, position)

    def truncate(self, size: int, /) -> None:
        os.ftruncate(self.number, size)

    def sync(self) -> None:
        if F_FULLFSYNC:
            fcntl.fcntl(self.number, F_FULLFSYNC)
        else:
            # fdatasync includes a changed file length, without which the bytes could not be read back.
            os.fdatasync(self.number)

    def read_cached(self, size: int, position: int) -> bytearray:
        buffer = bytearray(size)
        try:
            # The flag is Linux's; a short count means that the rest of the range is cold.
            count = os.preadv(self.number, [buffer], position, RWF_NOWAIT) if RWF_NOWAIT else 0
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # A file system that cannot tell, such as tmpfs, might wait.
            raise BlockingIOError(f"{self.path}: nobody can tell what is in the page cache") from error
        if count < size and position + count < self.size():
            raise BlockingIOError(f"{self.path}: bytes at {position + count} are not in the page cache")
        del buffer[count:]
        return buffer

    def size(self) -> int:
        return os.fstat(self.number).st_size

    def identity(self) -> FileIdentity:
        found = os.fstat(self.number)
        return FileIdentity(found.st_dev, found.st_ino)

    def preallocate(self, size: int) -> None:
        if HAS_FALLOCATE:
            os.posix_fallocate(self.number, 0, size)
            return
        position = self.size()
        while position < size:
            position += os.pwrite(self.number, ZEROS[: size - position], position)

    def forget(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.number, position, size, os.POSIX_FADV_DONTNEED)

    def region(self, position: int, size: int) -> RealFileRegion:
        return RealFileRegion(self, position, size)


@attrs.define(eq=False)
class RealFileRegion:
    """A region that ``os.sendfile`` sends."""

    file: RealFile
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self, size: int | None = None) -> bytes:
        return self.file.read(self.size if size is None else size, self.position)

    def read_cached(self) -> bytearray | None:
        if not RWF_NOWAIT:
            return None
        buffer = bytearray(self.size)
        try:
            count = os.preadv(self.file.number, [buffer], self.position, RWF_NOWAIT)
        except OSError:
            return None  # not in the page cache, or a file system without RWF_NOWAIT
        return buffer if count == self.size else None

    def read_at(self, position: int, size: int) -> bytes:
        return self.file.read(size, position)

    def is_cached(self, position: int, size: int) -> bool:
        if not RWF_NOWAIT:
            return False
        last = position + size - 1
        number, byte = self.file.number, [bytearray(1)]
        try:
            for probe in range(position, last, PROBE_STRIDE_BYTES):
                os.preadv(number, byte, probe, RWF_NOWAIT)
            os.preadv(number, byte, last, RWF_NOWAIT)
        except OSError:
            return False
        return True

    def send(self, socket_number: int, position: int, size: int) -> int:
        return os.sendfile(socket_number, self.file.number, position, size)

    def send_cold(self, socket_number: int, position: int, size: int) -> int:
        if hasattr(os, "posix_fadvise"):
            # One large read instead of the kernel's cautious read-ahead of 128 KiB at a time.
            os.posix_fadvise(self.file.number, position, size, os.POSIX_FADV_WILLNEED)
        return self.send(socket_number, position, size)


def open_null() -> RealFile:
    """A descriptor of nothing."""
    return RealFile(PurePath(os.devnull), FLAGS[OpenMode.READ], 0)


def open_regular(path: PurePath, flags: int, permissions: int) -> RealFile:
    """Open a file that holds bytes. What else may have its name is refused: a pipe would wait for somebody to write.

    Raises:
        OSError: of another kind of file EISDIR or EINVAL, which blame no disk; else as ``os.open``.
    """
    try:
        # The flag keeps the opening of a pipe or a device from waiting. It is of no use to what is read.
        file = RealFile(path, flags | os.O_NONBLOCK, permissions)
    except OSError as error:
        # Of a socket, as of a device that is gone.
        if error.errno == errno.ENXIO:
            require_regular(path, os.stat(path).st_mode)
        raise
    require_regular(path, os.fstat(file.number).st_mode)
    os.set_blocking(file.number, True)
    return file


def require_regular(path: PurePath, mode: int) -> None:
    """Refuse what is no regular file by its ``st_mode``."""
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


class RealDisk:
    """See ``Disk``."""

    def __init__(self) -> None:
        self.open_files = OpenFiles(max_kept_files(), open_null)

    def open(self, path: PurePath, mode: OpenMode, *, permissions: int = 0o644) -> RealFile:
        opened = partial(open_regular, path, FLAGS[mode], permissions)
        try:
            return self.open_files.with_descriptor(opened)
        except OSError as error:
            if mode is not OpenMode.REPLACE or error.errno != errno.ELOOP:
                raise
            # A link by this name is replaced like a file: what it leads to may lie anywhere.
            os.unlink(path)
            return opened()

    def read_file(self, path: PurePath) -> bytes:
        file = self.open(path, OpenMode.READ)
        parts, position = [], 0
        # A file may grow meanwhile, and a read may return less than was asked for.
        while part := file.read(max(file.size() - position, 1), position):
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def status(self, path: PurePath) -> FileStatus:
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            require_regular(path, found.st_mode)
        return FileStatus(found.st_size, found.st_mtime_ns)

    def identity(self, path: PurePath) -> FileIdentity:
        found = os.stat(path)
        return FileIdentity(found.st_dev, found.st_ino)

    def exists(self, path: PurePath) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: PurePath) -> bool:
        return os.path.isdir(path)

    def list_directory(self, path: PurePath) -> list[DirectoryEntry]:
        with self.open_files.with_descriptor(partial(os.scandir, path)) as entries:
            return [DirectoryEntry(entry.name, entry.is_dir()) for entry in entries]

    def make_directory(self, path: PurePath) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: PurePath, new: PurePath) -> None:
        os.replace(old, new)

    def unlink(self, path: PurePath, *, missing_ok: bool = False) -> None:
        Path(path).unlink(missing_ok=missing_ok)

    def remove_tree(self, path: PurePath) -> None:
        if os.path.islink(path):
            # The link alone: what it leads to may lie anywhere, and is not known to be ours.
            with contextlib.suppress(OSError):
                os.unlink(path)
        else:
            shutil.rmtree(path, ignore_errors=True)

    def copy(self, source: PurePath, target: PurePath) -> None:
        self.open_files.with_descriptor(partial(shutil.copyfile, source, target))

    def set_modified(self, path: PurePath, modified_ns: int) -> None:
        os.utime(path, ns=(modified_ns, modified_ns))

    def sync_directory(self, path: PurePath) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        number = self.open_files.with_descriptor(partial(os.open, path, flags))
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def lock(self, path: PurePath) -> RealDirectoryLock:
        file = open_regular(path, FLAGS[OpenMode.CREATE], 0o644)
        try:
            # Both kinds: the POSIX lock is the one that a Java broker takes.
            fcntl.flock(file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LockHeld(path, lock_holder(file.number)) from error
        return RealDirectoryLock(file)

    def space(self, path: PurePath) -> VolumeSpace:
        usage = shutil.disk_usage(path)
        return VolumeSpace(total_bytes=usage.total, usable_bytes=usage.free)


@attrs.define(eq=False)
class RealDirectoryLock:
    """A locked file: closing it releases it."""

    _file: RealFile | None

    def release(self) -> None:
        self._file = None


FLOCK = struct.Struct("hhqqi4x")
"""Linux's ``struct flock`` on 64 bits: l_type, l_whence, l_start, l_len, l_pid."""


def lock_holder(number: int) -> int | None:
    """Return the id of the process that holds a POSIX lock on an open file; None where it cannot be known.

    It is not known of a process in another PID namespace (a container), and of this process itself.
    """
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    try:
        answer = fcntl.fcntl(number, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    lock_type, _, _, _, pid = FLOCK.unpack(answer)
    return pid if lock_type != fcntl.F_UNLCK and pid > 0 else None
