"""Protocol Buffers, as much as etcd's messages need: varints, length-delimited fields, nested and repeated messages.

A message is a frozen attrs class whose attributes are declared with ``field``. Zeros and empty values are absent on the
wire, but for an ``optional`` field: one of a ``oneof``, where the presence is the information.

Source: the encoding page of Protocol Buffers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import attrs

from trio_broker.cluster.etcd.errors import MalformedMessage

Message = TypeVar("Message")

MAX_VARINT_BYTES: Final = 10
"""An int64 needs no more; a longer one is garbage."""

_UINT64_MASK: Final = 2**64 - 1


class WireType(enum.IntEnum):
    """How long a field is, in the low three bits of its tag."""

    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    FIXED32 = 5


FIXED_BYTES: Final = {WireType.FIXED64: 8, WireType.FIXED32: 4}


@attrs.frozen
class Shape:
    """Where an attribute stands: its field number, and what it is: int, bool, bytes, str or a message class. An
    ``optional`` one is one of a ``oneof``, None where it is absent."""

    number: int
    type: type
    repeated: bool = False
    optional: bool = False


def field(number: int, type: type, *, optional: bool = False) -> Any:
    """Declare an attribute. An ``optional`` one is None where it is absent; any other is zero or empty then."""
    default = None if optional else attrs.Factory(type)
    return attrs.field(default=default, metadata={Shape: Shape(number, type, optional=optional)})


def repeated(number: int, type: type) -> Any:
    """Declare an attribute that is a tuple."""
    return attrs.field(default=(), converter=tuple, metadata={Shape: Shape(number, type, repeated=True)})


def shapes_of(message_class: type) -> dict[str, Shape]:
    """The shapes of a message class, by the names of its attributes."""
    if (shapes := _SHAPES.get(message_class)) is None:
        shapes = {each.name: each.metadata[Shape] for each in attrs.fields(message_class)}
        _SHAPES[message_class] = shapes
    return shapes


_SHAPES: Final[dict[type, dict[str, Shape]]] = {}


# --- Encoding ---


def encode(message: Any) -> bytes:
    """Return the bytes of a message."""
    parts: list[bytes] = []
    for name, shape in shapes_of(type(message)).items():
        value = getattr(message, name)
        if shape.repeated:
            parts += [_encoded_field(shape, each) for each in value]
        elif value is not None and (value or shape.optional):
            parts.append(_encoded_field(shape, value))
    return b"".join(parts)


def _encoded_field(shape: Shape, value: Any) -> bytes:
    if shape.type in (int, bool):
        # A negative number is its two's complement in 64 bits, also of an int32.
        return _varint(shape.number << 3 | WireType.VARINT) + _varint(int(value) & _UINT64_MASK)
    data = value if shape.type is bytes else value.encode() if shape.type is str else encode(value)
    return b"".join((_varint(shape.number << 3 | WireType.LENGTH_DELIMITED), _varint(len(data)), data))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# --- Decoding ---


def decode(message_class: type[Message], data: bytes) -> Message:
    """Return the message in ``data``; fields that the class does not declare are skipped.

    Raises:
        MalformedMessage: ``data`` is no such message.
    """
    by_number = {shape.number: (name, shape) for name, shape in shapes_of(message_class).items()}
    values: dict[str, Any] = {}
    for number, raw in _fields(data):
        if number not in by_number:
            continue
        name, shape = by_number[number]
        value = _decoded(shape, raw)
        values[name] = (*values.get(name, ()), value) if shape.repeated else value
    return message_class(**values)


def _decoded(shape: Shape, raw: int | bytes) -> Any:
    if shape.type in (int, bool):
        if not isinstance(raw, int):
            raise MalformedMessage(f"field {shape.number} is not a number")
        return raw != 0 if shape.type is bool else raw - 2**64 if raw >> 63 else raw
    if isinstance(raw, int):
        raise MalformedMessage(f"field {shape.number} is a number")
    if shape.type is str:
        return raw.decode(errors="replace")
    return raw if shape.type is bytes else decode(shape.type, raw)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: their numbers, and a number or bytes."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == WireType.VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if kind == WireType.LENGTH_DELIMITED:
            size, position = _read_varint(data, position)
        elif kind in FIXED_BYTES:
            size = FIXED_BYTES[WireType(kind)]
        else:
            raise MalformedMessage(f"a field of the unknown wire type {kind}")
        if position + size > len(data):
            raise MalformedMessage(f"field {number} ends {position + size - len(data)} bytes behind the message")
        yield number, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & _UINT64_MASK, position + index + 1
    raise MalformedMessage(f"the varint at position {position} does not end")
