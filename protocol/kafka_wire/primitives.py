"""The primitive types of Kafka's wire, and the few codings that have no fixed size.

A type is seen twice. The checker sees plain Python (``Int16`` is ``int``); the codec sees the wire type in the
annotation (``Fixed`` or ``Sized``). So a message class is at once an ordinary class and a description of bytes.

Everything is big-endian. Varints are base 128 with the low group first, as in Protocol Buffers; the signed ones are
zigzag coded. Reading stops at the longest that a value can need, because a longer one is garbage.

Source: Kafka's protocol guide, "Protocol Primitive Types"; ByteUtils; KIP-482 for the compact forms; Uuid.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Annotated, Any, Final, Protocol, TypeAlias

import attrs

from kafka_wire.errors import WireError
from kafka_wire.limits import MAX_VARINT_BYTES

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview
"""What is decoded: anything contiguous, one byte an item."""


class Region(Protocol):
    """Something to send that is not in memory, such as a piece of a file; the codec asks only for its length."""

    def __len__(self) -> int: ...


Chunk: TypeAlias = bytes | bytearray | memoryview | Region
"""A piece of an encoded message."""


# --- Wire types, as the codec sees them ---


@attrs.frozen
class Fixed:
    """A type whose values all have one size.

    ``kafka_type`` is its name in Kafka's schemas, ``code`` its code for the ``struct`` module.
    """

    kafka_type: str
    code: str

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return struct.calcsize(">" + self.code)


@attrs.frozen
class Sized:
    """A type whose values say how long they are: ``string``, ``bytes`` or ``records``."""

    kafka_type: str


# --- Wire types, as declarations use them ---

Boolean = Annotated[bool, Fixed("bool", "?")]
"""One byte; any but zero is true."""

Int8 = Annotated[int, Fixed("int8", "b")]
Int16 = Annotated[int, Fixed("int16", "h")]
Int32 = Annotated[int, Fixed("int32", "i")]
Int64 = Annotated[int, Fixed("int64", "q")]
UInt16 = Annotated[int, Fixed("uint16", "H")]
UInt32 = Annotated[int, Fixed("uint32", "I")]
Float64 = Annotated[float, Fixed("float64", "d")]

String = Annotated[str, Sized("string")]
"""UTF-8, at most ``MAX_STRING_BYTES``."""

Bytes = Annotated[bytes, Sized("bytes")]
"""Read as a copy, so that what a coordinator keeps does not keep the frame."""

Uuid = Annotated[bytes, Fixed("uuid", "16s")]
"""Sixteen plain bytes; see ``uuid_text`` for how Kafka prints them."""

Records = Annotated[Any, Sized("records")]
"""Record batches, never copied.

Read as a ``memoryview`` of the frame, which therefore stays in memory while somebody holds it. Written from anything
with a length, which becomes a chunk of its own.
"""

NULL_STRUCT: Final = -1
"""The byte that stands in the place of a struct that is null (KIP-893); 1 stands before one that is not."""

TAGGED_NULL_STRUCT: Final = 0
"""The same in a tagged field, where Kafka's generator took an unsigned varint for it."""


# --- Varints; those of records, which are signed, are in ``records.varint`` ---

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""The unsigned varints of one byte, by value."""


def read_unsigned_varint(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """Return the unsigned 32-bit varint at ``position``, and the position after it.

    Raises:
        WireError: it is cut off, longer than five bytes, or does not fit in 32 bits.
    """
    # Fast path: one and two bytes written out, since the length of a common batch takes two and each Produce has one.
    try:
        if (low := buffer[position]) < 0x80:
            return low, position + 1
        if (high := buffer[position + 1]) < 0x80:
            return high << 7 | low & 0x7F, position + 2
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = buffer[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >> 32:
                    raise WireError(f"varint {value} does not fit in 32 bits")
                return value, position + index + 1
    except IndexError:
        raise WireError("varint reaches past the end") from None
    raise WireError(f"varint is longer than {MAX_VARINT_BYTES} bytes")


def unsigned_varint(value: int) -> bytes:
    """Encode an unsigned 32-bit number.

    Raises:
        ValueError: it is negative or does not fit.
    """
    # Fast path: most lengths take one byte, the sizes of common batches two.
    if 0 <= value < 128:
        return ONE_BYTE[value]
    if 0 <= value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} does not fit in an unsigned varint")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# --- Tagged fields ---

NO_TAGS: Final = b"\0"
"""The count of tagged fields of a struct that has none."""

MAX_TAGS: Final = 100
"""Tagged fields of one struct. Kafka's own have under ten, known and unknown ones; Kafka 4.4 takes 10,000. So few are
skipped in one turn, in the header of a request too, which is read before there could be any."""


def read_tag_count(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """Read how many tagged fields follow; return that, and the position of the first.

    Raises:
        WireError: it reaches past the end, or there are more than ``MAX_TAGS``.
    """
    count, position = read_unsigned_varint(buffer, position)
    if count > MAX_TAGS:
        raise WireError(f"{count} tagged fields; a struct may have {MAX_TAGS}")
    return count, position


def read_tag(buffer: ReadableBuffer, position: int, previous: int) -> tuple[int, int, int]:
    """Read the head of a tagged field; return its tag, its end, and where its value begins.

    Raises:
        WireError: it reaches past the end, or tags do not ascend.
    """
    tag, position = read_unsigned_varint(buffer, position)
    length, position = read_unsigned_varint(buffer, position)
    if tag <= previous:
        raise WireError(f"tag {tag} comes after tag {previous}")
    end = position + length
    if end > len(buffer):
        raise WireError(f"tag {tag} reaches past the end")
    return tag, end, position


def skip_tags(buffer: ReadableBuffer, position: int, count: int) -> int:
    """Return the position after ``count`` tagged fields of which none is known; errors as ``read_tag``."""
    tag = -1
    for _ in range(count):
        tag, position, _ = read_tag(buffer, position, tag)
    return position


# --- Offsets and epochs ---

NO_OFFSET: Final = -1
"""Stands for "none" in a field that has an offset."""

NO_BROKER_EPOCH: Final = -1
"""Stands for "none" in place of the epoch of a broker's registration."""

# --- Uuids ---

UUID_BYTES: Final = 16

NO_UUID: Final = bytes(UUID_BYTES)
"""Stands for "none" wherever a uuid is asked for."""

RESERVED_UUIDS: Final = frozenset((NO_UUID, bytes(15) + b"\1"))
"""Never given to anything: "none", and the id of the metadata topic."""


def uuid_text(uuid: bytes) -> str:
    """Return the text by which Kafka shows a uuid: base64 for URLs, 22 characters, no padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> bytes:
    """Return the uuid that ``uuid_text`` wrote.

    Raises:
        ValueError: it is not 16 bytes in that form.
    """
    try:
        uuid = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a uuid: {error}") from None
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} is not a uuid: {len(uuid)} bytes instead of {UUID_BYTES}")
    return uuid
