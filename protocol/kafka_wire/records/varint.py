"""The variable-length integers inside records: zigzag, then groups of seven bits, the lowest first.

A group's high bit says that another follows. Zigzag (0, -1, 1, -2 … become 0, 1, 2, 3 …) keeps small negative
numbers short; -1 is the usual one, a null key's length. Readers never look past the longest encoding a value of
that width can have. Longer forms than needed are read, as Kafka reads them; bits beyond the width are refused.

Source: Kafka's ByteUtils.readVarint, readVarlong; docs/formats/record-batch.md.
"""

from __future__ import annotations

from kafka_wire.limits import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from kafka_wire.records.errors import InvalidRecord


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the 32-bit value at ``position`` and the position after it.

    Raises:
        InvalidRecord: it is longer than five bytes or has more than 32 bits.
        IndexError: ``data`` ends first; callers that walk many values turn this into one refusal.
    """
    # One and two bytes written out here, in ``read_varlong`` and four times in ``record.check_records``: nearly every
    # length and delta has that size, and a function call would cost several times the arithmetic.
    low = data[position]
    if low < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    high = data[position + 1]
    if high < 0x80:
        # (high << 7 | low & 0x7F), of which zigzag takes one bit for the sign.
        return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), position + 2
    return _read_zigzag(data, position, MAX_VARINT_BYTES, 32)


def read_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the 64-bit value at ``position`` and the position after it; errors as for ``read_varint``."""
    low = data[position]
    if low < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    high = data[position + 1]
    if high < 0x80:
        return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), position + 2
    return _read_zigzag(data, position, MAX_VARLONG_BYTES, 64)


def _read_zigzag(data: bytes | memoryview, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, position + max_bytes):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                raise InvalidRecord(f"variable-length integer of more than {bits} bits at byte {position}")
            return (value >> 1) ^ -(value & 1), index + 1
        shift += 7
    raise InvalidRecord(f"variable-length integer of more than {max_bytes} bytes at byte {position}")


def append_varint(out: bytearray, value: int) -> None:
    """Append ``value`` (of 32 or 64 bits; the encoding is the same) to ``out``."""
    # Right for both signs, since Python's shift keeps the sign: ~ turns a negative number into its zigzag partner.
    group = value << 1 if value >= 0 else ~(value << 1)
    while group > 0x7F:
        out.append(group & 0x7F | 0x80)
        group >>= 7
    out.append(group)
