"""Avro in binary encoding, with a schema that the reader gives, behind a registry's prefix or without it.

Written here rather than taken from a library: the values come from any producer, and the reader in C that there is
follows nested records until the stack of the process ends. Logical types are shown as what they are stored as.

Source: the Avro specification, "Schema declaration" and "Binary encoding".
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from broker_admin.decoders.decoded import MAX_NESTING, ElementBudget, NotDecodable
from kafka_wire.limits import MAX_VARLONG_BYTES

MAX_SCHEMA_CHARACTERS = 64 * 1024
"""Of a schema; ones with hundreds of fields are half as long."""

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class SchemaError(ValueError):
    """The text is no Avro schema."""


class AvroReader:
    """The bytes of one value, and how far they were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.depth = 0
        self.budget = ElementBudget()

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise NotDecodable(f"{size} bytes at byte {self.position}, where {len(self.data) - self.position} are left")
        self.position, start = end, self.position
        return self.data[start:end]

    def long(self) -> int:
        number = 0
        for index in range(MAX_VARLONG_BYTES):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise NotDecodable(f"a number of more than {MAX_VARLONG_BYTES} bytes")


Read: TypeAlias = Callable[[AvroReader], Any]


def finite(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def read_boolean(reader: AvroReader) -> bool:
    return reader.take(1) != b"\0"


PRIMITIVES: dict[str, Read] = {
    "null": lambda reader: None,
    "boolean": read_boolean,
    "int": AvroReader.long,
    "long": AvroReader.long,
    "float": lambda reader: finite(_FLOAT.unpack(reader.take(4))[0]),
    "double": lambda reader: finite(_DOUBLE.unpack(reader.take(8))[0]),
    "bytes": lambda reader: reader.take(reader.long()).hex(),
    "string": lambda reader: reader.take(reader.long()).decode("utf-8", "backslashreplace"),
}


class AvroSchema:
    """A schema, compiled to closures."""

    def __init__(self, text: str) -> None:
        """Compile ``text``, a schema in JSON or the name of a primitive type.

        Raises:
            SchemaError: it is none.
        """
        if len(text) > MAX_SCHEMA_CHARACTERS:
            raise SchemaError(f"a schema has at most {MAX_SCHEMA_CHARACTERS} characters")
        self._named: dict[str, Read] = {}
        try:
            self._read = self._compile(text if text in PRIMITIVES else json.loads(text), "")
        except RecursionError:
            raise SchemaError("the schema is nested too deeply") from None
        except json.JSONDecodeError as error:
            raise SchemaError(f"the schema is no JSON: {error.msg} at character {error.pos + 1}") from None

    def decode(self, data: bytes) -> Any:
        """The value that ``data`` holds, all of it.

        Raises:
            NotDecodable: it is not one of this schema.
        """
        reader = AvroReader(data)
        value = self._read(reader)
        if reader.position < len(data):
            raise NotDecodable(f"{len(data) - reader.position} bytes left over")
        return value

    def _compile(self, schema: Any, namespace: str) -> Read:
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        if isinstance(schema, list):
            return union([self._compile(each, namespace) for each in schema])
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaError(f"{json.dumps(schema)[:60]} is no schema")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._compile(kind, namespace)
        if kind == "array":
            return blocks_of_list(self._compile(required(schema, "items"), namespace))
        if kind == "map":
            return blocks_of_map(self._compile(required(schema, "values"), namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(schema, namespace)
        return self._reference(kind, namespace)

    def _named_type(self, schema: dict[str, Any], namespace: str) -> Read:
        name = qualified(required(schema, "name", str), required({"namespace": namespace} | schema, "namespace", str))
        if schema["type"] == "fixed":
            self._named[name] = fixed(required(schema, "size", int))
        elif schema["type"] == "enum":
            self._named[name] = enumeration(required(schema, "symbols", list))
        else:
            fields: list[tuple[str, Read]] = []
            # Before its fields, which may hold the record itself.
            self._named[name] = record(fields)
            for field in required(schema, "fields", list):
                read = self._compile(required(field, "type"), name.rpartition(".")[0])
                fields.append((required(field, "name", str), read))
        return self._named[name]

    def _reference(self, name: Any, namespace: str) -> Read:
        if not isinstance(name, str):
            raise SchemaError(f"{json.dumps(name)[:60]} is no type")
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        found = self._named.get(qualified(name, namespace)) or self._named.get(name)
        if found is None:
            raise SchemaError(f"the schema names a type {name[:60]!r} that it does not declare")
        return found


def required(schema: Any, name: str, kind: type = object) -> Any:
    """The field ``name`` of a schema.

    Raises:
        SchemaError: there is none, or it is not of this type.
    """
    if not isinstance(schema, dict) or not isinstance(schema.get(name), kind) or name not in schema:
        raise SchemaError(f"{json.dumps(schema)[:60]} has no {name!r}, or a wrong one")
    return schema[name]


def qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def fixed(size: int) -> Read:
    if size < 0:
        raise SchemaError(f"a fixed of {size} bytes")
    return lambda reader: reader.take(size).hex()


def record(fields: list[tuple[str, Read]]) -> Read:
    def read(reader: AvroReader) -> dict[str, Any]:
        reader.depth += 1
        if reader.depth > MAX_NESTING:
            raise NotDecodable(f"records nested more than {MAX_NESTING} deep")
        reader.budget.take(1 + len(fields))
        value = {name: read_field(reader) for name, read_field in fields}
        reader.depth -= 1
        return value

    return read


def enumeration(symbols: list[str]) -> Read:
    def read(reader: AvroReader) -> str:
        index = reader.long()
        if not 0 <= index < len(symbols):
            raise NotDecodable(f"symbol {index} of {len(symbols)}")
        return symbols[index]

    return read


def union(branches: list[Read]) -> Read:
    def read(reader: AvroReader) -> Any:
        index = reader.long()
        if not 0 <= index < len(branches):
            raise NotDecodable(f"branch {index} of a union of {len(branches)}")
        return branches[index](reader)

    return read


def block_counts(reader: AvroReader) -> int:
    """The number of elements in the next block, 0 at the end; paid for before any is read, as some take no bytes."""
    count = reader.long()
    if count < 0:
        reader.long()  # the size of the block, for those who skip it
        count = -count
    reader.budget.take(count)
    return count


def blocks_of_list(read_item: Read) -> Read:
    def read(reader: AvroReader) -> list[Any]:
        items: list[Any] = []
        while count := block_counts(reader):
            items.extend(read_item(reader) for _ in range(count))
        return items

    return nested(read)


def blocks_of_map(read_value: Read) -> Read:
    def read(reader: AvroReader) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while count := block_counts(reader):
            for _ in range(count):
                name = PRIMITIVES["string"](reader)
                values[name] = read_value(reader)
        return values

    return nested(read)


def nested(read: Read) -> Read:
    def run(reader: AvroReader) -> Any:
        reader.depth += 1
        if reader.depth > MAX_NESTING:
            raise NotDecodable(f"values nested more than {MAX_NESTING} deep")
        value = read(reader)
        reader.depth -= 1
        return value

    return run
