"""The file descriptors of the process, and the files that stay open between two uses.

A segment keeps its file open from one append or read to the next. With ten thousand partitions these would be ten
thousand descriptors, so each disk has ``OpenFiles``, which bounds them: opening one more closes those that have not
been used for long, by the clock algorithm. A use costs no bookkeeping beyond a mark at the file.

Closing means that the owner gives its reference up. A descriptor is closed, and its number given to another file, only
when the last reference is gone: a sync in a thread, or a region that is being sent, keeps the one it has.

Whatever else needs a descriptor for a moment, such as a directory's sync, asks ``with_descriptor``: where the system
has none left, a spare one is given up for it, else files that are kept open make room. Whatever accepts connections
calls ``hold_spares`` first, so that no connection takes what was freed for a file.
"""

from __future__ import annotations

import errno
import resource
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

MAX_KEPT_FILES = 600
"""Files of segments that stay open between two uses: with those of unsynced segments, by half more, well below a
thousand descriptors, however many partitions there are. Opening one again takes about 10 µs."""

KEPT_FILES_SHARE = 4
"""Of so many descriptors that the process may have, one is for files that stay open; connections need the most."""

RESERVED_DESCRIPTORS = 64
"""Descriptors that connections leave free, beside those of kept files: for files and directories that are opened for a
moment by the worker threads, for the admin server, and for what the process had open at its start."""

SPARE_DESCRIPTORS = 8
"""Descriptors that are held for files once connections are accepted: each file that is written and renamed all the
time, such as a checkpoint, takes one for a moment."""

LOOKS_PER_OPENING = 64
"""Files looked at for one to close when another is opened: a bound on what opening costs. The next opening goes on."""

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class KeptFile(Protocol):
    """The owner of a file that stays open between two uses."""

    def close_if_idle(self, *, urgent: bool) -> bool:
        """Give the file up, unless it was used since the last call or has unsynced writes; return whether it is closed.

        ``urgent`` closes it even so, unless it could not be opened again.
        """
        ...


def open_nothing() -> None:
    """What makes the spares of a disk that has no descriptors."""


class OpenFiles:
    """The files of one disk that stay open between two uses, about ``limit`` of them. Safe in any thread.

    ``open_spare`` opens something that is closed when it is not referred to any more.
    """

    def __init__(self, limit: int = MAX_KEPT_FILES, open_spare: Callable[[], object] = open_nothing) -> None:
        self.limit = limit
        self._open_spare = open_spare
        self._spares: list[object] = []
        # Weak: a segment that was deleted must not stay open because it is counted here.
        self._ring: deque[weakref.ref[KeptFile]] = deque()

    def __len__(self) -> int:
        return len(self._ring)

    def note_opened(self, file: KeptFile) -> None:
        """Count ``file``, which is not counted yet, until its ``close_if_idle`` closes it; close others for it."""
        ring, looks = self._ring, LOOKS_PER_OPENING
        ring.append(weakref.ref(file))
        while len(ring) > self.limit and looks:
            looks -= 1
            # Unsynced files go last: of one that is open, the system reports a failed write for certain.
            self._look(urgent=2 * len(ring) > 3 * self.limit)

    def _look(self, *, urgent: bool) -> bool:
        """Look at the file whose turn it is; return whether one was closed."""
        reference = self._ring.popleft()
        file = reference()
        if file is None:
            return False
        if not file.close_if_idle(urgent=urgent):
            self._ring.append(reference)
            return False
        return True

    def close_some(self) -> bool:
        """Close some files that were not used for long, whatever the limit says; return whether there were any."""
        looks = min(LOOKS_PER_OPENING, len(self._ring))
        return sum(self._look(urgent=True) for _ in range(looks)) > 0

    def hold_spares(self) -> None:
        """Hold all spare descriptors again.

        Raises:
            OSError: there are none left for them.
        """
        while len(self._spares) < SPARE_DESCRIPTORS:
            self._spares.append(self._open_spare())

    def _give_one_up(self) -> bool:
        """Close a spare descriptor; return whether there was one."""
        try:
            self._spares.pop()
        except IndexError:
            return False
        return True

    def with_descriptor(self, work: Callable[[], T]) -> T:
        """Do ``work``, which opens something; once more if it finds no descriptor left and some can be freed.

        Raises:
            OSError: what ``work`` raises.
        """
        try:
            return work()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not (self._give_one_up() or self.close_some()):
                raise
        return work()


def max_kept_files() -> int:
    """How many files may stay open in this process."""
    return min(MAX_KEPT_FILES, descriptor_limit() // KEPT_FILES_SHARE)


def max_connections() -> int:
    """How many connections leave this process enough descriptors for everything else; at least one."""
    return max(1, descriptor_limit() - 3 * max_kept_files() // 2 - RESERVED_DESCRIPTORS)


def descriptor_limit() -> int:
    """How many descriptors this process may have (RLIMIT_NOFILE); a million where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_000_000 if soft == resource.RLIM_INFINITY else soft
