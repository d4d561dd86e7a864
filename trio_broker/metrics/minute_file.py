"""``history.dat`` in the first data directory: a ring with a slot for each minute of a week.

A header of 4 KiB names the columns; each slot has the time of its minute, a 32-bit float per column, and a checksum. A
minute's slot is its number modulo the slots, so a write overwrites what was a week before, and the file never grows. A
slot that a crash tore, or that is of another week, does not count.

A file with other columns, of another version of the broker, is read by their names and written anew.

Everything here blocks. Source: docs/formats/history.md.
"""

from __future__ import annotations

import json
import logging
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from math import nan
from pathlib import PurePath
from typing import Final, TypeAlias
from zlib import crc32

from trio_broker.runtime.disk import Disk, OpenMode, write_all, write_atomically

log = logging.getLogger(__name__)

FILE_NAME: Final = "history.dat"

HEADER_BYTES: Final = 4096
"""Room for a hundred columns with long names."""

MINUTE_MS: Final = 60_000

SLOTS: Final = 7 * 24 * 60
"""A week of minutes; 1.3 MB with thirty columns."""

MAX_COLUMNS: Final = 200
"""A header that names more is no header; a week of so many takes 8 MB."""

FORMAT_VERSION: Final = 1

END_OF_TIME_MS: Final = 2**63 - 1

MinuteRow: TypeAlias = "tuple[int, array[float]]"
"""When the minute began, in milliseconds since 1970, and a value per column."""


class MinuteFile:
    """The file at ``path`` with ``columns``, of which nothing need exist yet."""

    def __init__(self, disk: Disk, path: PurePath, columns: Sequence[str]) -> None:
        self.disk = disk
        self.path = path
        self.columns = tuple(columns)
        self._slot = slot_format(len(self.columns))
        self._is_ready = False

    def write(self, rows: Iterable[MinuteRow]) -> None:
        """Write the rows into their slots. Not synced: a power cut may take the last minutes.

        Raises:
            OSError: the disk is full or failed.
        """
        self._make_ready()
        file = self.disk.open(self.path, OpenMode.UPDATE)
        for at_ms, values in rows:
            write_all(file, encoded_slot(self._slot, at_ms, values), self._position(at_ms))

    def read(self, from_ms: int, to_ms: int, columns: Sequence[str] | None = None) -> list[MinuteRow]:
        """The minutes that began from ``from_ms`` up to ``to_ms``, exclusive, in their order; the values are those of
        ``columns``, or of all.

        Raises:
            OSError: the file cannot be read.
        """
        return rows_of(self._content(), self.columns if columns is None else columns, from_ms, to_ms)

    def _position(self, at_ms: int) -> int:
        return HEADER_BYTES + at_ms // MINUTE_MS % SLOTS * self._slot.size

    def _make_ready(self) -> None:
        """Make the file, or make it one with our columns."""
        if self._is_ready and self.disk.exists(self.path):
            return
        content = self._content()
        columns = None if content is None else columns_of(content)
        if columns != self.columns:
            if content is not None and columns is None:
                log.warning("%s is no history of readings; a new one is begun", self.path)
            write_atomically(self.disk, self.path, self._whole_file(rows_of(content, self.columns)))
        self._is_ready = True

    def _content(self) -> bytes | None:
        """What the file holds; None if there is none."""
        try:
            return self.disk.read_file(self.path)
        except FileNotFoundError:
            return None

    def _whole_file(self, rows: Iterable[MinuteRow]) -> bytes:
        header = json.dumps({"version": FORMAT_VERSION, "columns": self.columns}, separators=(",", ":")).encode()
        assert len(header) <= HEADER_BYTES, "the names of the columns fit into the header"
        content = bytearray(HEADER_BYTES + SLOTS * self._slot.size)
        content[: len(header)] = header
        for at_ms, values in rows:
            position = self._position(at_ms)
            content[position : position + self._slot.size] = encoded_slot(self._slot, at_ms, values)
        return bytes(content)


def slot_format(columns: int) -> struct.Struct:
    """A slot: the time, the values, and the CRC-32 of both; big-endian."""
    return struct.Struct(f">q{columns}fI")


def encoded_slot(slot: struct.Struct, at_ms: int, values: Iterable[float]) -> bytes:
    packed = slot.pack(at_ms, *values, 0)
    return packed[:-4] + crc32(packed[:-4]).to_bytes(4, "big")


def rows_of(
    content: bytes | None, wanted: Sequence[str], from_ms: int = 1, to_ms: int = END_OF_TIME_MS
) -> list[MinuteRow]:
    """The rows of a file within those times, in their order, with the columns ``wanted``; none of what is no history.

    What was not measured then is not a number, which readers leave out.
    """
    columns = None if content is None else columns_of(content)
    if content is None or columns is None:
        return []
    size = slot_format(len(columns)).size
    slots = memoryview(content)[HEADER_BYTES : HEADER_BYTES + SLOTS * size]
    slots = slots[: len(slots) // size * size]
    times_and_checksums = struct.Struct(f">q{size - 12}xI").iter_unpack(slots)
    whole = sorted(
        (at_ms, number)
        for number, (at_ms, checksum) in enumerate(times_and_checksums)
        if at_ms and from_ms <= at_ms < to_ms and crc32(slots[number * size : (number + 1) * size - 4]) == checksum
    )
    # A column at once: to unpack thirty numbers of each minute of a week takes a tenth of a second.
    numbers = array("f", slots.tobytes())
    if sys.byteorder == "little":
        numbers.byteswap()
    place_of = {name: place for place, name in enumerate(columns)}
    found = [
        numbers[2 + place_of[name] :: size // 4] if name in place_of else array("f", [nan]) * (len(slots) // size)
        for name in wanted
    ]
    return [(at_ms, array("f", [column[number] for column in found])) for at_ms, number in whole]


def columns_of(content: bytes) -> tuple[str, ...] | None:
    """The columns that a header names; None if it is no header."""
    try:
        header = json.loads(content[:HEADER_BYTES].rstrip(b"\0"))
        columns = tuple(header["columns"])
        is_ours = header["version"] == FORMAT_VERSION and len(columns) <= MAX_COLUMNS
        return columns if is_ours and all(isinstance(name, str) for name in columns) else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
