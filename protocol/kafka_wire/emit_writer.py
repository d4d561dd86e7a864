"""The writer of one message in one version, as plain Python.

One function writes the whole message as a list of pieces, which are joined at the end and before records: those go
through as chunks of their own, so that neither batches nor regions of files are ever copied. Neighbours of fixed size
are written by one ``struct`` call, and so is the empty tag buffer after them.

The writer raises ``ValueError`` (or ``struct.error`` for numbers out of range, which ``codec.encode`` turns into it)
rather than lose anything: a field at another value than its default in a version without it, unless the field is
ignorable; null where there may be none; a string too long.

Source: Kafka's MessageDataGenerator for the order of things; KIP-482; KIP-893.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from kafka_wire.emit_source import LEGACY_LENGTH_CODES, TURN_ELEMENTS, Emitter
from kafka_wire.limits import MAX_STRING_BYTES
from kafka_wire.primitives import NULL_STRUCT, ONE_BYTE, TAGGED_NULL_STRUCT, UUID_BYTES, Fixed, Sized, unsigned_varint
from kafka_wire.schema import ArrayOf, Field, StructOf, WireType, fields_of

_ZERO_BYTE: Final = "x"
"""The ``struct`` code that writes a zero and takes no value."""


def emit_writer(cls: type[Any], version: int, flexible: bool, *, in_turns: bool = False) -> Callable[[Any], Any]:
    """Return the function that writes a ``cls`` as a list of chunks; in turns, a generator that returns it."""
    emitter = _WriterEmitter(version, flexible, in_turns=in_turns)
    source = emitter.source
    name = f"write_{cls.__name__}_v{version}"
    with source.block(f"def {name}(message):"):
        source.begin_turns()
        source.line("chunks = []")
        source.line("pieces = []")
        source.line("append = pieces.append")
        emitter.struct(cls, "message")
        emitter.flush()
        with source.block("if pieces:"):
            source.line("chunks.append(b''.join(pieces))")
        source.line("return chunks")
    return source.function(name, f"<kafka_wire writer of {cls.__name__} v{version}{source.suffix}>")


def _long_string(size: int) -> bytes:
    """Return the compact length of a string too long for a single byte."""
    if size > MAX_STRING_BYTES:
        raise ValueError(f"a string of {size} bytes is longer than {MAX_STRING_BYTES}")
    return unsigned_varint(size + 1)


class _WriterEmitter(Emitter):
    """Writes the lines that write values."""

    error = ValueError

    def __init__(self, version: int, flexible: bool, *, in_turns: bool) -> None:
        super().__init__(version, flexible, in_turns=in_turns)
        self.source.globals.update(
            ONE_BYTE=ONE_BYTE, unsigned_varint=unsigned_varint, long_string=_long_string, pack=struct.pack
        )
        self._append = "append"

    def flush(self) -> None:
        """Write the fixed-size values that are waiting, before anything else is appended."""
        if not self._fixed:
            return
        # The zero bytes (empty tag buffers) are pad codes of the same call, so they cost nothing extra.
        codes = "".join(code for code, _ in self._fixed)
        values = ", ".join(value for code, value in self._fixed if code != _ZERO_BYTE)
        piece = f"{self.source.pack(codes)}({values})" if values else repr(bytes(len(codes)))
        self.source.line(f"{self._append}({piece})")
        self._fixed.clear()

    # --- Structs ---

    def struct(self, cls: type[Any], item: str) -> None:
        """Write the fields of an object."""
        tagged: list[Field] = []
        for each in fields_of(cls):
            slot = f"{item}.{each.name}"
            where = f"{cls.__name__}.{each.name}"
            if self.version not in each.versions:
                self.absent(each, slot, where)
            elif self.version in each.tagged:
                tagged.append(each)
            else:
                self.value(each.type, slot, where, nullable=self.version in each.nullable)
        if tagged and not self.flexible:
            raise TypeError(f"{cls.__name__}: version {self.version} is not flexible but has tagged fields")
        if tagged:
            self.flush()
            self.tags(cls, tagged, item)
        elif self.flexible:
            self._fixed.append((_ZERO_BYTE, ""))

    def absent(self, each: Field, slot: str, where: str) -> None:
        """Refuse to lose a field that this version cannot carry."""
        if not each.ignorable:
            condition = self.differs(each.type, slot, each.new_default(), each.name)
            self.refuse(condition, f"{where} cannot be written in version {self.version}: {{{slot}!r}}")

    def differs(self, wire_type: WireType, slot: str, default: Any, name: str) -> str:
        """Return the condition under which a value is not the default; structs are compared field by field."""
        if default is None:
            return f"{slot} is not None"
        if isinstance(wire_type, StructOf):
            parts = (
                self.differs(inner.type, f"{slot}.{inner.name}", getattr(default, inner.name), inner.name)
                for inner in fields_of(wire_type.cls)
            )
            return " or ".join((f"{slot} is None", *parts))
        if default == []:
            return f"{slot} != []"
        return f"{slot} != {self.source.constant(f'default_{name}', default)}"

    def tags(self, cls: type[Any], tagged: list[Field], item: str) -> None:
        """Write the tagged fields that are not at their defaults, in ascending order."""
        source = self.source
        number = source.number()
        count, content = f"tags_{number}", f"tagged_{number}"
        source.line(f"{count} = 0")
        source.line(f"{content} = b''")
        # Ascending tags are required (KIP-482). A field at its default is left out, as Kafka's writer does, so that
        # readers that do not know the tag need not skip it.
        for each in sorted(tagged, key=lambda each: each.tag or 0):
            slot = f"{item}.{each.name}"
            with source.block(f"if {self.differs(each.type, slot, each.new_default(), each.name)}:"):
                source.line(f"{count} += 1")
                value = self.tagged_value(each, slot, f"{cls.__name__}.{each.name}")
                tag = source.constant("", unsigned_varint(each.tag or 0))
                source.line(f"{content} += {tag} + unsigned_varint(len({value})) + {value}")
        with source.block(f"if {count}:"):
            source.line(f"{self._append}(unsigned_varint({count}))")
            source.line(f"{self._append}({content})")
        with source.block("else:"):
            source.line(f"{self._append}(b'\\0')")

    def tagged_value(self, each: Field, slot: str, where: str) -> str:
        """Write a value aside, because its size comes first; return the variable that holds its bytes."""
        source = self.source
        number = source.number()
        # The lines generated inside append to a list of their own, until ``_append`` is set back.
        outer, self._append = self._append, f"append_{number}"
        source.line(f"pieces_{number} = []")
        source.line(f"{self._append} = pieces_{number}.append")
        nullable = self.version in each.nullable
        if nullable and isinstance(each.type, StructOf):
            self.nullable_struct(each.type.cls, slot, where, null=TAGGED_NULL_STRUCT)
        else:
            self.value(each.type, slot, where, nullable=nullable)
        self.flush()
        self._append = outer
        source.line(f"value_{number} = b''.join(pieces_{number})")
        return f"value_{number}"

    # --- Values ---

    def value(self, wire_type: WireType, slot: str, where: str, *, nullable: bool) -> None:
        """Write the value of the expression ``slot``."""
        match wire_type:
            case Fixed():
                self.fixed(wire_type, slot, where)
            case Sized("string"):
                self.string(slot, where, nullable)
            case Sized(kafka_type):
                self.sized(kafka_type, slot, where, nullable)
            case ArrayOf(element):
                self.array(element, slot, where, nullable)
            case StructOf(cls):
                self.whole_struct(cls, slot, where, nullable)

    def fixed(self, wire_type: Fixed, slot: str, where: str) -> None:
        """Let a fixed-size value wait; a uuid is measured first, because ``struct`` would cut or fill it."""
        if wire_type.kafka_type == "uuid":
            self.refuse(f"len({slot}) != {UUID_BYTES}", f"{where} is not {UUID_BYTES} bytes: {{{slot}!r}}")
        self._fixed.append((wire_type.code, slot))

    def take(self, name: str, slot: str, where: str, nullable: bool) -> None:
        """Put a value into a variable, refusing null if that is not allowed."""
        self.source.line(f"{name} = {slot}")
        if not nullable:
            self.refuse(f"{name} is None", f"{where} is None, which version {self.version} does not allow")

    def length(self, name: str, legacy_code: str) -> None:
        """Write a length or count that the variable ``name`` holds; -1 is null."""
        if not self.flexible:
            self._fixed.append((legacy_code, name))
            self.flush()
            return
        self.flush()
        # Fast path: compact lengths below 127 come from a table. -1, for null, finds the byte 0 there.
        long = f"long_string({name})" if legacy_code == "h" else f"unsigned_varint({name} + 1)"
        self.source.line(f"{self._append}(ONE_BYTE[{name} + 1] if {name} < 127 else {long})")

    def string(self, slot: str, where: str, nullable: bool) -> None:
        """Write a string."""
        source = self.source
        self.take("value", slot, where, nullable)
        if nullable:
            with source.block("if value is None:"):
                source.line("value = b''")
                source.line("n = -1")
            with source.block("else:"):
                self.encoded_string()
        else:
            self.encoded_string()
        self.length("n", "h")
        source.line(f"{self._append}(value)")

    def encoded_string(self) -> None:
        self.source.line("value = value.encode()")
        self.source.line("n = len(value)")
        self.source.turn_bytes("n")

    def sized(self, kafka_type: str, slot: str, where: str, nullable: bool) -> None:
        """Write bytes or records; records become a chunk of their own."""
        source = self.source
        self.take("value", slot, where, nullable)
        source.line("n = -1 if value is None else len(value)" if nullable else "n = len(value)")
        self.length("n", LEGACY_LENGTH_CODES[kafka_type])
        with source.block("if n > 0:"):
            if kafka_type == "bytes":
                source.line(f"{self._append}(value)")
                source.turn_bytes("n")
                return
            if self._append != "append":
                raise TypeError(f"{where}: records cannot be tagged")
            source.line("chunks.append(b''.join(pieces))")
            source.line("pieces.clear()")
            source.line("chunks.append(value)")

    def array(self, element: WireType, slot: str, where: str, nullable: bool) -> None:
        """Write a count and the elements."""
        source = self.source
        number = source.number()
        items, item = f"items_{number}", f"item_{number}"
        self.take(items, slot, where, nullable)
        source.line(f"n = -1 if {items} is None else len({items})" if nullable else f"n = len({items})")
        self.length("n", "i")
        if isinstance(element, Fixed):
            with source.block("if n > 0:"):
                self.fixed_elements(element, items, where)
            return
        with self.block(f"for {item} in {items} or ():" if nullable else f"for {item} in {items}:"):
            self.turn("1")
            if isinstance(element, StructOf):
                self.struct(element.cls, item)
            else:
                self.value(element, item, where, nullable=False)

    def turn(self, elements: str) -> None:
        """Count elements, and yield when there were enough; what was written so far becomes a chunk before that.

        The many pieces of a large message are never joined at once. What is written aside stays as it is: its size
        comes first.
        """
        is_aside = self._append != "append"
        before = None if is_aside else "chunks.append(b''.join(pieces)); pieces.clear()"
        self.source.turn(elements, before)

    def fixed_elements(self, element: Fixed, items: str, where: str) -> None:
        """Write an array of numbers or uuids at once; in turns, a part at a time."""
        if self.source.in_turns:
            part = f"part_{self.source.number()}"
            first = f"range(0, len({items}), {TURN_ELEMENTS})"
            with self.source.block(f"for {part} in ({items}[at : at + {TURN_ELEMENTS}] for at in {first}):"):
                self.source.line(f"n = len({part})")
                self.turn("n")
                self.fixed_part(element, part, where)
        else:
            self.fixed_part(element, items, where)

    def fixed_part(self, element: Fixed, items: str, where: str) -> None:
        if element.kafka_type == "uuid":
            self.refuse(f"any(len(uuid) != {UUID_BYTES} for uuid in {items})", f"{where} has a uuid of another size")
            self.source.line(f"{self._append}(b''.join({items}))")
        else:
            # One call for the whole array; ``struct`` keeps the formats it compiled last.
            self.source.line(f"{self._append}(pack(f'>{{n}}{element.code}', *{items}))")

    def whole_struct(self, cls: type[Any], slot: str, where: str, nullable: bool) -> None:
        """Write a struct."""
        if nullable:
            self.nullable_struct(cls, slot, where, null=NULL_STRUCT)
            return
        item = f"{cls.__name__.lower()}_{self.source.number()}"
        self.take(item, slot, where, nullable)
        self.struct(cls, item)

    def nullable_struct(self, cls: type[Any], slot: str, where: str, *, null: int) -> None:
        """Write a struct behind a byte that is 1, or ``null`` alone."""
        item = f"{cls.__name__.lower()}_{self.source.number()}"
        self.take(item, slot, where, True)
        with self.block(f"if {item} is None:"):
            self._fixed.append(("b", str(null)))
        with self.block("else:"):
            self._fixed.append(("b", "1"))
            self.struct(cls, item)
