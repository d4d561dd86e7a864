"""What a simulated disk consists of below its files and calls: the tree of names, and the processes that use it."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import PurePath
from typing import NoReturn

import attrs

from trio_broker.runtime.clock import Clock
from trio_broker.runtime.disk_faults import DiskFaults
from trio_broker.runtime.disk_trace import DiskTrace, OperationKind
from trio_broker.runtime.inode import Directory, Entry, Inode, NameChange, Node, cut_power, sync_names

MAX_NAME_BYTES = 255
"""Of ext4, xfs and most others."""


class ProcessEnded(BaseException):
    """The process that uses this disk has ended. No ``Exception``: nothing of the process may handle it and go on."""


@attrs.define(eq=False)
class SimulatedVolume:
    """What outlives a process: the tree of files, the names not yet durable, and what observes and disturbs them.

    ``guard`` makes each operation one step for threads.
    """

    seed: int
    clock: Clock
    faults: DiskFaults
    root: Directory
    trace: DiskTrace = attrs.field(factory=DiskTrace)
    name_changes: list[NameChange] = attrs.field(factory=list)
    used_bytes: int = 0
    seconds_taken: float = 0.0
    started_processes: int = 0
    processes: list[SimulatedProcess] = attrs.field(factory=list)
    guard: threading.RLock = attrs.field(factory=threading.RLock)

    def now_ns(self) -> int:
        return self.clock.now_ms() * 1_000_000

    def start_process(self) -> SimulatedProcess:
        """Return a process that may use the volume."""
        self.started_processes += 1
        process = SimulatedProcess(self, self.started_processes)
        self.processes = [other for other in self.processes if not other.ended] + [process]
        return process

    def cut_power(self, chance: random.Random) -> None:
        """End all processes, and leave of the unsynced changes what ``chance`` lets survive."""
        with self.guard:
            for process in self.processes:
                process.ended = True
            self.used_bytes = cut_power(self.root, self.name_changes, chance)

    def find(self, path: PurePath) -> Node:
        """Return what is at ``path``.

        Raises:
            FileNotFoundError, NotADirectoryError, OSError: as a real disk.
        """
        node: Node = self.root
        parts = path.parts
        for part in parts[1:] if path.anchor else parts:
            if not isinstance(node, Directory):
                fail(errno.ENOTDIR, path)
            child = node.entries.get(part)
            if child is None:
                refuse_long(part, path)
                fail(errno.ENOENT, path)
            node = child
        return node

    def directory(self, path: PurePath) -> Directory:
        """Return the directory at ``path``."""
        node = self.find(path)
        if not isinstance(node, Directory):
            fail(errno.ENOTDIR, path)
        return node

    def inode(self, path: PurePath) -> Inode:
        """Return the file at ``path``."""
        node = self.find(path)
        if not isinstance(node, Inode):
            fail(errno.EISDIR, path)
        return node

    def place(self, path: PurePath) -> Entry:
        """Return where the last name of ``path`` stands, or may be put."""
        name = path.name
        if not name:
            fail(errno.EBUSY, path)
        return Entry(self.directory(path.parent), name)

    def at(self, place: Entry, path: PurePath) -> Node | None:
        """Return what is at ``place``, which ``path`` led to."""
        node = place.directory.entries.get(place.name)
        if node is None:
            refuse_long(place.name, path)
        return node

    def change_names(self, path: PurePath, change: NameChange) -> None:
        """Do to the names what ``change`` says, and remember that it is not durable."""
        if self.faults.happens(self.faults.failing_names, path):
            fail(errno.EIO, path)
        now_ns = self.now_ns()
        gone = change.replaced
        if change.removed is not None:
            del change.removed.directory.entries[change.removed.name]
            change.removed.directory.modified_ns = now_ns
        if change.added is not None:
            change.added.directory.entries[change.added.name] = change.node
            change.added.directory.modified_ns = now_ns
        else:
            gone = change.node
        if isinstance(gone, Inode):
            self.used_bytes -= gone.allocated_bytes
            gone.linked = False
        self.name_changes.append(change)

    def sync_names(self, directory: Directory) -> None:
        """Make the names in ``directory`` durable."""
        self.name_changes = sync_names(self.name_changes, directory)

    def usable_bytes(self) -> int:
        """How many bytes still fit."""
        return max(0, self.faults.total_bytes - self.used_bytes)

    def resize(self, inode: Inode, size: int, *, reserve: bool = False) -> None:
        """Give a file another length; with ``reserve`` all of it counts as used."""
        before = inode.allocated_bytes
        if size != inode.content.size:
            inode.resize(size)
        if reserve:
            inode.reserved = size
        if inode.linked:
            self.used_bytes += inode.allocated_bytes - before
        inode.modified_ns = self.now_ns()

    def slow_down_read(self, path: PurePath) -> None:
        """Let a read take its time, where it is a slow one."""
        if self.faults.happens(self.faults.slow_reads, path):
            self.seconds_taken += self.faults.slow_read_seconds

    def slow_down(self, path: PurePath) -> None:
        """Let a sync take its time, where it is a slow one."""
        if self.faults.happens(self.faults.slow_syncs, path):
            self.seconds_taken += self.faults.slow_sync_seconds


@attrs.define(eq=False)
class SimulatedProcess:
    """A process that uses a volume, until it has ``ended``."""

    volume: SimulatedVolume
    number: int
    ended: bool = False
    descriptors: int = 0
    """How many files are open."""

    def refuse_descriptors_beyond_limit(self, path: PurePath) -> None:
        """Raise the error of a process that may open no more."""
        faults = self.volume.faults
        if self.descriptors >= faults.max_descriptors or faults.happens(faults.failing_opens, path):
            fail(errno.EMFILE, path)

    def begin(
        self,
        kind: OperationKind,
        path: PurePath,
        position: int = 0,
        size: int = 0,
        checksum: int = 0,
        target: PurePath | None = None,
    ) -> None:
        """Note that an operation begins, which may end the process.

        Not called under the guard: what observes operations may block a thread, or cut the power.
        """
        self.check()
        self.volume.trace.begin(kind, path, position, size, checksum, target)
        self.check()

    def check(self) -> None:
        """Raise ``ProcessEnded`` if it has."""
        if self.ended:
            raise ProcessEnded


def refuse_long(name: str, path: PurePath) -> None:
    """Raise the error of a name that is too long."""
    if len(name) > MAX_NAME_BYTES // 4 and len(os.fsencode(name)) > MAX_NAME_BYTES:
        fail(errno.ENAMETOOLONG, path)


def fail(number: int, path: PurePath) -> NoReturn:
    """Raise the error of a real disk."""
    raise OSError(number, os.strerror(number), str(path))
