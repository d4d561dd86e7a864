"""A disk in memory, for tests and simulations: it loses, on a power cut, what was not synced.

A ``SimulatedDisk`` is the disk as one process sees it. When the process ends, by ``crash`` (a kill) or ``power_cut``,
the caller gets the disk for the next process. The old one, and each file opened by it, raises ``ProcessEnded`` from
then on, so that no handler or finalizer of the ended process changes what the next one finds.

The same seed and the same operations give the same errors, the same order of listings and the same survivors of a
power cut; the digest of ``trace`` shows it. docs/decisions/0034 says what is modelled and what is not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import zlib
from functools import partial
from pathlib import PurePath

import attrs

from trio_broker.runtime.clock import Clock
from trio_broker.runtime.descriptors import OpenFiles
from trio_broker.runtime.disk import (
    DirectoryEntry,
    FileIdentity,
    FileStatus,
    LockHeld,
    OpenMode,
    VolumeSpace,
    write_all,
)
from trio_broker.runtime.disk_faults import DiskFaults
from trio_broker.runtime.disk_trace import DiskTrace, OperationKind
from trio_broker.runtime.inode import Directory, Inode, NameChange, Node
from trio_broker.runtime.simulated_file import SimulatedFile
from trio_broker.runtime.simulated_volume import SimulatedProcess, SimulatedVolume, fail


class SimulatedDisk:
    """See ``Disk``, and the top of this file. Relative paths begin at the root, and there are no links.

    Differs from a real disk where nobody may rely on one: a directory cannot be opened, its length is 0, and
    permissions mean nothing.
    """

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        root = Directory(clock.now_ms() * 1_000_000)
        volume = SimulatedVolume(seed, clock, DiskFaults(random.Random(seed)), root)
        self._process = volume.start_process()
        self.open_files = OpenFiles()

    @classmethod
    def _of(cls, process: SimulatedProcess) -> SimulatedDisk:
        disk = cls.__new__(cls)
        disk._process = process
        disk.open_files = OpenFiles()
        return disk

    @property
    def faults(self) -> DiskFaults:
        """What goes wrong. It outlives the process."""
        return self._process.volume.faults

    @property
    def trace(self) -> DiskTrace:
        """The record of calls, which outlives the process."""
        return self._process.volume.trace

    def seconds_taken(self) -> float:
        """Return how long the syncs since the last call took. Nothing waits here: simulated workers do it."""
        volume = self._process.volume
        seconds, volume.seconds_taken = volume.seconds_taken, 0.0
        return seconds

    def another_process(self) -> SimulatedDisk:
        """Return the disk as another process sees it at the same time."""
        return self._of(self._process.volume.start_process())

    def crash(self) -> SimulatedDisk:
        """End the process; return the disk for the next. All that was written is still there, synced or not."""
        self._process.ended = True
        return self.another_process()

    def power_cut(self, chance: random.Random | None = None) -> SimulatedDisk:
        """End all processes; return the disk for the next, with what ``chance`` lets survive of unsynced changes."""
        self._process.volume.cut_power(chance or self.faults.random)
        return self.another_process()

    def rot(self, path: PurePath, position: int) -> None:
        """Turn a bit of a durable byte over, as a disk may at any time."""
        inode = self._process.volume.inode(path)
        (byte,) = inode.durable.read(position, 1)
        changed = bytes([byte ^ 1 << self.faults.random.randrange(8)])
        inode.durable.write(position, changed)
        inode.content.write(position, changed)

    def content(self, path: PurePath) -> memoryview:
        """Return what a file has, for a look from outside that is no operation of the process."""
        return memoryview(self._process.volume.inode(path).content.data)

    def open(self, path: PurePath, mode: OpenMode, *, permissions: int = 0o644) -> SimulatedFile:
        return self.open_files.with_descriptor(partial(self._open, path, mode))

    def _open(self, path: PurePath, mode: OpenMode) -> SimulatedFile:
        creates = mode is OpenMode.CREATE or mode is OpenMode.REPLACE
        volume = self._begin(OperationKind.CREATE if creates else OperationKind.OPEN, path)
        with volume.guard:
            self._process.check()
            place = volume.place(path)
            self._process.refuse_descriptors_beyond_limit(path)
            inode = volume.at(place, path)
            if isinstance(inode, Directory):
                fail(errno.EISDIR, path)
            if inode is None:
                if not creates:
                    fail(errno.ENOENT, path)
                inode = Inode(volume.now_ns())
                volume.change_names(path, NameChange(inode, None, place))
            elif mode is OpenMode.REPLACE:
                volume.resize(inode, 0)
        return SimulatedFile(self._process, path, inode, mode is not OpenMode.READ)

    def read_file(self, path: PurePath) -> bytes:
        file = self.open(path, OpenMode.READ)
        return file.read(file.size(), 0)

    def status(self, path: PurePath) -> FileStatus:
        volume = self._begin(OperationKind.STATUS, path)
        with volume.guard:
            node = volume.find(path)
            return FileStatus(node.content.size if isinstance(node, Inode) else 0, node.modified_ns)

    def identity(self, path: PurePath) -> FileIdentity:
        volume = self._begin(OperationKind.STATUS, path)
        with volume.guard:
            return FileIdentity(volume.seed, volume.find(path).number)

    def exists(self, path: PurePath) -> bool:
        return self._found(path) is not None

    def is_directory(self, path: PurePath) -> bool:
        return isinstance(self._found(path), Directory)

    def _found(self, path: PurePath) -> Node | None:
        volume = self._begin(OperationKind.STATUS, path)
        with volume.guard, contextlib.suppress(OSError):
            return volume.find(path)
        return None

    def list_directory(self, path: PurePath) -> list[DirectoryEntry]:
        """See ``Disk``. The order follows from the seed and the names, as a real one from a hash of the names."""
        return self.open_files.with_descriptor(partial(self._list_directory, path))

    def _list_directory(self, path: PurePath) -> list[DirectoryEntry]:
        volume = self._begin(OperationKind.LIST, path)
        with volume.guard:
            self._process.refuse_descriptors_beyond_limit(path)
            entries = list(volume.directory(path).entries.items())
        entries.sort(key=lambda entry: (zlib.crc32(os.fsencode(entry[0]), volume.seed & 0xFFFFFFFF), entry[0]))
        return [DirectoryEntry(name, isinstance(node, Directory)) for name, node in entries]

    def make_directory(self, path: PurePath) -> None:
        for ancestor in reversed(path.parents):
            if ancestor.name and self._found(ancestor) is None:
                self._make_directory(ancestor)
        if not self.is_directory(path):
            self._make_directory(path)

    def _make_directory(self, path: PurePath) -> None:
        volume = self._begin(OperationKind.MAKE_DIRECTORY, path)
        with volume.guard:
            self._process.check()
            place = volume.place(path)
            if volume.at(place, path) is not None:
                fail(errno.EEXIST, path)
            volume.change_names(path, NameChange(Directory(volume.now_ns()), None, place))

    def rename(self, old: PurePath, new: PurePath) -> None:
        volume = self._begin(OperationKind.RENAME, old, new)
        with volume.guard:
            self._process.check()
            removed, added = volume.place(old), volume.place(new)
            node = volume.at(removed, old)
            if node is None:
                fail(errno.ENOENT, old)
            replaced = volume.at(added, new)
            if replaced is node:
                return
            self._refuse_rename(node, replaced, old, new)
            volume.change_names(old, NameChange(node, removed, added, replaced))

    def _refuse_rename(self, node: Node, replaced: Node | None, old: PurePath, new: PurePath) -> None:
        """Raise what a real disk raises where what has the names does not fit."""
        find = self._process.volume.find
        if isinstance(node, Directory) and any(find(ancestor) is node for ancestor in new.parents):
            fail(errno.EINVAL, new)
        if isinstance(replaced, Directory):
            if any(find(ancestor) is replaced for ancestor in old.parents):
                fail(errno.ENOTEMPTY, new)
            if isinstance(node, Inode):
                fail(errno.EISDIR, new)
            if replaced.entries:
                fail(errno.ENOTEMPTY, new)
        elif replaced is not None and isinstance(node, Directory):
            fail(errno.ENOTDIR, new)

    def unlink(self, path: PurePath, *, missing_ok: bool = False) -> None:
        volume = self._begin(OperationKind.UNLINK, path)
        with volume.guard:
            self._process.check()
            try:
                place = volume.place(path)
                node = volume.at(place, path)
                if node is None:
                    fail(errno.ENOENT, path)
            except FileNotFoundError:
                if missing_ok:
                    return
                raise
            if isinstance(node, Directory):
                fail(errno.EISDIR, path)
            volume.change_names(path, NameChange(node, place, None))

    def remove_tree(self, path: PurePath) -> None:
        with contextlib.suppress(OSError):
            for entry in self.list_directory(path):
                with contextlib.suppress(OSError):
                    if entry.is_directory:
                        self.remove_tree(path / entry.name)
                    else:
                        self.unlink(path / entry.name)
            self._remove_directory(path)

    def _remove_directory(self, path: PurePath) -> None:
        volume = self._begin(OperationKind.REMOVE_DIRECTORY, path)
        with volume.guard:
            self._process.check()
            node = volume.directory(path)
            if node.entries:
                fail(errno.ENOTEMPTY, path)
            volume.change_names(path, NameChange(node, volume.place(path), None))

    def copy(self, source: PurePath, target: PurePath) -> None:
        found = self._found(source)
        if found is not None and found is self._found(target):
            raise shutil.SameFileError(f"{source} and {target} are the same file")
        content = self.read_file(source)
        write_all(self.open(target, OpenMode.REPLACE), content, 0)

    def set_modified(self, path: PurePath, modified_ns: int) -> None:
        volume = self._begin(OperationKind.SET_MODIFIED, path)
        with volume.guard:
            self._process.check()
            volume.find(path).modified_ns = modified_ns

    def sync_directory(self, path: PurePath) -> None:
        self.open_files.with_descriptor(partial(self._sync_directory, path))

    def _sync_directory(self, path: PurePath) -> None:
        volume = self._begin(OperationKind.SYNC_DIRECTORY, path)
        with volume.guard:
            self._process.check()
            self._process.refuse_descriptors_beyond_limit(path)
            directory = volume.directory(path)
            volume.slow_down(path)
            if volume.faults.happens(volume.faults.failing_directory_syncs, path):
                fail(errno.EIO, path)
            volume.sync_names(directory)

    def lock(self, path: PurePath) -> SimulatedLock:
        inode = self.open(path, OpenMode.CREATE).inode
        volume = self._begin(OperationKind.LOCK, path)
        with volume.guard:
            owner = inode.owner
            if isinstance(owner, SimulatedLock) and not owner.process.ended:
                raise LockHeld(path, None if owner.process is self._process else owner.process.number)
            inode.owner = lock = SimulatedLock(self._process, inode)
            return lock

    def space(self, path: PurePath) -> VolumeSpace:
        volume = self._begin(OperationKind.STATUS, path)
        with volume.guard:
            volume.find(path)
            return VolumeSpace(volume.faults.total_bytes, volume.usable_bytes())

    def _begin(self, kind: OperationKind, path: PurePath, target: PurePath | None = None) -> SimulatedVolume:
        self._process.begin(kind, path, target=target)
        return self._process.volume


@attrs.define(eq=False)
class SimulatedLock:
    """A lock that ends with its process."""

    process: SimulatedProcess
    _inode: Inode

    def release(self) -> None:
        if self._inode.owner is self:
            self._inode.owner = None
