"""Files and directories of a simulated disk: what a program sees of them, and what a power cut leaves.

A file is two images, ``content`` (what reads return: the page cache) and ``durable`` (the platter), and the changes
made since the last sync, in order. A directory is two dicts of names, and the changes of names not yet durable
stand in one list of the volume. A power cut applies some of the changes to the durable side, and starts again from it.

Which ones may survive follows what ext4 and xfs do, and POSIX allows; docs/decisions/0034 has the list.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterable, Iterator

import attrs

from trio_broker.runtime.disk import SECTOR_BYTES

NODE_NUMBERS = itertools.count(1)
"""What tells files and directories apart whose names change, as inode numbers do."""

CERTAIN_LOSSES = 0.25
"""Share of the power cuts that treat everything alike: half of them lose all, half keep all. The others choose for each
file, which would otherwise leave no chance to a volume of many files of losing everything."""


class Loss(enum.Enum):
    """What a power cut does to unsynced changes, of a file's bytes or of a volume's names."""

    ALL = "none survives: nothing was written back yet"
    NONE = "all survive: everything had just been written back"
    SUFFIX = "the first ones survive: written back in order, as a journal does; the last write torn between sectors"
    SOME = "any may survive, sector by sector and name by name, as writeback in any order does"
    CONTENT = "a file has its new length and zeros: the length was journalled before the bytes were written"


NAME_LOSSES = (Loss.ALL, Loss.NONE, Loss.SUFFIX, Loss.SOME)


@attrs.define(eq=False)
class Image:
    """The bytes of a file. Those between the end of ``data`` and ``size`` are zeros that take no room: a hole."""

    data: bytearray = attrs.field(factory=bytearray)
    size: int = 0

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from ``position`` on, fewer at the end."""
        end = min(position + size, self.size)
        found = bytes(self.data[position:end])
        return found + bytes(max(0, end - position - len(found)))

    def write(self, position: int, data: bytes) -> None:
        """Put ``data`` at ``position``; costs as much as ``data`` is long, and the hole before it."""
        end = len(self.data)
        if position == end:
            self.data += data
        else:
            if position > end:
                self.data += bytes(position - end)
            self.data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))

    def resize(self, size: int) -> None:
        """Cut the bytes, or put a hole behind them."""
        del self.data[size:]
        self.size = size

    def copy(self) -> Image:
        """Return an equal one."""
        return Image(bytearray(self.data), self.size)


@attrs.frozen
class Write:
    """Bytes put at a position; ``data`` is a copy."""

    position: int
    data: bytes

    def apply(self, image: Image) -> None:
        """Change ``image`` as the write does."""
        image.write(self.position, self.data)

    def sectors(self) -> Iterator[Write]:
        """Split the write where sectors of the file begin."""
        start, end = 0, len(self.data)
        while start < end:
            stop = min(end, start + SECTOR_BYTES - (self.position + start) % SECTOR_BYTES)
            yield Write(self.position + start, self.data[start:stop])
            start = stop


@attrs.frozen
class Resize:
    """A new length."""

    size: int

    def apply(self, image: Image) -> None:
        """Change ``image`` as the change of length does."""
        image.resize(self.size)


Change = Write | Resize


@attrs.define(eq=False)
class Inode:
    """A file, apart from its name.

    ``content`` differs from ``durable`` by ``pending``, and by what a failed sync dropped. ``owner`` is the lock that
    the file stands for, while it is held. ``linked`` is whether the file has a name, so that its bytes count, and
    ``reserved`` how many count although they were not written.
    """

    modified_ns: int
    content: Image = attrs.field(factory=Image)
    durable: Image = attrs.field(factory=Image)
    pending: list[Change] = attrs.field(factory=list)
    durable_modified_ns: int = attrs.field(default=attrs.Factory(lambda self: self.modified_ns, takes_self=True))
    dropped: bool = False
    owner: object = None
    number: int = attrs.field(factory=NODE_NUMBERS.__next__)
    linked: bool = True
    reserved: int = 0

    @property
    def allocated_bytes(self) -> int:
        """How many bytes of the volume the file takes, as long as it has a name."""
        return max(len(self.content.data), self.reserved)

    def write(self, position: int, data: bytes) -> None:
        """Write; costs as much as ``data`` is long, also at the end of a long file."""
        change = Write(position, data)
        change.apply(self.content)
        self.pending.append(change)

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        change = Resize(size)
        change.apply(self.content)
        self.pending.append(change)
        self.reserved = min(self.reserved, size)

    def sync(self) -> None:
        """Make everything durable, except what an earlier failed sync dropped."""
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()
        self.durable_modified_ns = self.modified_ns

    def fail_sync(self, chance: random.Random) -> None:
        """Fail as Linux does: the dirty pages count as clean from now on, whether or not they reached the disk.

        Reads go on to return them, the next sync succeeds, and a power cut brings the old bytes back ("fsyncgate").
        Truncations are the journal's, which has not failed.
        """
        for change in self.pending:
            for part in [change] if isinstance(change, Resize) else change.sectors():
                if isinstance(part, Resize) or chance.random() < 0.5:
                    part.apply(self.durable)
        self.pending.clear()
        self.dropped = True

    def cut_power(self, loss: Loss, chance: random.Random) -> None:
        """Leave what is durable, and of the pending changes those that survive ``loss``."""
        if not self.pending and not self.dropped:
            return
        if loss is Loss.ALL:
            self.modified_ns = self.durable_modified_ns
        for change in surviving_writes(self.pending, self.durable.size, loss, chance):
            change.apply(self.durable)
        self.content = self.durable.copy()
        self.reserved = min(self.reserved, self.content.size)
        self.durable_modified_ns = self.modified_ns
        self.pending.clear()
        self.dropped = False


def surviving_writes(
    pending: list[Change], durable_bytes: int, loss: Loss, chance: random.Random
) -> Iterator[Write | Resize]:
    """Give the changes of a file that a power cut lets through, in their order."""
    match loss:
        case Loss.ALL:
            return
        case Loss.NONE:
            yield from pending
        case Loss.SUFFIX:
            whole = chance.randint(0, len(pending))
            yield from pending[:whole]
            if whole < len(pending) and isinstance(torn := pending[whole], Write):
                sectors = list(torn.sectors())
                yield from sectors[: chance.randrange(len(sectors) + 1)]
        case Loss.SOME:
            yield from some_writes(pending, durable_bytes, chance)
        case Loss.CONTENT:
            yield from lengths(pending, durable_bytes)


def some_writes(pending: list[Change], durable_bytes: int, chance: random.Random) -> Iterator[Change]:
    """Let each sector of each write through or not. Lengths are journalled: what follows a lost one is lost."""
    share = chance.random()
    size = durable_bytes
    for change in pending:
        if isinstance(change, Resize):
            if chance.random() > share:
                return
            size = change.size
            yield change
            continue
        size = max(size, change.position + len(change.data))
        for sector in change.sectors():
            if chance.random() < share:
                yield sector
    if chance.random() < 0.5:
        # The length survived whole, and zeros stand where sectors did not.
        yield Resize(size)


def lengths(pending: list[Change], durable_bytes: int) -> Iterator[Resize]:
    """Give what the changes did to the length of the file."""
    size = durable_bytes
    for change in pending:
        new = change.size if isinstance(change, Resize) else max(size, change.position + len(change.data))
        if new != size:
            yield Resize(new)
        size = new


@attrs.define(eq=False)
class Directory:
    """The names in a directory: as a program sees them, and as they are on the disk."""

    modified_ns: int
    entries: dict[str, Node] = attrs.field(factory=dict)
    durable: dict[str, Node] = attrs.field(factory=dict)
    number: int = attrs.field(factory=NODE_NUMBERS.__next__)


Node = Inode | Directory


@attrs.frozen(eq=False)
class Entry:
    """A place for a name."""

    directory: Directory
    name: str


@attrs.frozen(eq=False)
class NameChange:
    """A node lost a name, got one, or both at once (a rename). ``replaced`` is what had the new name before."""

    node: Node
    removed: Entry | None
    added: Entry | None
    replaced: Node | None = None

    def apply(self) -> None:
        """Make the change durable."""
        if self.removed is not None:
            self.removed.directory.durable.pop(self.removed.name, None)
        if self.added is not None:
            self.added.directory.durable[self.added.name] = self.node

    def touches(self, directory: Directory) -> bool:
        """Whether the change is one of names in ``directory``."""
        return any(entry is not None and entry.directory is directory for entry in (self.removed, self.added))

    def keys(self) -> set[object]:
        """What the change is ordered by: of two changes with a common key the second is never durable alone."""
        keys: set[object] = {(id(entry.directory), entry.name) for entry in (self.removed, self.added) if entry}
        keys.update(id(node) for node in (self.node, self.replaced) if node)
        if self.removed and self.added and isinstance(self.node, Directory):
            # Two of these in the wrong order could put a directory below itself.
            keys.add("a directory moves")
        return keys


def sync_names(changes: list[NameChange], directory: Directory) -> list[NameChange]:
    """Make the names in ``directory`` durable, with the earlier changes they build on; return the changes left."""
    wanted: set[object] = set()
    synced: list[NameChange] = []
    left: list[NameChange] = []
    for change in reversed(changes):
        keys = change.keys()
        if change.touches(directory) or not wanted.isdisjoint(keys):
            wanted |= keys
            synced.append(change)
        else:
            left.append(change)
    for change in reversed(synced):
        change.apply()
    left.reverse()
    return left


def surviving_names(changes: list[NameChange], loss: Loss, chance: random.Random) -> Iterable[NameChange]:
    """Give the changes of names that a power cut lets through, in their order."""
    match loss:
        case Loss.NONE:
            return changes
        case Loss.SUFFIX:
            return changes[: chance.randint(0, len(changes))]
        case Loss.SOME:
            return some_names(changes, chance)
        case _:
            return ()


def some_names(changes: list[NameChange], chance: random.Random) -> Iterator[NameChange]:
    """Let each change through or not, and none that builds on a lost one."""
    share = chance.random()
    lost: set[object] = set()
    for change in changes:
        keys = change.keys()
        if lost.isdisjoint(keys) and chance.random() < share:
            yield change
        else:
            lost |= keys


def cut_power(root: Directory, changes: list[NameChange], chance: random.Random) -> int:
    """Leave of the tree below ``root`` what a power cut leaves; return the bytes in its files."""
    everywhere: Loss | None = None
    if chance.random() < CERTAIN_LOSSES:
        everywhere = chance.choice((Loss.ALL, Loss.NONE))
    for change in list(surviving_names(changes, everywhere or chance.choice(NAME_LOSSES), chance)):
        change.apply()
    changes.clear()
    used_bytes = 0
    directories = [root]
    for directory in directories:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            if isinstance(node, Directory):
                directories.append(node)
            else:
                node.cut_power(everywhere or chance.choice(tuple(Loss)), chance)
                node.linked = True
                used_bytes += node.allocated_bytes
    return used_bytes
