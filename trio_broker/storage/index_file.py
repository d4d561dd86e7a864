"""What the offset index and the time index of a segment share: a file of fixed-size entries that only grows.

The entries live in memory, in columns; the file is written behind. That is safe because an index is advice: after a
crash, recovery rebuilds the indexes of every segment that was not known to be durable, and only those can lag. So most
appends cost no system call for their index, and a log holds no descriptor for it: the file is opened, written and
closed when enough entries have come together, and when the segment is sealed or the log closes.

The file has its entries and nothing behind them. That of an active segment in a directory that Kafka was using has its
full size, zeros behind the entries; Kafka takes the whole length of an index for valid once its broker has stopped.

Source: Kafka's AbstractIndex; docs/formats/indexes.md.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import PurePath
from typing import ClassVar

from kafka_wire.limits import INT32_MAX
from trio_broker.runtime.disk import Disk, File, OpenMode, write_all
from trio_broker.storage.errors import CorruptIndex

MAX_INDEX_BYTES = INT32_MAX
"""The size that stands for any, where an index is only read."""

ENTRIES_PER_WRITE = 32
"""Entries that are written together once the file has as many; before, as many as it has, so that the first is there at
once. One is made for 4 KiB of batches, and a write costs some 15 µs."""


class AbstractIndex:
    """The entries of one index file, in memory; ``flush`` brings the file up to date.

    They lie in two columns, in the order of the file. Both only grow, the second one first: a reader in another thread
    bisects the first column and finds the other half of every entry that it meets there.
    """

    ENTRY: ClassVar[struct.Struct]

    def __init__(self, disk: Disk, path: PurePath, base_offset: int, max_bytes: int) -> None:
        self.disk = disk
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._columns = (array(self.ENTRY.format[1]), array(self.ENTRY.format[2]))
        self._entries_on_disk = 0
        # Then an entry may be anything: a disk may have turned a bit of it over.
        self.is_from_file = False

    def __len__(self) -> int:
        return len(self._columns[0])

    def write_pending(self) -> None:
        """Write the entries that are not in the file yet, if there are enough of them.

        Raises:
            OSError: the disk refused, and the next call tries again; or the file, which comes and goes with its
                segment, is not there.
        """
        on_disk, entries = self._entries_on_disk, len(self)
        pending = entries - on_disk
        if pending > on_disk or pending >= ENTRIES_PER_WRITE:
            self._write(self.disk.open(self.path, OpenMode.UPDATE), on_disk, entries)

    def flush(self) -> None:
        """Bring the file up to date and cut it to exactly the entries. Creates it when it is not there."""
        entries = len(self)
        file = self.disk.open(self.path, OpenMode.CREATE)
        self._write(file, self._entries_on_disk, entries)
        file.truncate(entries * self.ENTRY.size)

    def _write(self, file: File, start: int, end: int) -> None:
        first, second = self._columns
        content = b"".join(map(self.ENTRY.pack, first[start:end], second[start:end]))
        write_all(file, content, start * self.ENTRY.size)
        self._entries_on_disk = end

    def _keep(self, entries: int) -> None:
        """Drop all but the first ``entries``, from the file too."""
        for column in self._columns:
            del column[entries:]
        self._entries_on_disk = min(self._entries_on_disk, entries)
        self.flush()


def read_index_file(disk: Disk, path: PurePath, entry_bytes: int, *, is_active: bool = False) -> bytes:
    """Return the content of an index file; of an ``is_active`` segment's, without the zeros behind the entries.

    Raises:
        CorruptIndex: the length is no multiple of an entry, there is no file, or a sealed segment's ends with zeros, as
            a crash leaves it.
    """
    try:
        content = disk.read_file(path)
    except FileNotFoundError as error:
        raise CorruptIndex(f"{path}: no such index") from error
    if len(content) % entry_bytes:
        raise CorruptIndex(f"{path}: {len(content)} bytes are no multiple of {entry_bytes}")
    if len(content) > entry_bytes and not any(content[-entry_bytes:]):
        if not is_active:
            raise CorruptIndex(f"{path}: zeros behind its entries")
        entries = -(-len(content.rstrip(b"\0")) // entry_bytes)
        return content[: entries * entry_bytes]
    return content


def is_sorted(column: array[int]) -> bool:
    """Whether a column never falls: 10 ms for the index of a full segment of 1 GiB, 40 times less than a loop."""
    numbers = column.tolist()
    return numbers == sorted(numbers)
