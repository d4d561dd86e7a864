"""Messages that hold the most elements for their bytes: one for each construct of the wire whose count a client gives.

Those constructs are arrays, the tagged fields behind a struct, and the bytes of strings and byte fields, of which
``BYTES_PER_ELEMENT`` count as an element. Everything around the repeated one is as small as it may be, so that its
elements, of one to three bytes, are all that there is. They are made of bytes rather than encoded: no writer writes a
tag that it does not know, or a million elements from one.

Source: KIP-482 for tagged fields and the compact forms, KIP-893 for structs that may be null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import attrs

from kafka_wire.emit_source import BYTES_PER_ELEMENT
from kafka_wire.limits import MAX_STRING_BYTES
from kafka_wire.primitives import NULL_STRUCT, Fixed, Sized, unsigned_varint
from kafka_wire.schema import ArrayOf, Field, StructOf, WireType, fields_of

FIRST_UNKNOWN_TAG: Final = 1000
"""Kafka's tags have one digit."""

LEGACY_LENGTH_CODES: Final = {"string": ">h", "bytes": ">i", "records": ">i"}

LETTER: Final = "\N{SNOWMAN}".encode()
"""Of three bytes, which take longer to read than as many of ASCII."""


@attrs.frozen
class DenseMessage:
    """A message that repeats one construct; ``construct`` says which, ``elements`` how many of it there are."""

    construct: str
    data: bytes
    elements: int


@attrs.frozen
class DenseMaker:
    """Makes the messages of one version.

    The innermost construct has ``count`` elements, and each array around it ``breadth``. With ``long`` fields the
    innermost one is a string or a byte field of the length of the longest string.
    """

    version: int
    flexible: bool
    count: int
    breadth: int = 1
    long: bool = False

    # --- Values in which one construct is repeated ---

    def structs(self, cls: type[Any]) -> Iterator[DenseMessage]:
        """Yield a struct for each construct in it."""
        own = [each for each in fields_of(cls) if self.version in each.versions]
        plain = [each for each in own if self.version not in each.tagged]
        smallest = [self.smallest_field(each) for each in plain]
        end = b"\0" if self.flexible else b""
        for index, each in enumerate(plain):
            before, after = b"".join(smallest[:index]), b"".join(smallest[index + 1 :])
            nullable_struct = isinstance(each.type, StructOf) and self.version in each.nullable
            for inner in self.values(each.type):
                marker = struct.pack("b", -NULL_STRUCT) if nullable_struct else b""
                yield DenseMessage(
                    f"{each.name}.{inner.construct}", before + marker + inner.data + after + end, inner.elements
                )
        if self.flexible and not self.long:
            yield DenseMessage("tags", b"".join(smallest) + dense_tags(self.count), self.count)
        for each in own:
            if each not in plain:
                yield from self.tagged(each, b"".join(smallest))

    def tagged(self, each: Field, before: bytes) -> Iterator[DenseMessage]:
        assert each.tag is not None
        marker = b"\1" if isinstance(each.type, StructOf) and self.version in each.nullable else b""
        for inner in self.values(each.type):
            value = marker + inner.data
            head = b"\1" + unsigned_varint(each.tag) + unsigned_varint(len(value))
            yield DenseMessage(f"{each.name}.{inner.construct}", before + head + value, inner.elements)

    def values(self, wire_type: WireType) -> Iterator[DenseMessage]:
        """Yield a value of ``wire_type`` for each construct in it."""
        match wire_type:
            case ArrayOf(element):
                if not self.long:
                    yield DenseMessage("elements", self.array(self.smallest(element), self.count), self.count)
                for inner in self.values(element):
                    yield attrs.evolve(
                        inner, data=self.array(inner.data, self.breadth), elements=self.breadth * inner.elements
                    )
            case StructOf(cls):
                yield from self.structs(cls)
            case Sized(kafka_type) if self.long and kafka_type != "records":  # of which nothing is copied
                text = LETTER * (MAX_STRING_BYTES // len(LETTER))
                yield DenseMessage("bytes", self.length(kafka_type, len(text)) + text, len(text) // BYTES_PER_ELEMENT)

    # --- The smallest values ---

    def smallest(self, wire_type: WireType) -> bytes:
        match wire_type:
            case Fixed():
                return bytes(wire_type.size)
            case Sized(kafka_type):
                return self.length(kafka_type, 0)
            case ArrayOf():
                return self.array(b"", 0)
            case StructOf(cls):
                own = (e for e in fields_of(cls) if self.version in e.versions and self.version not in e.tagged)
                return b"".join(map(self.smallest_field, own)) + (b"\0" if self.flexible else b"")

    def smallest_field(self, each: Field) -> bytes:
        if isinstance(each.type, StructOf) and self.version in each.nullable:
            return struct.pack("b", NULL_STRUCT)
        return self.smallest(each.type)

    def length(self, kafka_type: str, size: int) -> bytes:
        return unsigned_varint(size + 1) if self.flexible else struct.pack(LEGACY_LENGTH_CODES[kafka_type], size)

    def array(self, element: bytes, count: int) -> bytes:
        return (unsigned_varint(count + 1) if self.flexible else struct.pack(">i", count)) + element * count


def dense_tags(count: int) -> bytes:
    """``count`` tagged fields that nobody knows, each of them empty."""
    tags = (unsigned_varint(FIRST_UNKNOWN_TAG + number) + b"\0" for number in range(count))
    return unsigned_varint(count) + b"".join(tags)


def dense_messages(
    kind: Any, version: int, count: int, breadth: int = 1, *, long: bool = False
) -> Iterator[DenseMessage]:
    """Yield a message of ``kind`` for each construct in it; ``DenseMaker`` says what the numbers mean."""
    flexible = kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM
    return DenseMaker(version, flexible, count, breadth, long).structs(kind)
