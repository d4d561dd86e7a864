"""The batches of one log file without a broker, some megabytes at a time, and how to find them again behind damage.

Source: docs/formats/segment.md, docs/formats/record-batch.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kafka_wire.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_BYTES
from kafka_wire.records.crc import crc32c
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.files.manifest import IndexEntry, LogSegment
from trio_broker.spark.files.segment_files import OpenSegment
from trio_broker.spark.files.transport import READ_BYTES
from trio_broker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from trio_broker.spark.batch_table import BatchTable

_LENGTH_POSITION: Final = 8
_LENGTH_FOLLOWED_FROM: Final = 12
_MAGIC_POSITION: Final = 16
_MAGIC: Final = 2


@attrs.frozen
class ReadBatches:
    """Some batches of a segment: their bytes, which begin at ``position`` of the file, and their headers."""

    position: int
    view: memoryview
    table: BatchTable

    def has_right_checksum(self, row: int) -> bool:
        """Whether the bytes of the batch in this row of the table are those that were written."""
        start, size = int(self.table.positions[row]), int(self.table.sizes[row])
        return crc32c(self.view[start + ATTRIBUTES_POSITION : start + size]) == int(self.table.crcs[row])


def open_whole(base_offset: int, path: Path) -> OpenSegment:
    """Open a log file to all of its bytes; the offset behind it is not known."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    size = os.fstat(descriptor).st_size
    return OpenSegment(LogSegment(base_offset, base_offset, size, is_active=True), path, descriptor)


def read_batches(file: OpenSegment, position: int) -> Iterator[ReadBatches]:
    """Yield the batches from ``position`` on, some megabytes at a time, up to the planned end or to damage.

    The bytes are good until the next ones are asked for. Damage is told by the last table, if it can be seen in the
    header; where nothing more comes before the end, the rest is no whole batch.
    """
    from trio_broker.spark.batch_table import scan_batches

    size = file.segment.size_bytes
    buffer = bytearray(min(READ_BYTES, size))
    while position < size:
        view = memoryview(buffer)[: min(len(buffer), size - position)]
        view = view[: file.read_into(view, position)]
        table = scan_batches(view)
        if len(table) or table.damage is not None:
            yield ReadBatches(position, view, table)
            position += table.consumed_bytes
            if table.damage is not None and not len(table):
                return
        elif table.needed_bytes and table.needed_bytes <= size - position and len(view) == len(buffer):
            buffer = bytearray(table.needed_bytes)
        else:
            return


def read_all_batches(file: OpenSegment, position: int, partition: TopicPartition) -> Iterator[ReadBatches]:
    """As ``read_batches``, where everything up to the planned end must be batches.

    Raises:
        CorruptData: it is not.
    """
    next_offset = file.segment.base_offset
    damage = None
    for read in read_batches(file, position):
        if len(read.table):
            yield read
            next_offset = int(read.table.last_offsets[-1]) + 1
        position = read.position + read.table.consumed_bytes
        damage = read.table.damage
    left = file.segment.size_bytes - position
    if left > 0:
        reason = damage or f"the segment ends with {left} bytes that are no whole batch"
        raise CorruptData(partition, next_offset, f"{reason} ({file.path}@{position})")


def find_batch(file: OpenSegment, position: int, least_offset: int) -> IndexEntry | None:
    """Return the first whole batch at ``position`` or behind it that no earlier one can be mistaken for.

    Its checksum is right, its offsets are ``least_offset`` or more, and another batch or the end of the file follows.
    So what a record holds is not taken for a batch of this log.
    """
    size = file.segment.size_bytes
    buffer = bytearray(min(READ_BYTES, size))
    while position + BATCH_HEADER_BYTES <= size:
        view = memoryview(buffer)[: min(len(buffer), size - position)]
        view = view[: file.read_into(view, position)]
        if len(view) < BATCH_HEADER_BYTES:
            return None
        for at in _candidates(view, size - position):
            found = _batch_at(file, position + at, least_offset)
            if found is not None:
                return found
        position += len(view) - BATCH_HEADER_BYTES + 1
    return None


def _candidates(view: memoryview, left: int) -> list[int]:
    """Return where in ``view`` a header may begin, by its magic and by a length that fits into what is ``left``."""
    import numpy as np

    data = np.frombuffer(view, np.uint8)
    starts = np.flatnonzero(data[_MAGIC_POSITION : len(data) - BATCH_HEADER_BYTES + 1 + _MAGIC_POSITION] == _MAGIC)
    lengths = np.zeros(len(starts), np.int64)
    for index in range(_LENGTH_POSITION, _LENGTH_FOLLOWED_FROM):
        lengths = lengths << 8 | data[starts + index]
    ends = starts + _LENGTH_FOLLOWED_FROM + lengths
    found: list[int] = starts[(lengths >= BATCH_HEADER_BYTES - _LENGTH_FOLLOWED_FROM) & (ends <= left)].tolist()
    return found


def _batch_at(file: OpenSegment, position: int, least_offset: int) -> IndexEntry | None:
    """Return the batch that begins at ``position`` if there is a good one."""
    from trio_broker.spark.batch_table import scan_batches

    head = bytearray(_LENGTH_FOLLOWED_FROM)
    file.read_into(memoryview(head), position)
    base_offset = int.from_bytes(head[:_LENGTH_POSITION], "big", signed=True)
    relative = base_offset - file.segment.base_offset
    if base_offset < least_offset or not 0 <= relative < 2**31:
        return None
    size = _LENGTH_FOLLOWED_FROM + int.from_bytes(head[_LENGTH_POSITION:], "big")
    buffer = bytearray(min(size + BATCH_HEADER_BYTES, file.segment.size_bytes - position))
    view = memoryview(buffer)
    file.read_into(view, position)
    table = scan_batches(view)
    if not len(table) or int(table.sizes[0]) != size or not ReadBatches(position, view, table).has_right_checksum(0):
        return None
    is_followed = len(buffer) == size or (table.damage is None and len(buffer) == size + BATCH_HEADER_BYTES)
    return IndexEntry(int(table.last_offsets[0]), position) if is_followed else None
