"""Protocol Buffers without their schema: the fields of the wire, by number.

The wire does not tell text from bytes and messages, nor ints from floats. What reads as text is text, what reads as a
message is one, other bytes are hexadecimal, and a fixed number is given both ways.

Source: the encoding of Protocol Buffers.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from broker_admin.decoders.decoded import MAX_NESTING, ElementBudget, NotDecodable
from kafka_wire.limits import MAX_VARLONG_BYTES

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types; groups, 3 and 4, are long deprecated."""

MAX_FIELD_NUMBER = 2**29 - 1

_FIXED = {
    FIXED64: (struct.Struct("<q"), struct.Struct("<d")),
    FIXED32: (struct.Struct("<i"), struct.Struct("<f")),
}


def decode_protobuf(data: bytes) -> dict[str, Any]:
    """The fields by number, in the order of the wire; one that comes several times is a list."""
    if not data:
        raise NotDecodable("no bytes")
    return read_message(data, ElementBudget(), 0)


def read_message(data: bytes, budget: ElementBudget, depth: int) -> dict[str, Any]:
    if depth > MAX_NESTING:
        raise NotDecodable(f"messages nested more than {MAX_NESTING} deep")
    found: dict[str, list[Any]] = {}
    position = 0
    while position < len(data):
        budget.take()
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise NotDecodable(f"field number {number} at byte {position}")
        value, position = read_field(data, position, wire_type, budget, depth)
        found.setdefault(str(number), []).append(value)
    return {number: values[0] if len(values) == 1 else values for number, values in found.items()}


def read_field(data: bytes, position: int, wire_type: int, budget: ElementBudget, depth: int) -> tuple[Any, int]:
    if wire_type == VARINT:
        return read_varint(data, position)
    if wire_type == LENGTH_DELIMITED:
        length, position = read_varint(data, position)
        end = position + length
        if end > len(data):
            raise NotDecodable(f"{length} bytes where {len(data) - position} are left")
        return content(data[position:end], budget, depth), end
    if wire_type in _FIXED:
        whole, real = _FIXED[wire_type]
        end = position + whole.size
        if end > len(data):
            raise NotDecodable("the last field is cut short")
        number = real.unpack_from(data, position)[0]
        name = "double" if wire_type == FIXED64 else "float"
        return {
            "int": whole.unpack_from(data, position)[0],
            name: number if math.isfinite(number) else str(number),
        }, end
    raise NotDecodable(f"wire type {wire_type} at byte {position}")


def content(data: bytes, budget: ElementBudget, depth: int) -> Any:
    """What a field with a length holds: text, a message, or bytes."""
    try:
        text = data.decode()
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    try:
        return read_message(data, budget, depth + 1)
    except NotDecodable:
        return data.hex()


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index in range(MAX_VARLONG_BYTES):
        if position >= len(data):
            raise NotDecodable("the last number is cut short")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number & 2**64 - 1, position
    raise NotDecodable(f"a number of more than {MAX_VARLONG_BYTES} bytes")
