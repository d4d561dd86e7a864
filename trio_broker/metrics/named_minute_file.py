"""A ring with a slot for each minute of a week, with a few numbers for each of 200 names: ``history-topics.dat`` and
``history-groups.dat`` in the first data directory.

A header of 4 KiB says what the numbers are; behind it stands a table of the names, each with the column that it holds
and since when; then the slots. A name without a column takes a free one, or that of the name which has been without
numbers for longest; what was before is not the new holder's, and does not count.

A week of 400 names is to fit into 16 MiB, beside the broker's own readings. So a number is a level of 9 bits: one in
508 equal factors between the smallest and the largest of its kind, which is right to within 3 %. A zero stays zero.

Everything here blocks. Source: docs/formats/history.md.
"""

from __future__ import annotations

import json
import logging
import math
import struct
import threading  # noqa: TID251 - for a lock
import zlib
from array import array
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final, TypeAlias

import attrs

from trio_broker.metrics.minute_file import HEADER_BYTES, MINUTE_MS, SLOTS, MinuteRow
from trio_broker.runtime.disk import Disk, OpenMode, write_all, write_atomically

log = logging.getLogger(__name__)

FORMAT_VERSION: Final = 1

COLUMNS: Final = 200
"""Names that the file holds at a time."""

MAX_NAME_BYTES: Final = 255
"""A topic's id has 22, a group's id any number; a group with a longer one has no history of days."""

LEVEL_BITS: Final = 9

UNKNOWN_LEVEL: Final = 0
ZERO_LEVEL: Final = 1
LOWEST_LEVEL: Final = 2
HIGHEST_LEVEL: Final = (1 << LEVEL_BITS) - 1

NAME_ENTRY: Final = struct.Struct(f">qqH{MAX_NAME_BYTES}sI")
"""Since when the name holds its column, its last minute, the length of the name, the name, and the CRC-32 of these."""

NamedValues: TypeAlias = Mapping[str, Sequence[float | None]]
"""The numbers of one minute by name."""


@attrs.frozen
class Scale:
    """How one kind of number is written. What is below half of ``smallest`` is zero."""

    series: str
    smallest: float
    largest: float

    @property
    def factor_log(self) -> float:
        """The logarithm of the factor from one level to the next."""
        return math.log(self.largest / self.smallest) / (HIGHEST_LEVEL - LOWEST_LEVEL)

    def level_of(self, value: float | None) -> int:
        if value is None or math.isnan(value):
            return UNKNOWN_LEVEL
        if value < self.smallest / 2:
            return ZERO_LEVEL
        steps = round(math.log(value / self.smallest) / self.factor_log) if value < self.largest else HIGHEST_LEVEL
        return min(max(LOWEST_LEVEL + steps, LOWEST_LEVEL), HIGHEST_LEVEL)

    def value_of(self, level: int) -> float:
        """The number of a level; not a number where none was measured."""
        if level <= ZERO_LEVEL:
            return 0.0 if level == ZERO_LEVEL else math.nan
        return self.smallest * math.exp(self.factor_log * (level - LOWEST_LEVEL))


@attrs.frozen
class HeldColumn:
    """A column and the name that holds it from the minute ``since_ms`` on; ``seen_ms`` is its last minute."""

    name: str
    since_ms: int
    seen_ms: int


class NamedMinuteFile:
    """The file at ``path`` with the numbers of ``scales`` per name; it need not exist yet. Any thread may call it."""

    def __init__(self, disk: Disk, path: PurePath, scales: Sequence[Scale]) -> None:
        self.disk = disk
        self.path = path
        self.scales = tuple(scales)
        self._bits = LEVEL_BITS * len(self.scales)
        self._slot = struct.Struct(f">q{-(-COLUMNS * self._bits // 8)}sI")
        self._slots_from = HEADER_BYTES + COLUMNS * NAME_ENTRY.size
        self._lock = threading.Lock()
        self._held: list[HeldColumn | None] | None = None
        self._is_ours = False

    @property
    def size_bytes(self) -> int:
        """The size of the whole file, which never changes."""
        return self._slots_from + SLOTS * self._slot.size

    def write(self, at_ms: int, values: NamedValues) -> None:
        """Write the minute that began at ``at_ms`` into its slot. Not synced: a power cut may take the last minutes.

        Raises:
            OSError: the disk is full or failed.
        """
        with self._lock:
            held = self._columns()
            if not self._is_ours:
                write_atomically(self.disk, self.path, self._header())
                self.disk.open(self.path, OpenMode.UPDATE).truncate(self.size_bytes)
                self._is_ours = True
            places = assign(held, [name for name in values if len(encoded(name)) <= MAX_NAME_BYTES], at_ms)
            levels = 0
            for name, place in places.items():
                levels |= self._levels(values[name]) << place * self._bits
            file = self.disk.open(self.path, OpenMode.UPDATE)
            write_all(file, b"".join(map(encoded_entry, held)), HEADER_BYTES)
            write_all(file, self._encoded_slot(at_ms, levels), self._position(at_ms))

    def read(self, name: str, from_ms: int, to_ms: int) -> list[MinuteRow]:
        """The minutes of ``name`` that began from ``from_ms`` up to ``to_ms``, exclusive, in their order.

        Raises:
            OSError: the file cannot be read.
        """
        with self._lock:
            place, column = next(
                ((place, each) for place, each in enumerate(self._columns()) if each and each.name == name), (0, None)
            )
            if column is None:
                return []
            try:
                content = self.disk.read_file(self.path)
            except FileNotFoundError:
                return []
        from_ms = max(from_ms, column.since_ms)
        rows = []
        for position in range(self._slots_from, len(content) - self._slot.size + 1, self._slot.size):
            at_ms, packed, checksum = self._slot.unpack_from(content, position)
            if from_ms <= at_ms < to_ms and zlib.crc32(content[position : position + self._slot.size - 4]) == checksum:
                values = self._values(packed, place)
                if not all(map(math.isnan, values)):
                    rows.append((at_ms, values))
        return sorted(rows, key=lambda row: row[0])

    # ---- columns ----

    def _columns(self) -> list[HeldColumn | None]:
        """Which name holds which column; read from the file at first, and again when somebody deleted it."""
        if self._held is None or not self.disk.exists(self.path):
            self._held = self._read_columns()
        return self._held

    def _read_columns(self) -> list[HeldColumn | None]:
        self._is_ours = False
        try:
            file = self.disk.open(self.path, OpenMode.READ)
            content, size_bytes = file.read(self._slots_from, 0), file.size()
        except FileNotFoundError:
            return [None] * COLUMNS
        if size_bytes != self.size_bytes or content[:HEADER_BYTES] != self._header():
            log.warning("%s is no history of these numbers; a new one is begun", self.path)
            return [None] * COLUMNS
        self._is_ours = True
        table = range(HEADER_BYTES, self._slots_from, NAME_ENTRY.size)
        return [decoded_entry(content[at : at + NAME_ENTRY.size]) for at in table]

    def _header(self) -> bytes:
        scales = [attrs.astuple(scale) for scale in self.scales]
        header = json.dumps({"version": FORMAT_VERSION, "names": COLUMNS, "scales": scales}, separators=(",", ":"))
        return header.encode().ljust(HEADER_BYTES, b"\0")

    # ---- slots ----

    def _position(self, at_ms: int) -> int:
        return self._slots_from + at_ms // MINUTE_MS % SLOTS * self._slot.size

    def _levels(self, values: Sequence[float | None]) -> int:
        levels = 0
        for index, (scale, value) in enumerate(zip(self.scales, values, strict=True)):
            levels |= scale.level_of(value) << index * LEVEL_BITS
        return levels

    def _encoded_slot(self, at_ms: int, levels: int) -> bytes:
        packed = self._slot.pack(at_ms, levels.to_bytes(self._slot.size - 12, "little"), 0)
        return packed[:-4] + zlib.crc32(packed[:-4]).to_bytes(4, "big")

    def _values(self, packed: bytes, place: int) -> array[float]:
        """The numbers of the column ``place``."""
        first, last = place * self._bits // 8, (place + 1) * self._bits // 8
        levels = int.from_bytes(packed[first : last + 1], "little") >> place * self._bits % 8
        mask = (1 << LEVEL_BITS) - 1
        return array(
            "f", [scale.value_of(levels >> index * LEVEL_BITS & mask) for index, scale in enumerate(self.scales)]
        )


def assign(held: list[HeldColumn | None], names: Sequence[str], at_ms: int) -> dict[str, int]:
    """The columns of ``names``, of which as many are taken as there are; ``held`` is changed where a name takes one.

    One that is new takes a free column, or that of the name whose last minute was longest ago.
    """
    wanted = dict.fromkeys(names)
    places = {column.name: place for place, column in enumerate(held) if column is not None and column.name in wanted}
    taken = set(places.values())
    free = sorted(
        (place for place in range(len(held)) if place not in taken),
        key=lambda place: -1 if (column := held[place]) is None else column.seen_ms,
    )
    new = (name for name in wanted if name not in places)
    places |= dict(zip(new, free, strict=False))
    for name, place in places.items():
        column = held[place]
        since_ms = column.since_ms if column is not None and column.name == name else at_ms
        held[place] = HeldColumn(name, since_ms, at_ms)
    return places


def encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def encoded_entry(column: HeldColumn | None) -> bytes:
    if column is None:
        return bytes(NAME_ENTRY.size)
    name = encoded(column.name)
    packed = NAME_ENTRY.pack(column.since_ms, column.seen_ms, len(name), name, 0)
    return packed[:-4] + zlib.crc32(packed[:-4]).to_bytes(4, "big")


def decoded_entry(entry: bytes) -> HeldColumn | None:
    """The column of an entry; None if it is free, or a crash tore it."""
    since_ms, seen_ms, length, name, checksum = NAME_ENTRY.unpack(entry)
    if not since_ms or zlib.crc32(entry[:-4]) != checksum:
        return None
    return HeldColumn(name[:length].decode("utf-8", "surrogatepass"), since_ms, seen_ms)
