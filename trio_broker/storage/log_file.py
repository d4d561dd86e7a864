"""The ``.log`` file of a segment, and regions of it that stay readable.

``LogFile`` opens its descriptor on first use and can let it go again, so that a thousand idle partitions cost no
descriptors. Writing is all or nothing: a short write is continued, and after an error the file is cut back to where
it ended, so that there is never a hole and never half a batch.

``FileRecords`` is a region handed to a reader for ``sendfile``. It shares the descriptor: the descriptor is closed
when its last holder is gone, so a segment may be deleted, or its log closed, while a slow consumer is still being
sent from it. Closing the number under a reader would be worse than a leak: the number is given to the next file
opened.

Nothing here is mapped into memory: a mapped file that shrinks kills the process (SIGBUS).

Source: Kafka's FileRecords.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import attrs

from trio_broker.storage import checkpoints
from trio_broker.storage.errors import StorageFailed


class Descriptor:
    """An open file, closed when the last reference to it goes."""

    __slots__ = ("number",)

    def __init__(self, path: Path, flags: int) -> None:
        # Set first: ``__del__`` runs even if ``os.open`` raises, and must find the attribute.
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


@attrs.define(eq=False)
class FileRecords:
    """``size`` bytes of a log file from ``position``: whole batches, readable as long as this object lives.

    Has ``fileno()``, ``position`` and ``size`` for ``os.sendfile``, and a length like any other chunk of a response.
    """

    _descriptor: Descriptor
    position: int
    size: int

    def fileno(self) -> int:
        """Return the number of the open file; valid while this object is referenced."""
        return self._descriptor.number

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Return the bytes of the region. Short only if the file was truncated meanwhile."""
        return os.pread(self._descriptor.number, self.size, self.position)


class LogFile:
    """One append-only file. It does not know its size: the segment does, and says where to write."""

    __slots__ = ("_descriptor", "_flags", "_kept", "path")

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._descriptor: Descriptor | None = None
        # The descriptor between ``keep`` and ``let_go``, when opening by name could find another segment's file.
        self._kept: Descriptor | None = None

    @property
    def is_open(self) -> bool:
        """Whether a descriptor is held."""
        return self._descriptor is not None

    def create(self) -> None:
        """Make the file, empty. Opening never makes it: a file that was deleted must not come back empty.

        Raises:
            OSError: it cannot be made.
        """
        self._descriptor = Descriptor(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def descriptor(self) -> Descriptor:
        """Return the open file, opening it if need be. Hold on to it while its number is used."""
        descriptor = self._descriptor
        if descriptor is None:
            # A local, since another thread may release the file between the question and the answer.
            try:
                descriptor = Descriptor(self.path, self._flags)
            except FileNotFoundError:
                if self._kept is None:
                    raise
            # Kept meanwhile: the name may be another file's by now.
            self._descriptor = descriptor = self._kept or descriptor
            assert descriptor is not None, "opened or kept"
        return descriptor

    def keep(self) -> None:
        """Stay open whatever happens to the name: it is about to be another file's."""
        self._kept = self.descriptor()

    def let_go(self) -> None:
        """Undo ``keep``: the name is this file's."""
        self._kept = None

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of ``data`` at ``position``, which is the end of the file's valid part.

        Raises:
            OSError: nothing was written; the file ends where it did.
            StorageFailed: part may have been written and could not be taken back.
        """
        descriptor = self.descriptor()
        number, expected = descriptor.number, len(data)
        try:
            written = os.pwrite(number, data, position)
            # A second write after a short one either goes on or raises the error that cut the first one short.
            while written < expected:
                written += os.pwrite(number, memoryview(data)[written:], position + written)
        except OSError:
            # Otherwise a later, shorter append would leave the remainder of this one behind its end.
            self._cut_back(position)
            raise

    def _cut_back(self, position: int) -> None:
        try:
            self.truncate(position)
        except OSError as error:
            raise StorageFailed(
                error.errno, f"a failed write could not be taken back: {error.strerror}", str(self.path)
            ) from error

    def read(self, size: int, position: int, *, nowait: bool = False) -> bytes | bytearray:
        """Return up to ``size`` bytes from ``position``, fewer at the end of the file.

        Raises:
            BlockingIOError: ``nowait`` and the bytes are not in the page cache: read them in a worker thread.
        """
        descriptor = self.descriptor()
        if not nowait:
            return os.pread(descriptor.number, size, position)
        buffer = bytearray(size)
        try:
            # The flag is Linux's; a short count means that the rest of the range is cold.
            count = os.preadv(descriptor.number, [buffer], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # A file system that cannot tell, such as tmpfs, might wait.
            raise BlockingIOError(f"{self.path}: nobody can tell what is in the page cache") from error
        if count < size and position + count < os.fstat(descriptor.number).st_size:
            raise BlockingIOError(f"{self.path}: bytes at {position + count} are not in the page cache")
        del buffer[count:]
        return buffer

    def overwrite(self, data: bytes, position: int) -> None:
        """Write ``data`` over as many bytes at ``position``, durably.

        Raises:
            OSError: the disk refused; the bytes may be the old or the new ones.
        """
        checkpoints.write_all(self.descriptor().number, data, position)
        self.sync()

    def region(self, position: int, size: int) -> FileRecords:
        """Return a region that stays readable whatever happens to this file's name."""
        return FileRecords(self._descriptor or self.descriptor(), position, size)

    def preallocate(self, size: int) -> None:
        """Reserve ``size`` bytes, zero-filled, so that later syncs need not write block lists."""
        descriptor = self.descriptor()
        os.posix_fallocate(descriptor.number, 0, size)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        descriptor = self.descriptor()
        os.ftruncate(descriptor.number, size)

    def sync(self) -> None:
        """Wait until what was written before the call is on the disk. Safe in a worker thread."""
        descriptor = self.descriptor()
        # fdatasync includes a changed file length, without which the bytes could not be read back.
        os.fdatasync(descriptor.number)

    def release(self) -> None:
        """Release the descriptor, unless ``keep`` was called. Regions in use keep it open until they are gone."""
        self._descriptor = self._kept
