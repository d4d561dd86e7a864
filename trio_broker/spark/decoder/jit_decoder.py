"""The walk over records as machine code, by numba: reads records and writes Arrow's buffers in one pass.

``fill`` works on addresses, because array indexing costs several times more than all the rest, and copies keys and
values by a real ``memcpy``. Only the checks made here keep it inside its memory, so the rules are:

* No byte is read before its address was compared with an end: of the record, once its length is known, else of the
  block. The record's end was compared with the block's end first.
* A length is compared with what is left of its record before it is used.
* Nothing is written before there is room for the whole record in every output.

``kafka_wire.records.record`` defines a valid record. The reason of a refusal is not returned: the caller reads the
batch again with that module, which has the texts.
"""

from __future__ import annotations

from typing import Any, Final

from kafka_wire.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_BYTES
from trio_broker.spark.decoder.blocks import (
    APPEND_TIMESTAMP,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CRC,
    END,
    IS_APPEND_TIME,
    LAST_OFFSET_DELTA,
    MAX_MILLISECONDS,
    NO_CRC,
    NULL,
    RECORD_COUNT,
    START,
)
from trio_broker.spark.decoder.jit_crc import crc_of
from trio_broker.spark.decoder.native_memory import (
    compiled,
    copy_bytes,
    inlined,
    jitted,
    load_byte,
    store_byte,
    store_int32,
    store_int64,
)

# Items of ``cursor``: the position of the walk. POSITION is -1 at the start of a block. ------------------------------

BLOCK, RECORD, POSITION, PREVIOUS_DELTA = range(4)

# Items of ``used``, ``room`` and ``needed``: what the outputs hold, what fits in them, what the next record takes. ----

ROOM_ITEMS: Final = 6
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES = range(6)

# Items of ``outputs``: addresses, 0 for a column that is not wanted. -------------------------------------------------

OUTPUT_ITEMS: Final = 16
OFFSETS, TIMESTAMPS = range(2)
KEY_ENDS, KEY_VALID, KEYS = range(2, 5)
VALUE_ENDS, VALUE_VALID, VALUES = range(5, 8)
HEADER_LIST_ENDS, HEADER_LIST_VALID = range(8, 10)
HEADER_KEY_ENDS, HEADER_KEYS, HEADER_VALUE_ENDS, HEADER_VALUE_VALID, HEADER_VALUES = range(10, 15)
TIMESTAMP_TYPES = 15
"""``_ENDS`` are int32, one more than there are rows (or headers), the first one 0 already; ``_VALID`` is a byte each, 0
for null; offsets and timestamps (microseconds) are int64, timestamp types int32."""

# Results of ``fill``. ------------------------------------------------------------------------------------------------

DONE: Final = 0
"""All blocks were read."""
FULL: Final = 1
"""The next record belongs to the next Arrow batch."""
NO_ROOM: Final = 2
"""The first record does not fit; ``needed`` has its size."""
BAD: Final = 3
"""The block at the cursor breaks the format, or its checksum is wrong."""

CRC_LEAD_BYTES: Final = BATCH_HEADER_BYTES - ATTRIBUTES_POSITION
"""The checksum covers so many bytes in front of the records."""

# Integers of records -------------------------------------------------------------------------------------------------


@inlined
def read_varint(at: int, end: int) -> tuple[int, int]:
    """Return the 32-bit value at address ``at`` and the address behind it: 0 if it is invalid, or not before
    ``end``."""
    # One and two bytes cover nearly all lengths and deltas; the loop for longer ones is a call of its own.
    if at < end:
        low = load_byte(at)
        if low < 0x80:
            return (low >> 1) ^ -(low & 1), at + 1
        if at + 1 < end:
            high = load_byte(at + 1)
            if high < 0x80:
                return ((high << 6) | ((low & 0x7F) >> 1)) ^ -(low & 1), at + 2
    return read_long_varint(at, end, 5, 32)


@inlined
def read_varlong(at: int, end: int) -> tuple[int, int]:
    """Return the 64-bit value, as ``read_varint``."""
    if at < end:
        low = load_byte(at)
        if low < 0x80:
            return (low >> 1) ^ -(low & 1), at + 1
    return read_long_varint(at, end, 10, 64)


@jitted
def read_long_varint(at: int, end: int, max_bytes: int, bits: int) -> tuple[int, int]:
    """Return a value of up to ``bits`` bits in up to ``max_bytes`` bytes, and the address behind it (0: invalid)."""
    low_half, high_half, shift = 0, 0, 0  # the low 35 bits and the others, so that no shift reaches the sign
    for _ in range(max_bytes):
        if at >= end:
            return 0, 0
        byte = load_byte(at)
        at += 1
        if shift < 35:
            low_half |= (byte & 0x7F) << shift
        else:
            high_half |= (byte & 0x7F) << (shift - 35)
        shift += 7
        if byte < 0x80:
            if (low_half >> bits if bits < 35 else high_half >> (bits - 35)) != 0:
                return 0, 0
            # Without its lowest bit, the sign, the value has at most 63 bits.
            return ((high_half << 34) | (low_half >> 1)) ^ -(low_half & 1), at
    return 0, 0


# Records -------------------------------------------------------------------------------------------------------------


@jitted
def measure_headers(at: int, end: int, count: int) -> tuple[int, int]:
    """Return the sizes of the keys and of the values of the headers at ``at``; -1 if the headers do not end at
    ``end``."""
    key_bytes = value_bytes = 0
    for _ in range(count):
        length, at = read_varint(at, end)
        if at == 0 or length < 0 or length > end - at:
            return -1, -1
        key_bytes += length
        at += length
        length, at = read_varint(at, end)
        if at == 0 or length < NULL or length > end - at:
            return -1, -1
        if length > 0:
            value_bytes += length
            at += length
    if at != end:
        return -1, -1
    return key_bytes, value_bytes


@inlined
def read_record(at: int, block_end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Return the fields of the record at ``at``.

    They are: its end, or 0 if it breaks the format; timestamp delta; offset delta; address and length of the key, of
    the value, and of the headers, whose length is their number. The headers themselves are not checked.
    """
    bad = (0, 0, 0, 0, 0, 0, 0, 0, 0)
    length, position = read_varint(at, block_end)
    if position == 0 or length <= 0 or length > block_end - position:
        return bad
    end = position + length
    timestamp_delta, position = read_varlong(position + 1, end)  # behind the attributes, which are unused
    if position == 0:
        return bad
    offset_delta, position = read_varint(position, end)
    if position == 0:
        return bad
    key_length, key_at = read_varint(position, end)
    if key_at == 0 or key_length < NULL or key_length > end - key_at:
        return bad
    value_length, value_at = read_varint(key_at + max(key_length, 0), end)
    if value_at == 0 or value_length < NULL or value_length > end - value_at:
        return bad
    header_count, headers_at = read_varint(value_at + max(value_length, 0), end)
    # A header takes at least two bytes. Without this bound a count of two billion would be looped over.
    if headers_at == 0 or header_count < 0 or header_count > (end - headers_at) >> 1:
        return bad
    return end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, header_count


@inlined
def append_value(at: int, length: int, row: int, used_bytes: int, ends: int, valid: int, data: int) -> int:
    """Append a key or value of ``length`` bytes, null if that is -1, to a column; return the column's new size in
    bytes."""
    if length > 0:
        copy_bytes(data + used_bytes, at, length)
        used_bytes += length
    store_byte(valid + row, length >= 0)
    store_int32(ends + 4 * row + 4, used_bytes)
    return used_bytes


@jitted
def have_room(headers: int, key_bytes: int, value_bytes: int, used: Any, room: Any) -> bool:
    """Return whether so many more headers, and bytes of their keys and values, fit."""
    return bool(
        used[HEADERS] + headers <= room[HEADERS]
        and used[HEADER_KEY_BYTES] + key_bytes <= room[HEADER_KEY_BYTES]
        and used[HEADER_VALUE_BYTES] + value_bytes <= room[HEADER_VALUE_BYTES]
    )


@jitted
def append_headers(at: int, end: int, count: int, row: int, used: Any, outputs: Any) -> None:
    """Append headers that ``measure_headers`` has checked and that fit."""
    headers, key_bytes, value_bytes = used[HEADERS], used[HEADER_KEY_BYTES], used[HEADER_VALUE_BYTES]
    for _ in range(count):
        length, at = read_varint(at, end)
        copy_bytes(outputs[HEADER_KEYS] + key_bytes, at, length)
        key_bytes += length
        store_int32(outputs[HEADER_KEY_ENDS] + 4 * headers + 4, key_bytes)
        length, at = read_varint(at + length, end)
        value_bytes = append_value(
            *(at, length, headers, value_bytes),
            *(outputs[HEADER_VALUE_ENDS], outputs[HEADER_VALUE_VALID], outputs[HEADER_VALUES]),
        )
        at += max(length, 0)
        headers += 1
    used[HEADERS], used[HEADER_KEY_BYTES], used[HEADER_VALUE_BYTES] = headers, key_bytes, value_bytes
    store_byte(outputs[HEADER_LIST_VALID] + row, count > 0)
    store_int32(outputs[HEADER_LIST_ENDS] + 4 * row + 4, headers)


@inlined
def read_timestamp(blocks: Any, block: int, delta: int) -> tuple[int, bool]:
    """Return a record's timestamp in milliseconds, and whether it fits 64 bits in microseconds, too."""
    base = blocks[block, BASE_TIMESTAMP]
    if blocks[block, IS_APPEND_TIME] != 0:
        timestamp, wrapped = blocks[block, APPEND_TIMESTAMP], False
    else:
        timestamp = base + delta
        wrapped = (timestamp < base) != (delta < 0)
    return timestamp, not wrapped and -MAX_MILLISECONDS <= timestamp <= MAX_MILLISECONDS


@compiled("int64(int64, int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64, int64)")
def fill(
    data: int,
    blocks: Any,
    cursor: Any,
    outputs: Any,
    used: Any,
    room: Any,
    needed: Any,
    first_offset: int,
    end_offset: int,
    max_bytes: int,
) -> int:
    """Append the records from ``cursor`` on to ``outputs``, which hold ``used`` already; return why it stopped.

    All blocks are walked to their end, but only records with offsets from ``first_offset`` up to ``end_offset``,
    which is exclusive, are appended, and no more than ``max_bytes`` of them, unless the first one has more.
    """
    # Local variables stay in registers: twice as fast for every record as the items of ``used``.
    offsets, timestamps, timestamp_types = outputs[OFFSETS], outputs[TIMESTAMPS], outputs[TIMESTAMP_TYPES]
    key_ends, key_valid, keys = outputs[KEY_ENDS], outputs[KEY_VALID], outputs[KEYS]
    value_ends, value_valid, values = outputs[VALUE_ENDS], outputs[VALUE_VALID], outputs[VALUES]
    wants_headers = outputs[HEADER_LIST_ENDS] != 0
    row, key_bytes, value_bytes = used[ROWS], used[KEY_BYTES], used[VALUE_BYTES]
    total = key_bytes + value_bytes + used[HEADER_KEY_BYTES] + used[HEADER_VALUE_BYTES]
    row_room, key_room, value_room = room[ROWS], room[KEY_BYTES], room[VALUE_BYTES]
    block, record, at, previous_delta = cursor[BLOCK], cursor[RECORD], cursor[POSITION], cursor[PREVIOUS_DELTA]
    status = DONE
    while block < blocks.shape[0]:
        block_end = data + blocks[block, END]
        if at < 0:
            at = blocks[block, START]
            # Only at its start: where a call continues in the middle of a block, an earlier one has compared the CRC.
            if blocks[block, CRC] != NO_CRC and crc_of(data + at - CRC_LEAD_BYTES, block_end) != blocks[block, CRC]:
                status = BAD
                break
        # Inside the loop ``at`` is an address; in the cursor it is a position, since memory may move between two calls.
        at += data
        base_offset, last_offset_delta = blocks[block, BASE_OFFSET], blocks[block, LAST_OFFSET_DELTA]
        record_count = blocks[block, RECORD_COUNT]
        while record < record_count:
            end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, header_count = (
                read_record(at, block_end)
            )
            if end == 0 or offset_delta <= previous_delta or offset_delta > last_offset_delta:
                status = BAD
                break
            # Headers are checked even where the column is not wanted only as far as that costs nothing: a record
            # without any must end here.
            header_key_bytes = header_value_bytes = 0
            if header_count == 0:
                if headers_at != end:
                    status = BAD
                    break
            elif wants_headers:
                header_key_bytes, header_value_bytes = measure_headers(headers_at, end, header_count)
                if header_key_bytes < 0:
                    status = BAD
                    break
            offset = base_offset + offset_delta
            if first_offset <= offset < end_offset:
                key_size = max(key_length, 0) if keys != 0 else 0
                value_size = max(value_length, 0) if values != 0 else 0
                size = key_size + value_size + header_key_bytes + header_value_bytes
                if (
                    row >= row_room
                    or (total + size > max_bytes and row > 0)
                    or key_bytes + key_size > key_room
                    or value_bytes + value_size > value_room
                    or (wants_headers and not have_room(header_count, header_key_bytes, header_value_bytes, used, room))
                ):
                    needed[ROWS], needed[KEY_BYTES], needed[VALUE_BYTES], needed[HEADERS] = (
                        1,
                        key_size,
                        value_size,
                        header_count,
                    )
                    needed[HEADER_KEY_BYTES], needed[HEADER_VALUE_BYTES] = header_key_bytes, header_value_bytes
                    # The cursor stays at this record, which the next call reads again.
                    status = FULL if row > 0 else NO_ROOM
                    break
                if timestamps != 0:
                    timestamp, representable = read_timestamp(blocks, block, timestamp_delta)
                    if not representable:
                        status = BAD
                        break
                    store_int64(timestamps + 8 * row, timestamp * 1000)
                if timestamp_types != 0:
                    store_int32(timestamp_types + 4 * row, blocks[block, IS_APPEND_TIME])
                if offsets != 0:
                    store_int64(offsets + 8 * row, offset)
                if keys != 0:
                    key_bytes = append_value(key_at, key_length, row, key_bytes, key_ends, key_valid, keys)
                if values != 0:
                    value_bytes = append_value(
                        value_at, value_length, row, value_bytes, value_ends, value_valid, values
                    )
                if wants_headers:
                    append_headers(headers_at, end, header_count, row, used, outputs)
                total += size
                row += 1
            previous_delta = offset_delta
            at = end
            record += 1
        if status == DONE and at != block_end:
            status = BAD
        at -= data
        if status != DONE:
            break
        block, record, at, previous_delta = block + 1, 0, -1, -1
    cursor[BLOCK], cursor[RECORD], cursor[POSITION], cursor[PREVIOUS_DELTA] = block, record, at, previous_delta
    used[ROWS], used[KEY_BYTES], used[VALUE_BYTES] = row, key_bytes, value_bytes
    return status
