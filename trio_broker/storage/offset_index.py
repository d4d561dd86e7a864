"""The offset index of one log segment.

Maps an offset, relative to the segment's base offset, to the position in the ``.log`` file of the batch whose *last*
offset it is. Sparse: one entry about every ``index.interval.bytes``. Entries are 8 bytes, two big-endian int32:
relative offset, position. Both columns only ever grow, which is what makes bisection right, in either column: by
offset to find where a read begins, by position to find where it must end.

The index is advice: recovery rebuilds it from the log, and ``Segment.indexed_position``, by which all lookups go, uses
no entry from a file without a look at the batch that it leads to.

Source: Kafka's OffsetIndex; docs/formats/indexes.md.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import PurePath

import attrs

from trio_broker.runtime.disk import Disk
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.index_file import AbstractIndex, is_sorted, read_index_file


@attrs.frozen
class OffsetPosition:
    """The batch with last offset ``offset`` begins at byte ``position`` of the segment."""

    offset: int
    position: int


class OffsetIndex(AbstractIndex):
    """The entries of one ``.index`` file."""

    ENTRY = struct.Struct(">ii")

    def __init__(self, disk: Disk, path: PurePath, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path, base_offset, max_bytes)
        self._offsets, self._positions = self._columns

    @classmethod
    def load(
        cls, disk: Disk, path: PurePath, base_offset: int, max_bytes: int, log_bytes: int, *, is_active: bool = False
    ) -> OffsetIndex:
        """Read an index file and check it against its segment of ``log_bytes`` bytes.

        Raises:
            CorruptIndex: torn, falling, or pointing outside the log. A lookup in such an index would lead anywhere.
        """
        index = cls(disk, path, base_offset, max_bytes)
        # Not unpacked one by one: ten times faster for the index of a full segment.
        numbers = array("i", read_index_file(disk, path, cls.ENTRY.size, is_active=is_active))
        if sys.byteorder == "little":
            numbers.byteswap()
        index._offsets.extend(numbers[::2])
        index._positions.extend(numbers[1::2])
        index._entries_on_disk = len(index)
        index.is_from_file = True
        index._check(log_bytes)
        return index

    def _check(self, log_bytes: int) -> None:
        if not self._offsets:
            return
        first, last = self._offsets[0], self._offsets[-1]
        if first < 0 or not is_sorted(self._offsets) or (len(self._offsets) > 1 and last == first):
            raise CorruptIndex(f"{self.path}: offsets run from {first} to {last}")
        if self._positions[0] < 0 or not is_sorted(self._positions) or self._positions[-1] >= max(log_bytes, 1):
            raise CorruptIndex(f"{self.path}: positions run to {self._positions[-1]} in a log of {log_bytes} bytes")

    @property
    def is_full(self) -> bool:
        """Whether the next append must go to a new segment."""
        return len(self._offsets) >= self.max_entries

    @property
    def last_number(self) -> int:
        """The number of the last entry; -1 when there is none."""
        return len(self._offsets) - 1

    @property
    def entries(self) -> list[OffsetPosition]:
        """All entries with absolute offsets, for the dump and for tests."""
        base = self.base_offset
        return [
            OffsetPosition(base + offset, position)
            for offset, position in zip(self._offsets, self._positions, strict=True)
        ]

    def spread(self, count: int) -> list[OffsetPosition]:
        """Return up to ``count`` entries at even distances, which show roughly what lies where.

        Safe in a worker thread while entries are added.
        """
        step = max(1, math.ceil(len(self._offsets) / count))
        return [
            OffsetPosition(self.base_offset + self._offsets[index], self._positions[index])
            for index in range(0, len(self._offsets), step)
        ]

    def append(self, offset: int, position: int) -> None:
        """Add the batch at ``position`` whose last offset is ``offset``. In memory only."""
        relative = offset - self.base_offset
        assert not self._offsets or relative > self._offsets[-1], f"{relative} after {self._offsets[-1]}"
        # Position first: a reader in another thread bisects the offsets and then looks up the position.
        self._positions.append(position)
        self._offsets.append(relative)

    def number_for(self, offset: int) -> int:
        """Return the number of the last entry not above ``offset``, where a scan for it begins; -1 for none."""
        return bisect_right(self._offsets, offset - self.base_offset) - 1

    def number_at(self, limit: int) -> int:
        """Return the number of the entry with the largest position that is at most ``limit``; -1 when there is none."""
        return bisect_right(self._positions, limit) - 1

    def entry(self, number: int) -> OffsetPosition:
        """Return the entry of this number, which counts from 0."""
        return OffsetPosition(self.base_offset + self._offsets[number], self._positions[number])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches whose last offset is ``offset`` or more."""
        self._keep(bisect_left(self._offsets, offset - self.base_offset))
