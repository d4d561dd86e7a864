"""The reader of one message in one version, as plain Python.

One function reads the whole message, structs in arrays included, so that the position and the budget are local
variables. It sets every field of every object it makes, because it makes them without their constructors. Neighbours
of fixed size are read by one ``struct`` call, and a length below 128 without any call.

What protects the broker stands in the generated lines themselves: a null where there may be none, a length beyond the
end, more elements than bytes, more tagged fields than a struct may have, more objects than the budget. Reading past the
end in a fixed-size field raises ``IndexError`` or ``struct.error``, which ``codec.decode`` turns into ``WireError``.

Source: Kafka's MessageDataGenerator for the order of things; KIP-482; KIP-893.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, Final

from kafka_wire.emit_source import LEGACY_LENGTH_CODES, TURN_BYTES, TURN_ELEMENTS, Emitter
from kafka_wire.errors import WireError
from kafka_wire.limits import MAX_STRING_BYTES
from kafka_wire.primitives import (
    NULL_STRUCT,
    TAGGED_NULL_STRUCT,
    Fixed,
    Sized,
    read_tag,
    read_tag_count,
    read_unsigned_varint,
    skip_tags,
)
from kafka_wire.schema import ArrayOf, Field, Request, StructOf, WireType, fields_of

MAX_ELEMENTS: Final = 1_000_000
"""Array elements and tagged fields in one message, all together. A request of Kafka's size limit (100 MB) could
otherwise hold a hundred million one-byte elements, each of which becomes a Python object."""

MIN_ELEMENT_HEAP_BYTES: Final = 64
"""What an element is charged at least, so that ``MAX_HEAP_BYTES`` also bounds their number."""

MIN_REQUEST_ELEMENT_HEAP_BYTES: Final = 256
"""The same in a request, which has objects made for each of them while it is answered. So a request has at most 250,000
elements, ten times the partitions of a large broker, and what the interpreter does to all of them in one step, as to
resize a dictionary, takes some milliseconds."""

MAX_HEAP_BYTES: Final = MAX_ELEMENTS * MIN_ELEMENT_HEAP_BYTES
"""What the objects of one message may cost at most, by estimate."""

BASE_HEAP_BYTES: Final = 16 << 20
"""What they may cost in any case: some 50,000 partitions, more than one honest request names."""

HEAP_BYTES_PER_REQUEST_BYTE: Final = 4
"""What they may cost beyond that. Large honest requests consist of records, which cost little here; one made of
tiny elements costs fifty bytes of heap for each byte of its own."""

# Estimates of CPython's objects on 64-bit machines, for the budget. The contents of strings and bytes are not counted:
# they are bounded by the frame itself.
_OBJECT_BYTES: Final = 40
_SLOT_BYTES: Final = 8
_NUMBER_BYTES: Final = 32
_LIST_BYTES: Final = 88
_SIZED_BYTES: Final = {"string": 56, "bytes": 40, "records": 200}

_CONTENTS: Final = {
    "string": "str(buf[pos:end], 'utf-8')",
    "bytes": "bytes(buf[pos:end])",
    "records": "buf[pos:end]",
}


def emit_reader(cls: type[Any], version: int, flexible: bool, *, in_turns: bool = False) -> Callable[..., Any]:
    """Return the function that reads a ``cls`` at a position, and the position after it; in turns, a generator."""
    emitter = _ReaderEmitter(version, flexible, min_element_bytes=min_element_bytes(cls), in_turns=in_turns)
    source = emitter.source
    name = f"read_{cls.__name__}_v{version}"
    with source.block(f"def {name}(buf, pos):"):
        source.begin_turns()
        source.line("size = len(buf)")
        source.line(f"heap = {BASE_HEAP_BYTES} + {HEAP_BYTES_PER_REQUEST_BYTE} * size")
        with source.block(f"if heap > {MAX_HEAP_BYTES}:"):
            source.line(f"heap = {MAX_HEAP_BYTES}")
        emitter.struct(cls, "message")
        emitter.flush()
        source.line("return message, pos")
    return source.function(name, f"<kafka_wire reader of {cls.__name__} v{version}{source.suffix}>")


def min_element_bytes(cls: type[Any]) -> int:
    """What an element in a message of this class is charged at least."""
    return MIN_REQUEST_ELEMENT_HEAP_BYTES if issubclass(cls, Request) else MIN_ELEMENT_HEAP_BYTES


class _ReaderEmitter(Emitter):
    """Writes the lines that read values."""

    error = WireError

    def __init__(self, version: int, flexible: bool, *, min_element_bytes: int, in_turns: bool) -> None:
        super().__init__(version, flexible, in_turns=in_turns)
        self.min_element_bytes = min_element_bytes
        self.source.globals.update(
            new=object.__new__,
            BytesIO=io.BytesIO,
            unpack_from=struct.unpack_from,
            read_unsigned_varint=read_unsigned_varint,
            read_tag=read_tag,
            read_tag_count=read_tag_count,
            skip_tags=skip_tags,
        )

    def flush(self) -> None:
        """Read the fixed-size values that are waiting, before anything that needs the position."""
        if not self._fixed:
            return
        codes = "".join(code for code, _ in self._fixed)
        targets = "".join(f"{target}, " for _, target in self._fixed)
        self.source.line(f"{targets}= {self.source.unpack(codes)}(buf, pos)")
        self.source.line(f"pos += {struct.calcsize('>' + codes)}")
        self._fixed.clear()

    def charge(self, count: str, cost: int, who_makes: str) -> None:
        """Take what ``count`` elements cost from the heap budget, before the first of them is read."""
        self.source.line(f"heap -= {count} * {cost}")
        self.refuse("heap < 0", f"{who_makes} the message too expensive to read")

    # --- Structs ---

    def struct(self, cls: type[Any], target: str) -> None:
        """Make an object and read its fields."""
        # Without ``__init__``, which would be one more call for each object: the lines that follow set every slot.
        self.source.line(f"{target} = new({self.source.constant(cls.__name__, cls)})")
        tagged: list[Field] = []
        for each in fields_of(cls):
            slot = f"{target}.{each.name}"
            where = f"{cls.__name__}.{each.name}"
            if self.version not in each.versions:
                self.default(each, slot)
            elif self.version in each.tagged:
                self.default(each, slot)
                tagged.append(each)
            else:
                self.value(each.type, slot, where, nullable=self.version in each.nullable)
        if tagged and not self.flexible:
            raise TypeError(f"{cls.__name__}: version {self.version} is not flexible but has tagged fields")
        if self.flexible:
            self.flush()
            self.tags(cls, tagged, target)

    def default(self, each: Field, slot: str) -> None:
        """Set a field that this version lacks, or that may come as a tag."""
        if each.factory is None:
            expression = self.source.constant(f"default_{each.name}", each.default)
        elif each.factory is list:
            expression = "[]"
        elif isinstance(each.type, StructOf) and all(inner.factory is None for inner in fields_of(each.type.cls)):
            expression = self.default_struct(each.type.cls, each.factory())
        else:
            expression = f"{self.source.constant(f'default_{each.name}', each.factory)}()"
        self.source.line(f"{slot} = {expression}")

    def default_struct(self, cls: type[Any], default: Any) -> str:
        """Make a struct with the values of ``default``, without its constructor; return its variable."""
        item = f"{cls.__name__.lower()}_{self.source.number()}"
        self.source.line(f"{item} = new({self.source.constant(cls.__name__, cls)})")
        for each in fields_of(cls):
            value = self.source.constant(f"default_{each.name}", getattr(default, each.name))
            self.source.line(f"{item}.{each.name} = {value}")
        return item

    def tags(self, cls: type[Any], tagged: list[Field], target: str) -> None:
        """Read the tagged fields after a struct: known ones into their slots, others away."""
        source = self.source
        number = source.number()
        tags, tag, end = f"tags_{number}", f"tag_{number}", f"end_{number}"
        # Fast path: no tags at all, the byte 0, behind nearly every struct.
        with source.block("if not buf[pos]:"):
            source.line("pos += 1")
        with source.block("else:"):
            source.line(f"{tags}, pos = read_tag_count(buf, pos)")
            self.charge(tags, self.min_element_bytes, f"{cls.__name__} has tagged fields that make")
            source.turn(tags)
            if not tagged:
                source.line(f"pos = skip_tags(buf, pos, {tags})")
                return
            # ``read_tag`` refuses a tag that is not above the one before, so none comes twice (KIP-482).
            source.line(f"{tag} = -1")
            with source.block(f"while {tags}:"):
                source.line(f"{tags} -= 1")
                source.line(f"{tag}, {end}, pos = read_tag(buf, pos, {tag})")
                for index, each in enumerate(tagged):
                    where = f"{cls.__name__}.{each.name}"
                    with self.block(f"{'elif' if index else 'if'} {tag} == {each.tag}:"):
                        self.tagged_value(each, f"{target}.{each.name}", where)
                        self.flush()
                        self.refuse(f"pos != {end}", f"{where} does not fill its tag")
                with source.block("else:"):
                    source.line(f"pos = {end}")

    def tagged_value(self, each: Field, target: str, where: str) -> None:
        """Read what a tag announced."""
        nullable = self.version in each.nullable
        if nullable and isinstance(each.type, StructOf):
            self.nullable_struct(each.type.cls, target, null=TAGGED_NULL_STRUCT)
        else:
            self.value(each.type, target, where, nullable=nullable)

    # --- Values ---

    def value(self, wire_type: WireType, target: str, where: str, *, nullable: bool) -> None:
        """Read a value into ``target``."""
        match wire_type:
            case Fixed(code=code):
                if nullable:
                    raise TypeError(f"{where}: {wire_type.kafka_type} cannot be null")
                self._fixed.append((code, target))
            case Sized(kafka_type):
                self.length("n", LEGACY_LENGTH_CODES[kafka_type], where, nullable=nullable)
                self.unless_null("n", target, nullable, lambda: self.contents(kafka_type, target, where))
            case ArrayOf(element):
                count = f"count_{self.source.number()}"
                self.length(count, "i", where, nullable=nullable)
                self.unless_null(count, target, nullable, lambda: self.elements(element, count, target, where))
            case StructOf(cls):
                self.whole_struct(cls, target, nullable)

    def unless_null(self, length: str, target: str, nullable: bool, read: Callable[[], None], null: int = -1) -> None:
        """Read what a length announces, or set None when it is ``null`` or less and that is allowed."""
        if not nullable:
            read()
            return
        with self.source.block(f"if {length} <= {null}:"):
            self.source.line(f"{target} = None")
        with self.block("else:"):
            read()

    def whole_struct(self, cls: type[Any], target: str, nullable: bool) -> None:
        """Read a struct into ``target``."""
        if nullable:
            self.nullable_struct(cls, target, null=NULL_STRUCT)
            return
        item = f"{cls.__name__.lower()}_{self.source.number()}"
        self.struct(cls, item)
        self.source.line(f"{target} = {item}")

    def nullable_struct(self, cls: type[Any], target: str, *, null: int) -> None:
        """Read a struct that stands behind a byte, which is ``null`` if there is none."""
        self._fixed.append(("b", "marker"))
        self.flush()
        self.unless_null("marker", target, True, lambda: self.whole_struct(cls, target, nullable=False), null)

    def length(self, name: str, legacy_code: str, where: str, *, nullable: bool) -> None:
        """Read a length or count into the variable ``name``; -1 is null."""
        source = self.source
        null = f"{where} is null, which version {self.version} does not allow"
        if not self.flexible:
            self._fixed.append((legacy_code, name))
            self.flush()
            self.refuse(f"{name} < {-1 if nullable else 0}", f"{where} has the length {{{name}}}")
            return
        self.flush()
        # Fast path: a compact length below 127 is one byte, read without a call. For a longer varint the generated code
        # steps back and reads it again from its first byte.
        source.line(f"{name} = buf[pos] - 1")
        source.line("pos += 1")
        with source.block(f"if {name} > 126:" if nullable else f"if not -1 < {name} < 127:"):
            source.line(f"{name}, pos = read_unsigned_varint(buf, pos - 1)")
            source.line(f"{name} -= 1")
            if not nullable:
                self.refuse(f"{name} < 0", null)
            if legacy_code == "h":
                self.refuse(f"{name} > {MAX_STRING_BYTES}", f"{where} has {{{name}}} bytes, too many for a string")

    def contents(self, kafka_type: str, target: str, where: str) -> None:
        """Take ``n`` bytes."""
        # Checked, because a slice past the end is no IndexError but silently shorter.
        self.source.line("end = pos + n")
        self.refuse("end > size", f"{where} reaches past the end")
        if self.source.in_turns and kafka_type == "bytes":
            with self.source.block(f"if n > {TURN_BYTES}:"):
                self.large_bytes(target)
            with self.source.block("else:"):
                self.source.line(f"{target} = {_CONTENTS[kafka_type]}")
        else:
            self.source.line(f"{target} = {_CONTENTS[kafka_type]}")
        if kafka_type != "records":  # a view, for which nothing is copied
            self.source.turn_bytes("n")
        self.source.line("pos = end")

    def large_bytes(self, target: str) -> None:
        """Copy the bytes up to ``end`` in turns. A BytesIO hands its buffer out without another copy."""
        source = self.source
        source.line("copy = BytesIO()")
        with source.block(f"for pos in range(pos, end, {TURN_BYTES}):"):
            source.line(f"copy.write(buf[pos : min(pos + {TURN_BYTES}, end)])")
            source.line("yield")
        source.line(f"{target} = copy.getvalue()")

    def elements(self, element: WireType, count: str, target: str, where: str) -> None:
        """Read the elements of an array, after checking that they fit in the remaining bytes and in the heap budget."""
        # Both checks precede the first element: four bytes of count must not make the broker build millions of objects.
        smallest = minimal_bytes(element, self.version, self.flexible)
        cost = max(_SLOT_BYTES + heap_bytes(element, self.version), self.min_element_bytes)
        self.refuse(
            f"{count} * {smallest} > size - pos", f"{where} has {{{count}}} elements, more than there are bytes"
        )
        self.charge(count, cost, f"{where} makes")
        if isinstance(element, Fixed):
            self.fixed_elements(element, count, target)
            return
        number = self.source.number()
        items, item = f"items_{number}", f"item_{number}"
        self.source.line(f"{target} = {items} = []")
        with self.block(f"while {count}:"):
            self.source.line(f"{count} -= 1")
            self.source.turn()
            if isinstance(element, StructOf):
                self.struct(element.cls, item)
            else:
                self.value(element, item, where, nullable=False)
            self.flush()
            self.source.line(f"{items}.append({item})")

    def fixed_elements(self, element: Fixed, count: str, target: str) -> None:
        """Read an array of numbers or uuids at once; in turns, a part at a time."""
        if self.source.in_turns:
            number = self.source.number()
            whole, items, part = count, f"items_{number}", f"part_{number}"
            self.source.line(f"{target} = {items} = []")
            with self.source.block(f"while {whole}:"):
                self.source.line(f"{part} = min({whole}, {TURN_ELEMENTS})")
                self.source.line(f"{whole} -= {part}")
                self.fixed_part(element, part, f"{items} +=")
                self.source.turn(part)
        else:
            self.fixed_part(element, count, f"{target} =")

    def fixed_part(self, element: Fixed, count: str, assign: str) -> None:
        if element.kafka_type == "uuid":
            self.source.line(f"{assign} [bytes(buf[at : at + 16]) for at in range(pos, pos + 16 * {count}, 16)]")
        else:
            self.source.line(f"{assign} list(unpack_from(f'>{{{count}}}{element.code}', buf, pos))")
        self.source.line(f"pos += {element.size} * {count}")


# --- Estimates ---


def minimal_bytes(wire_type: WireType, version: int, flexible: bool) -> int:
    """Return how many bytes the smallest value of a type takes; at least 1, so that a count is always bounded."""
    match wire_type:
        case Fixed():
            return wire_type.size
        case Sized(kafka_type):
            return 1 if flexible else struct.calcsize(">" + LEGACY_LENGTH_CODES[kafka_type])
        case ArrayOf():
            return 1 if flexible else 4
        case StructOf(cls):
            own = [each for each in fields_of(cls) if version in each.versions and version not in each.tagged]
            sizes = (_minimal_field_bytes(each, version, flexible) for each in own)
            # One more where it is flexible: the count of its tagged fields.
            return max(sum(sizes) + flexible, 1)


def _minimal_field_bytes(each: Field, version: int, flexible: bool) -> int:
    if isinstance(each.type, StructOf) and version in each.nullable:
        return 1
    return minimal_bytes(each.type, version, flexible)


def heap_bytes(wire_type: WireType, version: int) -> int:
    """Estimate what a value costs in memory, elements of arrays not included."""
    match wire_type:
        case Fixed():
            return _NUMBER_BYTES
        case Sized(kafka_type):
            return _SIZED_BYTES[kafka_type]
        case ArrayOf():
            return _LIST_BYTES
        case StructOf(cls):
            own = fields_of(cls)
            values = sum(heap_bytes(each.type, version) for each in own if version in each.versions or each.factory)
            return _OBJECT_BYTES + _SLOT_BYTES * len(own) + values
