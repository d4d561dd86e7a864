"""What compaction does to the bytes of one batch: look at keys, leave records out, note when tombstones may go.

A batch that loses records keeps its base offset, its last offset, its sequences, its producer, its epochs and its
codec; the records that stay keep their offsets, so gaps arise inside a batch. What changes:

* ``base_timestamp`` is the first remaining record's timestamp, or the **delete horizon**: the moment from which
  tombstones and markers in the batch may be left out. Bit 6 of the attributes says which. Deltas follow.
* ``max_timestamp`` is the largest of the remaining records' timestamps.
* ``record_count``, the length and the CRC are those of what remains.

A batch that loses all its records and must stay, because it holds a producer's last sequence or the last offset of
what was compacted, becomes a header and nothing else: no codec, no horizon, no base timestamp, its old largest one.

The walk reads what decides (offset, key, whether there is a value) and takes each record's own length for the rest,
since compaction copies records and never looks at their headers. ``read_columns`` gives lists and no objects: a log
has hundreds of millions of records, and an object for each would cost more than all else.

Source: Kafka's MemoryRecords.filterTo, MemoryRecordsBuilder, DefaultRecordBatch.writeEmptyHeader;
docs/formats/record-batch.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kafka_wire.limits import INT64_MAX, INT64_MIN
from kafka_wire.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    RecordBatch,
    TimestampType,
    assemble_batch,
)
from kafka_wire.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, compress
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import MIN_RECORD_BYTES, ZIGZAG
from kafka_wire.records.varint import append_varint, read_varint, read_varlong

_NULL = 0x01
"""The varint -1, which is the length of a null key or value."""


@attrs.define
class RecordColumns:
    """The records of one batch, column by column; ``data`` is the inflated block they lie in.

    Record ``i`` lies at ``starts[i]`` up to ``starts[i + 1]``; behind its offset delta, at ``keys_at[i]``, key, value
    and headers follow as they are to be copied. ``keys[i]`` is None for a null key.
    """

    data: bytes
    starts: list[int]
    timestamp_deltas: list[int]
    offset_deltas: list[int]
    keys_at: list[int]
    keys: list[bytes | None]
    tombstones: list[bool]

    def __len__(self) -> int:
        return len(self.keys)


def read_columns(batch: RecordBatch, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> RecordColumns:
    """Walk over the records of ``batch`` as far as compaction needs it.

    Raises:
        InvalidRecord: they do not fill the block, their offsets do not grow within the batch, or a key ends outside
            its record.
        DecompressionTooLarge: they would take more than ``max_bytes``.
    """
    data, header = batch.payload(max_bytes=max_bytes), batch.header
    count = header.record_count
    if not 0 <= count <= len(data) // MIN_RECORD_BYTES:
        raise InvalidRecord(f"{count} records in {len(data)} bytes")
    columns = RecordColumns(data, [], [], [], [], [], [])
    try:
        position = _walk(columns, count, header.last_offset_delta)
    except IndexError:
        raise InvalidRecord("the records end early", record_index=len(columns)) from None
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes after the last record")
    columns.starts.append(position)
    return columns


def _walk(columns: RecordColumns, count: int, last_offset_delta: int) -> int:
    """Fill ``columns`` with ``count`` records and return the position behind the last of them.

    Varints of one and two bytes are read in place, as in ``record.check_records``: calls would cost more than all else.
    """
    data, zigzag = columns.data, ZIGZAG
    add_start, add_timestamp, add_offset = (
        columns.starts.append,
        columns.timestamp_deltas.append,
        columns.offset_deltas.append,
    )
    add_key_at, add_key, add_tombstone = columns.keys_at.append, columns.keys.append, columns.tombstones.append
    size, position, previous_delta = len(data), 0, -1
    for index in range(count):
        add_start(position)
        byte = data[position]
        if byte < 0x80:
            length = zigzag[byte]
            position += 1
        elif (high := data[position + 1]) < 0x80:
            length = high << 6 ^ zigzag[byte & 0x7F]
            position += 2
        else:
            length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > size:
            raise InvalidRecord(f"a record of {length} bytes where {size - position} are left", record_index=index)
        position += 1  # attributes: unused
        byte = data[position]
        if byte < 0x80:
            add_timestamp(zigzag[byte])
            position += 1
        elif (high := data[position + 1]) < 0x80:
            add_timestamp(high << 6 ^ zigzag[byte & 0x7F])
            position += 2
        else:
            timestamp_delta, position = read_varlong(data, position)
            add_timestamp(timestamp_delta)
        byte = data[position]
        if byte < 0x80:
            offset_delta = zigzag[byte]
            position += 1
        elif (high := data[position + 1]) < 0x80:
            offset_delta = high << 6 ^ zigzag[byte & 0x7F]
            position += 2
        else:
            offset_delta, position = read_varint(data, position)
        if not previous_delta < offset_delta <= last_offset_delta:
            raise InvalidRecord(
                f"an offset delta of {offset_delta} after {previous_delta}, up to {last_offset_delta}",
                record_index=index,
            )
        previous_delta = offset_delta
        add_offset(offset_delta)
        add_key_at(position)
        byte = data[position]
        if byte < 0x80:
            length = zigzag[byte]
            position += 1
        else:
            length, position = read_varint(data, position)
        if length >= 0:
            key_at, position = position, position + length
            add_key(data[key_at:position])
        else:
            add_key(None)
        if position >= end or length < -1:
            raise InvalidRecord(f"a key of {length} bytes in a record that ends earlier", record_index=index)
        add_tombstone(data[position] == _NULL)
        position = end
    return position


def rewrite_batch(
    batch: RecordBatch, columns: RecordColumns, kept: Sequence[int], *, delete_horizon_ms: int | None
) -> bytes:
    """Return ``batch`` with the records at the indexes ``kept`` only, at least one, in ascending order.

    ``delete_horizon_ms`` is written into the batch where it is not None; the caller passes on one that is there. It is
    left out where a record's time is so far from it that no delta could say so: such tombstones stay.
    """
    assert kept, "a batch without records is made by empty_batch"
    header = batch.header
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamps = [header.max_timestamp] * len(kept)
    else:
        base, deltas = header.base_timestamp, columns.timestamp_deltas
        timestamps = [base + deltas[index] for index in kept]
    base_timestamp = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    # A record's time is a varlong beside the time of its batch; one of more than 64 bits would end the reading.
    if not INT64_MIN <= min(timestamps) - base_timestamp <= max(timestamps) - base_timestamp <= INT64_MAX:
        base_timestamp, delete_horizon_ms = header.base_timestamp, None
    if base_timestamp == header.base_timestamp and header.timestamp_type is TimestampType.CREATE_TIME:
        block = _copied(columns, kept)
    else:
        block = _with_new_deltas(columns, kept, [timestamp - base_timestamp for timestamp in timestamps])
    horizon_bit = 0 if delete_horizon_ms is None else DELETE_HORIZON_BIT
    rewritten = attrs.evolve(
        header,
        attributes=header.attributes & ~DELETE_HORIZON_BIT | horizon_bit,
        base_timestamp=base_timestamp,
        max_timestamp=max(NO_TIMESTAMP, *timestamps),
        record_count=len(kept),
    )
    return assemble_batch(rewritten, compress(header.codec, block))


def _copied(columns: RecordColumns, kept: Sequence[int]) -> bytes:
    """The kept records as they are: their deltas stay right, since both bases stay."""
    data, starts = columns.data, columns.starts
    return b"".join([data[starts[index] : starts[index + 1]] for index in kept])


def _with_new_deltas(columns: RecordColumns, kept: Sequence[int], timestamp_deltas: Sequence[int]) -> bytes:
    data, starts, keys_at, offset_deltas = columns.data, columns.starts, columns.keys_at, columns.offset_deltas
    block = bytearray()
    for index, timestamp_delta in zip(kept, timestamp_deltas, strict=True):
        head = bytearray(1)  # attributes: unused
        append_varint(head, timestamp_delta)
        append_varint(head, offset_deltas[index])
        rest = data[keys_at[index] : starts[index + 1]]
        append_varint(block, len(head) + len(rest))
        block += head
        block += rest
    return bytes(block)


def empty_batch(header: BatchHeader) -> bytes:
    """Return what stays of a batch without its records: 61 bytes that keep offsets, sequences and the producer."""
    emptied = attrs.evolve(
        header,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return assemble_batch(emptied, b"")
