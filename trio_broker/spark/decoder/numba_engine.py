"""The fast engine: allocates Arrow's buffers, has ``jit_decoder.fill`` write them, and makes columns of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from trio_broker.spark.batch_table import ByteArray, Int64Array
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder import checksums, jit_crc
from trio_broker.spark.decoder import jit_decoder as jit
from trio_broker.spark.decoder.blocks import MAX_BYTES, RecordBlocks
from trio_broker.spark.decoder.columns import Flags, Rows, binary, header_lists, numbers
from trio_broker.spark.decoder.corruption import CorruptBlock
from trio_broker.spark.ranges import OffsetRange

FIRST_BYTES: Final = 4 * 1024 * 1024
MIN_BYTES: Final = 64 * 1024
MIN_HEADERS: Final = 4096
"""The room for the bytes of each column, at first and at least. Each Arrow batch gets twice the room that the one
before it used; where that is too little it has fewer rows, and the next one gets more."""

PACKED_BYTES: Final = 256 * 1024
INFLATED_BYTES: Final = 1024 * 1024
"""A group of compressed batches has so many compressed bytes, or inflates to so many: little enough to stay in the
processor's cache until its records are decoded, and enough that the cost of a group does not show."""


class Outputs:
    """The buffers of one Arrow batch while they are filled; ``addresses`` and ``room`` are arguments of ``fill``."""

    def __init__(self, columns: tuple[str, ...], room: Int64Array) -> None:
        self.room = room
        self.used = np.zeros(jit.ROOM_ITEMS, np.int64)
        self.addresses = np.zeros(jit.OUTPUT_ITEMS, np.int64)
        self._buffers: dict[int, pa.Buffer] = {}
        rows, headers = int(room[jit.ROWS]), int(room[jit.HEADERS])
        if "offset" in columns:
            self._allocate(jit.OFFSETS, 8 * rows)
        if "timestamp" in columns:
            self._allocate(jit.TIMESTAMPS, 8 * rows)
        if "timestampType" in columns:
            self._allocate(jit.TIMESTAMP_TYPES, 4 * rows)
        if "key" in columns:
            self._allocate_values(rows, jit.KEY_ENDS, jit.KEY_VALID, jit.KEYS, room[jit.KEY_BYTES])
        if "value" in columns:
            self._allocate_values(rows, jit.VALUE_ENDS, jit.VALUE_VALID, jit.VALUES, room[jit.VALUE_BYTES])
        if "headers" in columns:
            self._allocate_ends(jit.HEADER_LIST_ENDS, rows)
            self._allocate(jit.HEADER_LIST_VALID, rows)
            self._allocate_ends(jit.HEADER_KEY_ENDS, headers)
            self._allocate(jit.HEADER_KEYS, int(room[jit.HEADER_KEY_BYTES]))
            self._allocate_values(
                headers, jit.HEADER_VALUE_ENDS, jit.HEADER_VALUE_VALID, jit.HEADER_VALUES, room[jit.HEADER_VALUE_BYTES]
            )

    def rows(self) -> Rows:
        """Return the filled part."""
        count, headers = int(self.used[jit.ROWS]), int(self.used[jit.HEADERS])
        offsets, timestamps = self._buffers.get(jit.OFFSETS), self._buffers.get(jit.TIMESTAMPS)
        types = self._buffers.get(jit.TIMESTAMP_TYPES)
        return Rows(
            count,
            offsets=offsets and numbers(pa.int64(), offsets, count),
            timestamps=timestamps and numbers(pa.timestamp("us", tz="UTC"), timestamps, count),
            timestamp_types=types and numbers(pa.int32(), types, count),
            keys=self._values(count, jit.KEY_ENDS, jit.KEY_VALID, jit.KEYS),
            values=self._values(count, jit.VALUE_ENDS, jit.VALUE_VALID, jit.VALUES),
            headers=self._headers(count, headers) if jit.HEADER_LIST_ENDS in self._buffers else None,
        )

    def _headers(self, rows: int, headers: int) -> pa.Array:
        return header_lists(
            self._buffers[jit.HEADER_LIST_ENDS],
            self._flags(jit.HEADER_LIST_VALID, rows),
            binary(
                headers, self._buffers[jit.HEADER_KEY_ENDS], self._buffers[jit.HEADER_KEYS], np.ones(headers, np.uint8)
            ),
            self._values(headers, jit.HEADER_VALUE_ENDS, jit.HEADER_VALUE_VALID, jit.HEADER_VALUES),
        )

    def _values(self, count: int, ends: int, valid: int, data: int) -> pa.Array | None:
        if ends not in self._buffers:
            return None
        return binary(count, self._buffers[ends], self._buffers[data], self._flags(valid, count))

    def _flags(self, output: int, count: int) -> Flags:
        return np.frombuffer(self._buffers[output], np.uint8, count)

    def _allocate_values(self, count: int, ends: int, valid: int, data: int, data_bytes: np.int64) -> None:
        self._allocate_ends(ends, count)
        self._allocate(valid, count)
        self._allocate(data, int(data_bytes))

    def _allocate_ends(self, output: int, count: int) -> None:
        self._allocate(output, 4 * (count + 1))
        np.frombuffer(self._buffers[output], np.int32, 1)[0] = 0

    def _allocate(self, output: int, size: int) -> None:
        # Arrow's allocator reuses its pages. Fresh ones from the system would cost as much as decoding.
        self._buffers[output] = pa.allocate_buffer(max(size, 1))
        self.addresses[output] = self._buffers[output].address


class NumbaDecoder:
    """Collects records in one Arrow batch until it is full, over any number of groups of blocks."""

    compares_crcs = jit_crc.IS_FAST
    packed_bytes = PACKED_BYTES
    inflated_bytes = INFLATED_BYTES

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self._max_bytes = min(decoding.batch_bytes, MAX_BYTES)
        self._needed = np.zeros(jit.ROOM_ITEMS, np.int64)
        self._room = np.full(jit.ROOM_ITEMS, min(FIRST_BYTES, self._max_bytes), np.int64)
        self._room[jit.HEADERS] = MIN_HEADERS
        self._outputs: Outputs | None = None

    @property
    def group_rows(self) -> int:
        """No limit."""
        return 2**62

    def rows(self, blocks: RecordBlocks, offsets: OffsetRange) -> Iterator[Rows]:
        """Decode the records of ``blocks`` that lie in ``offsets``, and yield full Arrow batches.

        Raises:
            CorruptBlock: one of them breaks the format.
        """
        cursor = np.array([0, 0, -1, -1], np.int64)
        while True:
            outputs = self._outputs = self._outputs or self._new_outputs(offsets)
            status = jit.fill(
                *(blocks.data.ctypes.data, blocks.table, cursor, outputs.addresses, outputs.used, outputs.room),
                *(self._needed, offsets.start_offset, offsets.end_offset, self._max_bytes),
            )
            if status == jit.BAD:
                raise CorruptBlock(int(cursor[jit.BLOCK]))
            if status == jit.DONE:
                return
            self._outputs = None
            # After NO_ROOM there are no rows yet: the loop allocates what the first record needs.
            if status == jit.FULL:
                self._learn(outputs.used)
                yield outputs.rows()

    def flush(self) -> Iterator[Rows]:
        """Yield the last Arrow batch, which is not full."""
        if self._outputs is not None and self._outputs.used[jit.ROWS]:
            yield self._outputs.rows()
        self._outputs = None

    def first_bad_crc(self, data: ByteArray, starts: Int64Array, ends: Int64Array, expected: Int64Array) -> int | None:
        """Return the index of the first piece of ``data`` whose CRC-32C is not the expected one; None if all are."""
        if not self.compares_crcs:
            return checksums.first_bad_crc(data, starts, ends, expected)
        bad: int = jit_crc.find_bad_crc(data.ctypes.data, starts, ends, expected)
        return None if bad < 0 else bad

    def _new_outputs(self, offsets: OffsetRange) -> Outputs:
        self._room[jit.ROWS] = min(self._decoding.batch_rows, offsets.offset_count)
        return Outputs(self._decoding.columns, np.maximum(self._room, self._needed))

    def _learn(self, used: Int64Array) -> None:
        """Set the room of the next Arrow batch by what this one used."""
        least = np.full(jit.ROOM_ITEMS, min(MIN_BYTES, self._max_bytes), np.int64)
        least[jit.HEADERS] = MIN_HEADERS
        self._room = np.clip(2 * used, least, max(self._max_bytes, MIN_HEADERS))
        self._needed[:] = 0
