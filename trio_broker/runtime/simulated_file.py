"""Open files of a simulated disk."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import PurePath

import attrs

from trio_broker.runtime.disk import Bytes, FileIdentity
from trio_broker.runtime.disk_trace import OperationKind
from trio_broker.runtime.inode import Inode
from trio_broker.runtime.simulated_volume import SimulatedProcess, fail

SEND_BYTES = 256 * 1024
"""The most that one ``send`` copies: a socket takes about as much, and the rest would be copied for nothing."""


@attrs.define(eq=False)
class SimulatedFile:
    """See ``File``. It keeps its content as long as it is referenced, whatever happens to the name."""

    process: SimulatedProcess
    path: PurePath
    inode: Inode
    writable: bool

    def __attrs_post_init__(self) -> None:
        self.process.descriptors += 1

    def __del__(self) -> None:
        self.process.descriptors -= 1

    def read(self, size: int, position: int, /) -> bytes:
        process = self.process
        process.begin(OperationKind.READ, self.path, position, size)
        if size < 0 or position < 0:
            fail(errno.EINVAL, self.path)
        volume = process.volume
        with volume.guard:
            process.check()
            volume.slow_down_read(self.path)
            if volume.faults.happens(volume.faults.failing_reads, self.path):
                fail(errno.EIO, self.path)
            return self.inode.content.read(position, size)

    def read_cached(self, size: int, position: int) -> bytes:
        faults = self.process.volume.faults
        if faults.happens(faults.cold_reads, self.path):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(self.path))
        return self.read(size, position)

    def write(self, data: Bytes, position: int, /) -> int:
        process, inode = self.process, self.inode
        copied = bytes(data)
        process.begin(OperationKind.WRITE, self.path, position, len(copied), zlib.crc32(copied))
        if not self.writable:
            fail(errno.EBADF, self.path)
        if position < 0:
            fail(errno.EINVAL, self.path)
        volume = process.volume
        faults = volume.faults
        with volume.guard:
            process.check()
            if not copied:
                return 0
            if faults.happens(faults.failing_writes, self.path):
                fail(errno.EIO, self.path)
            if faults.happens(faults.short_writes, self.path):
                copied = copied[: faults.random.randint(1, len(copied))]
            before = inode.allocated_bytes
            room = before + volume.usable_bytes() - position
            if len(copied) > room:
                if room <= 0:
                    fail(errno.ENOSPC, self.path)
                copied = copied[:room]
            inode.write(position, copied)
            inode.modified_ns = volume.now_ns()
            if inode.linked:
                volume.used_bytes += inode.allocated_bytes - before
        return len(copied)

    def size(self) -> int:
        self.process.begin(OperationKind.STATUS, self.path)
        return self.inode.content.size

    def identity(self) -> FileIdentity:
        self.process.begin(OperationKind.STATUS, self.path)
        return FileIdentity(self.process.volume.seed, self.inode.number)

    def truncate(self, size: int, /) -> None:
        process = self.process
        process.begin(OperationKind.TRUNCATE, self.path, 0, size)
        if not self.writable or size < 0:
            fail(errno.EINVAL, self.path)
        volume = process.volume
        with volume.guard:
            process.check()
            if volume.faults.happens(volume.faults.failing_writes, self.path):
                fail(errno.EIO, self.path)
            volume.resize(self.inode, size)

    def preallocate(self, size: int) -> None:
        process = self.process
        process.begin(OperationKind.PREALLOCATE, self.path, 0, size)
        if not self.writable:
            fail(errno.EBADF, self.path)
        if size < 1:
            fail(errno.EINVAL, self.path)
        volume = process.volume
        with volume.guard:
            process.check()
            if size - self.inode.allocated_bytes > volume.usable_bytes():
                fail(errno.ENOSPC, self.path)
            volume.resize(self.inode, max(size, self.inode.content.size), reserve=True)

    def sync(self) -> None:
        process = self.process
        process.begin(OperationKind.SYNC, self.path)
        volume = process.volume
        with volume.guard:
            process.check()
            volume.slow_down(self.path)
            if volume.faults.happens(volume.faults.failing_syncs, self.path):
                self.inode.fail_sync(volume.faults.random)
                fail(errno.EIO, self.path)
            self.inode.sync()

    def forget(self, position: int, size: int) -> None:
        """Nothing to do: what is in the page cache is drawn at each read."""

    def region(self, position: int, size: int) -> SimulatedFileRegion:
        return SimulatedFileRegion(self, position, size)


@attrs.define(eq=False)
class SimulatedFileRegion:
    """See ``FileRegion``. Its bytes are copied to the socket."""

    file: SimulatedFile
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self, size: int | None = None) -> bytes:
        return self.file.read(self.size if size is None else size, self.position)

    def read_cached(self) -> bytes | None:
        try:
            content = self.file.read_cached(self.size, self.position)
        except OSError:
            return None
        return content if len(content) == self.size else None

    def read_at(self, position: int, size: int) -> bytes:
        return self.file.read(size, position)

    def is_cached(self, position: int, size: int) -> bool:
        faults = self.file.process.volume.faults
        return not faults.happens(faults.cold_reads, self.file.path)

    def send(self, socket_number: int, position: int, size: int) -> int:
        return os.write(socket_number, self.file.read(min(size, SEND_BYTES), position))

    def send_cold(self, socket_number: int, position: int, size: int) -> int:
        return self.send(socket_number, position, size)
