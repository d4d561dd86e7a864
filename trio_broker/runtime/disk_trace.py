"""What a broker did with its simulated disk: the operations, counted, observed and compared."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from pathlib import PurePath

import attrs


class OperationKind(enum.Enum):
    """What a ``DiskOperation`` does. One call of ``Disk`` may be several: a tree is removed name by name."""

    OPEN = "open"
    READ = "read"
    STATUS = "status"
    LIST = "list"
    LOCK = "lock"
    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    PREALLOCATE = "preallocate"
    SYNC = "sync"
    SYNC_DIRECTORY = "sync directory"
    MAKE_DIRECTORY = "make directory"
    RENAME = "rename"
    UNLINK = "unlink"
    REMOVE_DIRECTORY = "remove directory"
    SET_MODIFIED = "set modified"

    @property
    def changes(self) -> bool:
        """Whether a power cut before it may leave something else than a power cut after it."""
        return self not in OBSERVING


OBSERVING = (OperationKind.OPEN, OperationKind.READ, OperationKind.STATUS, OperationKind.LIST, OperationKind.LOCK)


@attrs.frozen
class DiskOperation:
    """One operation, about to be done. ``number`` counts from 0; ``checksum`` is the CRC-32 of what is written.
    ``target`` is the new name of a renamed file."""

    number: int
    kind: OperationKind
    path: PurePath
    position: int = 0
    size: int = 0
    checksum: int = 0
    target: PurePath | None = None


@attrs.define
class DiskTrace:
    """Counts operations, digests them, and calls ``before`` with each.

    Two runs from one seed have the same digest. ``before`` may cut the power: the operation is then not done.
    """

    before: Callable[[DiskOperation], None] | None = None
    count: int = 0
    _digest: hashlib.blake2b = attrs.field(factory=lambda: hashlib.blake2b(digest_size=16))

    def begin(
        self, kind: OperationKind, path: PurePath, position: int, size: int, checksum: int, target: PurePath | None
    ) -> None:
        """Note that an operation begins."""
        number = self.count
        self.count = number + 1
        self._digest.update(
            f"{kind.value} {path} {position} {size} {checksum} {target}\n".encode(errors="surrogateescape")
        )
        if self.before is not None:
            self.before(DiskOperation(number, kind, path, position, size, checksum, target))

    def digest(self) -> str:
        """The digest of all operations so far, in hexadecimal digits."""
        return self._digest.hexdigest()
