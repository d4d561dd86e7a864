"""The headers of all the batches in a buffer, column by column.

Transports need to know where batches begin, which offsets they hold, and where the last whole one ends; the decoder
needs a few fields more, for thousands of batches at once. Both want arrays, not an object for each batch. The walk from
batch to batch reads the length fields alone, since each says where the next batch begins; all other fields are then
extracted from all headers at once.

Bytes that can be no batch do not raise here: the table ends before them and says why in ``damage``. Only the caller
knows which partition this is, and whether those bytes matter: behind the end of the requested range, or at the torn end
of a segment that is being written, they do not.

Source: kafka_wire.records.batch for the header's layout; docs/formats/record-batch.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from kafka_wire.limits import MAX_OFFSET
from kafka_wire.primitives import ReadableBuffer
from kafka_wire.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    MIN_BATCH_LENGTH,
)
from kafka_wire.records.compression import Codec
from kafka_wire.records.crc import crc32c

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

CODECS: Final = CODEC_MASK + 1
"""How many codecs three bits can name; five of them exist."""

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == BATCH_HEADER_BYTES, f"{_HEADER.itemsize} bytes"

_BASE_OFFSET: Final = struct.Struct(">q")
_BATCH_LENGTH: Final = struct.Struct(">i")
_BATCH_LENGTH_POSITION: Final = 8

_MIN_MESSAGE_LENGTH: Final = 14
"""The same for messages of magic 0, which have a CRC, magic, attributes and two lengths."""


@attrs.frozen(eq=False, repr=False)
class BatchTable:
    """Whole batches, in the order of the buffer; one row each, all columns int64.

    ``positions`` count from the buffer's start, ``sizes`` are in bytes and include the header. ``consumed_bytes`` is
    where the last whole batch ends. ``needed_bytes`` is the size of the batch that the end of the buffer cuts, if its
    header is whole, else 0. ``damage`` says why the bytes behind the last whole batch can be no batch; None where they
    can.
    """

    positions: Int64Array
    sizes: Int64Array
    base_offsets: Int64Array
    last_offsets: Int64Array
    leader_epochs: Int64Array
    crcs: Int64Array
    attributes: Int64Array
    base_timestamps: Int64Array
    max_timestamps: Int64Array
    producer_ids: Int64Array
    producer_epochs: Int64Array
    base_sequences: Int64Array
    record_counts: Int64Array
    consumed_bytes: int
    needed_bytes: int
    damage: str | None

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"<BatchTable of {len(self)} batches, {self.consumed_bytes} bytes, next offset {self.next_offset}>"

    @property
    def next_offset(self) -> int | None:
        """The offset behind the last batch; None when there is none."""
        return int(self.last_offsets[-1]) + 1 if len(self) else None

    def wrong_crcs(self, data: memoryview, rows: slice = slice(None)) -> Iterator[int]:
        """Yield those of ``rows`` whose bytes in ``data`` do not have the CRC-32C that the header says."""
        starts, sizes, crcs = (column[rows].tolist() for column in (self.positions, self.sizes, self.crcs))
        for row, start, size, crc in zip(range(len(self))[rows], starts, sizes, crcs, strict=True):
            if crc32c(data[start + ATTRIBUTES_POSITION : start + size]) != crc:
                yield row


def codec_name(number: int) -> str:
    """Return Kafka's name of a codec; damaged headers have numbers without one."""
    return Codec(number).name.lower() if number < len(Codec) else f"unknown ({number})"


def scan_batches(data: ReadableBuffer) -> BatchTable:
    """Return the headers of the whole batches from the start of ``data`` on. Damage ends the table and does not raise.

    Only what reading on depends on is checked: magic, lengths, and that offsets grow; not the CRC, and nothing behind a
    header.
    """
    view = memoryview(data)
    positions, end, needed_bytes, damage = _walk(view)
    headers = _headers(view, positions)
    bad = _first_invalid(headers)
    if bad < len(headers):
        damage, needed_bytes, end = _problem_with(headers, bad), 0, int(positions[bad])
        headers, positions = headers[:bad], positions[:bad]
    return _table(headers, positions, end, needed_bytes, damage)


def _walk(view: memoryview) -> tuple[Int64Array, int, int, str | None]:
    """Return where whole batches begin and where the last one ends, the size of a batch that is cut, and the damage."""
    batch_length, size = _BATCH_LENGTH.unpack_from, len(view)
    positions: list[int] = []
    position = 0
    last_start = size - BATCH_HEADER_BYTES
    needed_bytes, damage = 0, None
    while position <= last_start:
        (length,) = batch_length(view, position + _BATCH_LENGTH_POSITION)
        if length < MIN_BATCH_LENGTH:
            break
        end = position + LOG_OVERHEAD_BYTES + length
        if end > size:
            needed_bytes = end - position
            break
        positions.append(position)
        position = end
    # A message of magic 0 or 1 may be shorter than a batch header, so magic is read from as few bytes as possible.
    if size - position > MAGIC_POSITION:
        damage = _tail_problem(view, position)
    return np.array(positions, np.int64), position, 0 if damage else needed_bytes, damage


def _headers(view: memoryview, positions: Int64Array) -> npt.NDArray[np.void]:
    if not len(positions):
        return np.empty(0, _HEADER)
    items = np.frombuffer(view, np.uint8)
    # Windows of one header's width at every byte: a view. Only the rows at ``positions`` are copied.
    windows = np.lib.stride_tricks.sliding_window_view(items, BATCH_HEADER_BYTES)
    headers: npt.NDArray[np.void] = windows[positions].view(_HEADER)[:, 0]
    return headers


def _first_invalid(headers: npt.NDArray[np.void]) -> int:
    """Return the index of the first header that is invalid, else the number of headers."""
    base_offsets, deltas = headers["base_offset"].astype(np.int64), headers["last_offset_delta"].astype(np.int64)
    bad = (headers["magic"] != MAGIC) | (base_offsets < 0) | (deltas < 0) | (headers["record_count"] < 0)
    bad |= base_offsets > MAX_OFFSET - np.maximum(deltas, 0)
    # A sum that overflows belongs to a header that is invalid already, and only the first invalid one counts.
    with np.errstate(over="ignore"):
        bad[1:] |= base_offsets[1:] <= base_offsets[:-1] + deltas[:-1]
    return int(bad.argmax()) if bad.any() else len(headers)


def _problem_with(headers: npt.NDArray[np.void], index: int) -> str:
    """Return what is wrong with the header that ``_first_invalid`` found."""
    header = headers[index]
    base_offset, delta = int(header["base_offset"]), int(header["last_offset_delta"])
    if header["magic"] != MAGIC:
        return _wrong_magic(int(header["magic"]), base_offset)
    if header["record_count"] < 0:
        return f"a batch of {header['record_count']} records at offset {base_offset}"
    if not 0 <= base_offset <= MAX_OFFSET - max(delta, 0) or delta < 0:
        return f"a batch with offsets from {base_offset}, {delta} further"
    before = headers[index - 1]
    last_offset = int(before["base_offset"]) + int(before["last_offset_delta"])
    return f"a batch at offset {base_offset} behind one that ends with offset {last_offset}"


def _tail_problem(view: memoryview, position: int) -> str | None:
    """Return what is wrong with the bytes behind the last whole batch, None if they may be the beginning of a batch."""
    (base_offset,) = _BASE_OFFSET.unpack_from(view, position)
    (length,) = _BATCH_LENGTH.unpack_from(view, position + _BATCH_LENGTH_POSITION)
    magic = view[position + MAGIC_POSITION]
    if magic in (0, 1) and length >= _MIN_MESSAGE_LENGTH:
        return _wrong_magic(magic, base_offset)
    if length < MIN_BATCH_LENGTH:
        return f"a batch of {length} bytes at offset {base_offset}, which is less than its header"
    return None if magic == MAGIC else _wrong_magic(magic, base_offset)


def _wrong_magic(magic: int, base_offset: int) -> str:
    if magic in (0, 1):
        return (
            f"messages of the old format (magic {magic}) at offset {base_offset}, as brokers before Kafka 0.11 wrote "
            f"them: only record batches (magic {MAGIC}) are read"
        )
    return f"magic {magic} at offset {base_offset} does not exist: this is no record batch"


def _table(
    headers: npt.NDArray[np.void], positions: Int64Array, end: int, needed_bytes: int, damage: str | None
) -> BatchTable:
    def column(name: str) -> Int64Array:
        return headers[name].astype(np.int64)

    base_offsets = column("base_offset")
    return BatchTable(
        positions=positions,
        sizes=column("batch_length") + LOG_OVERHEAD_BYTES,
        base_offsets=base_offsets,
        last_offsets=base_offsets + column("last_offset_delta"),
        leader_epochs=column("partition_leader_epoch"),
        crcs=column("crc"),
        attributes=column("attributes"),
        base_timestamps=column("base_timestamp"),
        max_timestamps=column("max_timestamp"),
        producer_ids=column("producer_id"),
        producer_epochs=column("producer_epoch"),
        base_sequences=column("base_sequence"),
        record_counts=column("record_count"),
        consumed_bytes=end,
        needed_bytes=needed_bytes,
        damage=damage,
    )
