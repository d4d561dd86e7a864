"""The time index of one log segment.

An entry (timestamp, offset) says: the largest timestamp seen in this segment up to that entry is ``timestamp``, and
``offset`` is the last offset of the batch that has it. So every record behind the entry's batch that is younger than
the timestamp has a larger offset, which is what a lookup by time needs. Entries are 12 bytes: big-endian int64
timestamp in milliseconds, int32 offset relative to the base offset. Timestamps strictly grow, offsets never shrink.

When a segment is sealed, or its log closed, a last entry with the segment's largest timestamp is added: retention by
time reads it instead of the segment. One slot is kept free for it.

Source: Kafka's TimeIndex; docs/formats/indexes.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.runtime.disk import Disk
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.index_file import AbstractIndex, is_sorted, read_index_file


@attrs.frozen
class TimestampOffset:
    """A timestamp in milliseconds, and an offset that goes with it."""

    timestamp_ms: int
    offset: int


class TimeIndex(AbstractIndex):
    """The entries of one ``.timeindex`` file."""

    ENTRY = struct.Struct(">qi")

    def __init__(self, disk: Disk, path: PurePath, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path, base_offset, max_bytes)
        self._timestamps, self._offsets = self._columns

    @classmethod
    def load(
        cls, disk: Disk, path: PurePath, base_offset: int, max_bytes: int, *, is_active: bool = False
    ) -> TimeIndex:
        """Read an index file.

        Raises:
            CorruptIndex: torn, or its timestamps or offsets fall.
        """
        index = cls(disk, path, base_offset, max_bytes)
        content = read_index_file(disk, path, cls.ENTRY.size, is_active=is_active)
        for timestamp, relative in cls.ENTRY.iter_unpack(content):
            index._timestamps.append(timestamp)
            index._offsets.append(relative)
        index._entries_on_disk = len(index)
        index.is_from_file = True
        index._check()
        return index

    def _check(self) -> None:
        if not self._timestamps:
            return
        if self._offsets[0] < 0 or not is_sorted(self._timestamps) or not is_sorted(self._offsets):
            raise CorruptIndex(f"{self.path}: its entries fall")

    @property
    def is_full(self) -> bool:
        """Whether only the slot for the last entry of the segment is left."""
        return len(self._offsets) >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The largest timestamp indexed; no timestamp and the base offset when there is no entry."""
        if not self._timestamps:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._timestamps[-1], self.base_offset + self._offsets[-1])

    @property
    def entries(self) -> list[TimestampOffset]:
        """All entries with absolute offsets, for the dump and for tests."""
        return [
            TimestampOffset(timestamp, self.base_offset + relative)
            for timestamp, relative in zip(self._timestamps, self._offsets, strict=True)
        ]

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if ``timestamp_ms`` is larger than the last one. In memory only."""
        if self._timestamps:
            if timestamp_ms <= self._timestamps[-1]:
                return
        elif timestamp_ms <= NO_TIMESTAMP:
            return
        relative = offset - self.base_offset
        assert not self._offsets or relative >= self._offsets[-1], f"{relative} after {self._offsets[-1]}"
        # Offset first: a reader in another thread bisects the timestamps and then looks up the offset.
        self._offsets.append(relative)
        self._timestamps.append(timestamp_ms)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the last entry whose timestamp is at most ``timestamp_ms``: earlier batches are all older."""
        index = bisect_right(self._timestamps, timestamp_ms)
        if index == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._timestamps[index - 1], self.base_offset + self._offsets[index - 1])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches whose last offset is ``offset`` or more."""
        self._keep(bisect_left(self._offsets, offset - self.base_offset))
