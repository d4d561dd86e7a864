"""The engine that needs nothing but numpy: a short walk in Python for each record, everything else by columns.

Records begin one behind the other, so only their beginnings are found one by one; that walk reads the length of each
record and no more. Then each field is read in all records of all blocks at once: the field before it says where it
begins. Arrow copies keys and values: one binary array cuts the whole memory at every beginning and end, and the right
pieces of it are taken.

It makes the rows and refuses the blocks that ``jit_decoder`` does. Records come six times faster out of it than out of
a loop over ``kafka_wire.records``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_wire.limits import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import MIN_HEADER_BYTES, MIN_RECORD_BYTES
from kafka_wire.records.varint import read_varint
from trio_broker.spark.batch_table import ByteArray, Int64Array
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder import checksums
from trio_broker.spark.decoder.blocks import (
    APPEND_TIMESTAMP,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    END,
    IS_APPEND_TIME,
    LAST_OFFSET_DELTA,
    MAX_BYTES,
    MAX_MILLISECONDS,
    NULL,
    RECORD_COUNT,
    START,
    RecordBlocks,
)
from trio_broker.spark.decoder.columns import Rows, binary, header_lists, numbers
from trio_broker.spark.decoder.corruption import CorruptBlock
from trio_broker.spark.ranges import OffsetRange

Mask = npt.NDArray[np.bool_]


@attrs.frozen(eq=False)
class ByteSlices:
    """A byte string for each row, or header: its position and length; null where the length is -1."""

    at: Int64Array
    lengths: Int64Array

    def __getitem__(self, rows: slice) -> ByteSlices:
        return ByteSlices(self.at[rows], self.lengths[rows])

    @property
    def sizes(self) -> Int64Array:
        """The length of each in bytes; 0 for null."""
        return np.maximum(self.lengths, 0)

    def column(self, data: pa.Buffer) -> pa.Array:
        """Return these parts of ``data`` as a binary column.

        Arrow does the copying: the whole memory is one column that is cut at each beginning and end, of which every
        other value is taken.
        """
        count = len(self.at)
        if not count:
            return pa.nulls(0, pa.binary())
        cuts = np.empty(2 * count + 1, np.int32)
        cuts[:-1:2] = self.at
        cuts[1::2] = self.at + self.sizes
        cuts[-1] = cuts[-2]
        everything = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(cuts), data], 0)
        # Not pa.array, which imports pandas where there is one: half a second of a worker's first task.
        every_other = np.arange(0, 2 * count, 2, dtype=np.int64)
        taken = everything.take(numbers(pa.int64(), pa.py_buffer(every_other), count))
        _, ends, values = taken.buffers()
        return binary(count, ends, values, (self.lengths >= 0).view(np.uint8))


@attrs.frozen(eq=False)
class Records:
    """The records of some blocks, column by column. ``blocks`` is the index of each record's block."""

    blocks: Int64Array
    offsets: Int64Array
    timestamp_deltas: Int64Array
    keys: ByteSlices
    values: ByteSlices
    headers_at: Int64Array
    header_counts: Int64Array
    ends: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, rows: slice) -> Records:
        return Records(*(getattr(self, field.name)[rows] for field in attrs.fields(Records)))


@attrs.frozen(eq=False)
class RecordHeaders:
    """All headers of some records, back to back; those of record ``i`` begin with number ``firsts[i]``."""

    firsts: Int64Array
    keys: ByteSlices
    values: ByteSlices

    def __getitem__(self, rows: slice) -> RecordHeaders:
        firsts = self.firsts[rows.start : rows.stop + 1]
        some = slice(int(firsts[0]), int(firsts[-1]))
        return RecordHeaders(firsts - firsts[0], self.keys[some], self.values[some])

    @property
    def sizes(self) -> Int64Array:
        """The size of each record's headers in bytes."""
        total = np.concatenate(([0], np.cumsum(self.keys.sizes + self.values.sizes)))
        return np.diff(total[self.firsts])


class PlainDecoder:
    """Decodes the records of a group all at once, and makes Arrow batches of them."""

    compares_crcs = False

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self.group_rows = decoding.batch_rows
        self.packed_bytes = self.inflated_bytes = min(decoding.batch_bytes, MAX_BYTES)

    def rows(self, blocks: RecordBlocks, offsets: OffsetRange) -> Iterator[Rows]:
        """Yield the records of ``blocks`` that lie in ``offsets``.

        Raises:
            CorruptBlock: one of them breaks the format.
        """
        columns = self._decoding.columns
        # Arrow counts bytes with an int32, a chunk may be larger, so positions are relative to the first block.
        low = int(blocks.table[0, START])
        items = blocks.data[low : int(blocks.table[-1, END])]
        data = items.data
        ends, counts, bad_block = walk(data, blocks, low)
        records, bad = read_fields(items, ends, counts, blocks, low)
        headers = read_headers(data, records, bad) if "headers" in columns else None
        start, end = np.searchsorted(records.offsets, (offsets.start_offset, offsets.end_offset))
        timestamps, too_large = milliseconds(records, blocks)
        if "timestamp" in columns:
            bad[start:end] |= too_large[start:end]
        if bad.any():
            raise CorruptBlock(int(records.blocks[bad.argmax()]))
        sizes = row_sizes(records, headers, self._decoding)
        for rows in row_ranges(sizes, int(start), int(end), self._decoding):
            some_headers = None if headers is None else headers[rows]
            yield arrow_rows(pa.py_buffer(data), records[rows], some_headers, timestamps[rows], blocks, columns)
        if bad_block is not None:
            raise CorruptBlock(bad_block)

    def flush(self) -> Iterator[Rows]:
        """Yield nothing: ``rows`` leaves nothing behind."""
        return iter(())

    def first_bad_crc(self, data: ByteArray, starts: Int64Array, ends: Int64Array, expected: Int64Array) -> int | None:
        """Return the index of the first piece of ``data`` whose CRC-32C is not the expected one; None if all are."""
        return checksums.first_bad_crc(data, starts, ends, expected)


def walk(data: memoryview, blocks: RecordBlocks, low: int) -> tuple[Int64Array, Int64Array, int | None]:
    """Return where each record ends, how many there are in each block, and the first block that breaks the format.

    Positions count in ``data``, which begins at ``low`` in the blocks' memory. The walk ends before a bad block.
    """
    ends: list[int] = []
    append = ends.append
    counts = np.zeros(len(blocks), np.int64)
    starts, stops = (blocks.table[:, START] - low).tolist(), (blocks.table[:, END] - low).tolist()
    for block, (at, stop, count) in enumerate(zip(starts, stops, blocks.table[:, RECORD_COUNT].tolist(), strict=True)):
        if count > (stop - at) // MIN_RECORD_BYTES:
            return np.array(ends, np.int64), counts, block
        done = len(ends)
        try:
            # Signs are ignored here: ``read_fields`` finds a negative length, which does not fit the record.
            for _ in range(count):
                byte = data[at]
                if byte < 0x80:
                    at += 1 + (byte >> 1)
                elif (high := data[at + 1]) < 0x80:
                    at += 2 + (high << 6 | (byte & 0x7F) >> 1)
                else:
                    length, at = read_varint(data, at)
                    at += abs(length)
                append(at)
        except (IndexError, InvalidRecord):
            at = -1
        if at != stop:
            return np.array(ends[:done], np.int64), counts, block
        counts[block] = count
    return np.array(ends, np.int64), counts, None


def read_fields(
    data: ByteArray, ends: Int64Array, counts: Int64Array, blocks: RecordBlocks, low: int
) -> tuple[Records, Mask]:
    """Return the records that end at ``ends``, and which of them break the format."""
    firsts = np.cumsum(counts) - counts
    in_block = np.repeat(np.arange(len(counts)), counts)
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[firsts[counts > 0]] = (blocks.table[:, START] - low)[counts > 0]
    reader = FieldReader(data, starts, ends)
    lengths = reader.integers(MAX_VARINT_BYTES)
    reader.bad |= (reader.at + lengths != ends) | (lengths <= 0)
    reader.skip(np.ones_like(ends))  # the attributes, which are unused
    timestamp_deltas = reader.integers(MAX_VARLONG_BYTES)
    offset_deltas = reader.integers(MAX_VARINT_BYTES)
    previous = np.empty_like(offset_deltas)
    previous[1:] = offset_deltas[:-1]
    previous[firsts[counts > 0]] = -1
    reader.bad |= (offset_deltas <= previous) | (offset_deltas > blocks.table[:, LAST_OFFSET_DELTA][in_block])
    keys, values = reader.byte_slices(), reader.byte_slices()
    header_counts = reader.integers(MAX_VARINT_BYTES)
    left = ends - reader.at
    reader.bad |= (header_counts < 0) | (header_counts > left // MIN_HEADER_BYTES) | (header_counts == 0) & (left != 0)
    offsets = blocks.table[:, BASE_OFFSET][in_block] + offset_deltas
    records = Records(in_block, offsets, timestamp_deltas, keys, values, reader.at, header_counts, ends)
    return records, reader.bad


class FieldReader:
    """Reads field after field of many records at once. A record that breaks the format is marked as ``bad``; the others
    go on.

    ``at`` is the position in each record; it never leaves the record, so that even a bad one reads no other memory.
    """

    def __init__(self, data: ByteArray, starts: Int64Array, ends: Int64Array) -> None:
        self._data, self._ends = data, ends
        self.at = starts
        self.bad: Mask = np.zeros(len(ends), np.bool_)

    def skip(self, counts: Int64Array) -> None:
        """Move each position by some bytes."""
        self.at = self.at + counts
        beyond = self.at > self._ends
        if beyond.any():
            self.bad |= beyond
            self.at = np.minimum(self.at, self._ends)

    def integers(self, max_bytes: int) -> Int64Array:
        """Read an integer of up to ``max_bytes`` bytes (5 for 32 bits, 10 for 64) in each record."""
        # A read behind the end of the memory gets its last byte instead. That cannot matter: an integer that does not
        # end within its record makes it bad.
        first = self._data.take(self.at, mode="clip")
        values = (first & 0x7F).astype(np.uint64)
        widths = np.ones(len(first), np.int64)
        more = np.flatnonzero(first >= 0x80)
        for index in range(1, max_bytes):
            if not len(more):
                break
            bytes_ = self._data.take(self.at[more] + index, mode="clip")
            values[more] |= (bytes_ & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            widths[more] += 1
            if index == max_bytes - 1:
                # The bits above 32, or 64, must be zero, and no further group may follow.
                self.bad[more[bytes_ >> (32 - 28 if max_bytes == MAX_VARINT_BYTES else 64 - 63) != 0]] = True
            more = more[bytes_ >= 0x80]
        self.skip(widths)
        signs = np.uint64(0) - (values & np.uint64(1))
        return ((values >> np.uint64(1)) ^ signs).view(np.int64)

    def byte_slices(self) -> ByteSlices:
        """Read a key, or a value, in each record."""
        lengths = self.integers(MAX_VARINT_BYTES)
        self.bad |= (lengths < NULL) | (lengths > self._ends - self.at)
        byte_slices = ByteSlices(self.at, lengths)
        self.skip(byte_slices.sizes)
        return byte_slices


def read_headers(data: memoryview, records: Records, bad: Mask) -> RecordHeaders:
    """Return the headers of all records up to the first bad one; a record with bad headers is marked as ``bad``."""
    first_bad = int(bad.argmax()) if bad.any() else len(records)
    counts = records.header_counts.copy()
    counts[first_bad:] = 0
    found: list[int] = []
    rows = np.flatnonzero(counts)
    columns = (records.headers_at[rows], counts[rows], records.ends[rows])
    for row, at, count, end in zip(rows.tolist(), *(column.tolist() for column in columns), strict=True):
        try:
            for _ in range(count):
                key_length, key_at = read_varint(data, at)
                value_length, value_at = read_varint(data, key_at + key_length)
                at = value_at + max(value_length, 0)
                if key_length < 0 or value_length < NULL or at > end:
                    raise InvalidRecord
                found += (key_at, key_length, value_at, value_length)
        except (IndexError, InvalidRecord):
            at = -1
        if at != end:
            bad[row] = True
            counts[row:] = 0
            break
    items = np.array(found, np.int64).reshape(-1, 4)
    firsts = np.concatenate(([0], np.cumsum(counts)))
    return RecordHeaders(firsts, ByteSlices(items[:, 0], items[:, 1]), ByteSlices(items[:, 2], items[:, 3]))


def milliseconds(records: Records, blocks: RecordBlocks) -> tuple[Int64Array, Mask]:
    """Return the timestamps of ``records``, and which of them do not fit into 64 bits as microseconds."""
    base, deltas = blocks.table[:, BASE_TIMESTAMP][records.blocks], records.timestamp_deltas
    created = base + deltas
    overflows = (created < base) != (deltas < 0)
    if blocks.table[:, IS_APPEND_TIME].any():
        is_append_time = blocks.table[:, IS_APPEND_TIME][records.blocks] != 0
        created = np.where(is_append_time, blocks.table[:, APPEND_TIMESTAMP][records.blocks], created)
        overflows &= ~is_append_time
    return created, overflows | (created > MAX_MILLISECONDS) | (created < -MAX_MILLISECONDS)


def row_sizes(records: Records, headers: RecordHeaders | None, decoding: Decoding) -> Int64Array:
    """Return the size of each record in an Arrow batch with the wanted columns, in bytes."""
    sizes = np.zeros(len(records), np.int64)
    if "key" in decoding.columns:
        sizes += records.keys.sizes
    if "value" in decoding.columns:
        sizes += records.values.sizes
    if headers is not None:
        sizes += headers.sizes
    return sizes


def row_ranges(sizes: Int64Array, start: int, end: int, decoding: Decoding) -> Iterator[slice]:
    """Cut the rows from ``start`` to ``end`` into Arrow batches of at least one row."""
    max_bytes = min(decoding.batch_bytes, MAX_BYTES)
    totals = np.cumsum(sizes)
    while start < end:
        before = int(totals[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(totals, before + max_bytes, "right")))
        stop = min(stop, start + decoding.batch_rows, end)
        yield slice(start, stop)
        start = stop


def arrow_rows(
    data: pa.Buffer,
    records: Records,
    headers: RecordHeaders | None,
    timestamps: Int64Array,
    blocks: RecordBlocks,
    columns: Sequence[str],
) -> Rows:
    """Return ``records`` as Arrow columns."""
    count = len(records)

    def numbers_of(column: str, kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array | None:
        return numbers(kind, pa.py_buffer(np.ascontiguousarray(values)), count) if column in columns else None

    types = blocks.table[:, IS_APPEND_TIME][records.blocks].astype(np.int32)
    return Rows(
        count,
        offsets=numbers_of("offset", pa.int64(), records.offsets),
        timestamps=numbers_of("timestamp", pa.timestamp("us", tz="UTC"), timestamps * 1000),
        timestamp_types=numbers_of("timestampType", pa.int32(), types),
        keys=records.keys.column(data) if "key" in columns else None,
        values=records.values.column(data) if "value" in columns else None,
        headers=headers and _header_column(data, headers, records.header_counts),
    )


def _header_column(data: pa.Buffer, headers: RecordHeaders, counts: Int64Array) -> pa.Array:
    return header_lists(
        pa.py_buffer(headers.firsts.astype(np.int32)),
        (counts > 0).view(np.uint8),
        headers.keys.column(data),
        headers.values.column(data),
    )
