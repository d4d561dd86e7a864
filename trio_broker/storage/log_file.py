"""The ``.log`` file of a segment, and regions of it that stay readable.

``LogFile`` opens its descriptor on first use. ``Disk.open_files`` closes it again where others need it more, so that
ten thousand partitions cost some hundred descriptors. Writing is all or nothing: a short write is continued, and after
an error the file is cut back to where it ended, so that there is never a hole and never half a batch.

A region handed to a reader for ``sendfile`` shares the open file, which is closed when its last holder is gone: a
segment may be deleted, or its log closed, while a slow consumer is still being sent from it.

Nothing here is mapped into memory: a mapped file that shrinks kills the process (SIGBUS).

Source: Kafka's FileRecords.
"""

from __future__ import annotations

import enum
from pathlib import PurePath

from trio_broker.runtime.disk import Disk, File, FileRegion, OpenMode, write_all
from trio_broker.storage.errors import StorageFailed


class FileUse(enum.Enum):
    """What was done with an open file since ``OpenFiles`` looked at it last."""

    NONE = "nothing"
    USED = "something"
    WRITTEN = "it was written to, and has not been synced since, whenever that was"


_NONE, _USED, _WRITTEN = FileUse  # as module constants, since every append sets one


class LogFile:
    """One append-only file. It does not know its size: the segment does, and says where to write."""

    __slots__ = ("__weakref__", "_file", "_is_counted", "_kept", "_mode", "_use", "disk", "path")

    def __init__(self, disk: Disk, path: PurePath, *, read_only: bool = False) -> None:
        self.disk = disk
        self.path = path
        self._mode = OpenMode.READ if read_only else OpenMode.UPDATE
        self._file: File | None = None
        # The open file between ``keep`` and ``let_go``, when opening by name could find another segment's file.
        self._kept: File | None = None
        self._use = _NONE
        # Whether ``disk.open_files`` counts it. One that is released stays counted until its turn comes.
        self._is_counted = False

    @property
    def is_open(self) -> bool:
        """Whether a descriptor is held."""
        return self._file is not None

    def create(self) -> None:
        """Make the file, empty. Opening never makes it: a file that was deleted must not come back empty.

        Raises:
            OSError: it cannot be made.
        """
        self._file = self.disk.open(self.path, OpenMode.REPLACE)
        self._count()

    def opened(self) -> File:
        """Return the open file, opening it if need be."""
        file = self._file
        if file is None:
            # One that is kept: the name may be another file's by now.
            self._file = file = self._kept or self.disk.open(self.path, self._mode)
            self._count()
        if self._use is _NONE:
            self._use = _USED
        return file

    def _count(self) -> None:
        if not self._is_counted:
            self._is_counted = True
            self.disk.open_files.note_opened(self)

    def close_if_idle(self, *, urgent: bool) -> bool:
        """See ``KeptFile``. May be called in any thread: each use below takes its own reference first."""
        if self._file is not None:
            if self._kept is not None or (self._use is not _NONE and not urgent):
                if self._use is _USED:
                    self._use = _NONE
                return False
            self._file = None
        self._is_counted = False
        return True

    def note_synced(self) -> None:
        """All that was written is on the disk."""
        if self._use is _WRITTEN:
            self._use = _USED

    def private_copy(self) -> LogFile:
        """Return one for a worker thread: the same open file if there is one, else one that it opens for itself."""
        copy = LogFile(self.disk, self.path)
        copy._file = self._file or self._kept
        # It lasts no longer than what the thread does.
        copy._is_counted = True
        return copy

    def adopt(self, copy: LogFile) -> None:
        """Stay open as ``copy`` is."""
        if self._file is None and copy._file is not None:
            self._file = copy._file
            self._count()

    def keep(self) -> None:
        """Stay open whatever happens to the name: it is about to be another file's."""
        self._kept = self.opened()

    def let_go(self) -> None:
        """Undo ``keep``: the name is this file's."""
        self._kept = None

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of ``data`` at ``position``, which is the end of the file's valid part.

        Raises:
            OSError: nothing was written; the file ends where it did.
            StorageFailed: part may have been written and could not be taken back.
        """
        # First of all: another thread may be about to close it as an idle one.
        self._use = _WRITTEN
        file, expected = self._file or self.opened(), len(data)
        try:
            written = file.write(data, position)
            # A second write after a short one either goes on or raises the error that cut the first one short.
            while written < expected:
                written += file.write(memoryview(data)[written:], position + written)
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
        file = self.opened()
        return file.read_cached(size, position) if nowait else file.read(size, position)

    def is_in_place(self) -> bool:
        """Whether the open file is still what its name leads to; True where none is open, since opening shows it.

        Waits for the disk, and changes nothing: safe in any thread.

        Raises:
            OSError: the disk failed.
        """
        file = self._file or self._kept
        if file is None:
            return True
        try:
            return self.disk.identity(self.path) == file.identity()
        except (FileNotFoundError, NotADirectoryError):
            return False

    def overwrite(self, data: bytes | bytearray, position: int) -> None:
        """Write ``data`` over as many bytes at ``position``.

        Raises:
            OSError: the disk refused; the bytes may be the old or the new ones.
        """
        write_all(self.opened(), data, position)

    def region(self, position: int, size: int) -> FileRegion:
        """Return a region that stays readable whatever happens to this file's name."""
        return self.opened().region(position, size)

    def preallocate(self, size: int) -> None:
        """Reserve ``size`` bytes, zero-filled, so that later syncs need not write block lists."""
        self.opened().preallocate(size)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self.opened().truncate(size)

    def sync(self) -> None:
        """Wait until what was written before the call is on the disk. Changes nothing here: safe in a worker thread."""
        (self._file or self._kept or self.disk.open(self.path, self._mode)).sync()

    def release(self) -> None:
        """Release the file, unless ``keep`` was called. Regions in use keep it open until they are gone."""
        self._file = self._kept
