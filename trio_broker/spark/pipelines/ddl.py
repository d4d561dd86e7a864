"""Reads a table's columns as Spark's SQL writes them: ``id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>``.

Spark would read them, too, but only once a JVM runs; a wrong schema should be told at once. Names may stand in
backquotes. A column that is ``NOT NULL`` must have a value in every record; in the table it is nullable as all are.

Source: Spark's SQL reference, "Data Types"; its grammar's ``colTypeList``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DECIMAL_DIGITS: Final = 38
"""What Spark, Iceberg and Delta have."""

MAX_DEPTH: Final = 50
"""Of types within types; nobody needs as many, and reading goes by recursion."""


class AtomicType(Enum):
    """Types that have no parts, by the first of their names."""

    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"


OTHER_NAMES: Final = {
    "bool": AtomicType.BOOLEAN,
    "byte": AtomicType.TINYINT,
    "short": AtomicType.SMALLINT,
    "integer": AtomicType.INT,
    "long": AtomicType.BIGINT,
    "real": AtomicType.FLOAT,
    "timestamp_ltz": AtomicType.TIMESTAMP,
}

SCALARS: Final = {**{each.value: each for each in AtomicType}, **OTHER_NAMES}


@attrs.frozen
class DecimalType:
    """A number with up to ``precision`` digits, ``scale`` of them behind the point."""

    precision: int = 10
    scale: int = 0


@attrs.frozen
class ArrayType:
    """A list."""

    element: DataType


@attrs.frozen
class MapType:
    """Values by name: keys are strings, as JSON's are."""

    value: DataType


@attrs.frozen
class StructType:
    """Fields by name."""

    fields: tuple[StructField, ...]


@attrs.frozen
class StructField:
    """A column, or a field of a struct."""

    name: str
    type: DataType
    nullable: bool = True


DataType: TypeAlias = AtomicType | DecimalType | ArrayType | MapType | StructType

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*)|(\d+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([(),<>:]))")


def parse_ddl(text: str) -> StructType:
    """Return the columns that ``text`` lists.

    Raises:
        ValueError: the text is not a list of columns, names a column twice, or a type that is not known.
    """
    reader = _DdlParser(text)
    columns = reader.fields(until="")
    if not columns:
        raise ValueError("names no column")
    return StructType(columns)


@attrs.define
class _Token:
    text: str
    position: int
    is_name: bool = False
    is_quoted: bool = False

    def is_word(self, word: str) -> bool:
        return not self.is_quoted and self.text.upper() == word


class _DdlParser:
    """Goes through the tokens, by one function for each part of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def fields(self, until: str) -> tuple[StructField, ...]:
        """Read fields with commas between, up to a token, which is read as well; ``""`` is the end."""
        fields: list[StructField] = []
        names: set[str] = set()
        while True:
            field = self._field()
            if field.name.lower() in names:
                raise ValueError(f"{field.name!r} is there twice; names differ by more than case")
            names.add(field.name.lower())
            fields.append(field)
            token = self._take()
            if token.text == until and not token.is_name:
                return tuple(fields)
            if token.text != ",":
                raise _unexpected(token, f"',' or {until!r}" if until else "','")

    def _field(self) -> StructField:
        token = self._take()
        if not token.is_name:
            raise _unexpected(token, "a name")
        if self._peek().text == ":":
            self._take()
        field_type = self._type()
        nullable = True
        if self._peek().is_word("NOT"):
            self._take()
            if not (null := self._take()).is_word("NULL"):
                raise _unexpected(null, "NULL")
            nullable = False
        if self._peek().is_word("COMMENT"):
            self._take()
            self._take()
        return StructField(token.text, field_type, nullable)

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} types within each other")
        token = self._take()
        if not token.is_name or token.is_quoted:
            raise _unexpected(token, "a type")
        found = self._type_named(token)
        self._depth -= 1
        return found

    def _type_named(self, token: _Token) -> DataType:
        match token.text.lower():
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                if (key := self._type()) is not AtomicType.STRING:
                    raise ValueError(f"a map has STRING keys in JSON, not {ddl_of(key)}")
                self._expect(",")
                value = self._type()
                self._expect(">")
                return MapType(value)
            case "struct":
                self._expect("<")
                return StructType(self.fields(until=">"))
            case name if name in SCALARS:
                return SCALARS[name]
        raise ValueError(f"there is no type {token.text!r}; there are {', '.join(_type_names())}")

    def _decimal(self) -> DecimalType:
        if self._peek().text != "(":
            return DecimalType()
        self._expect("(")
        precision, scale = self._number(), 0
        if self._peek().text == ",":
            self._take()
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= MAX_DECIMAL_DIGITS or scale > precision:
            raise ValueError(f"there is no DECIMAL({precision}, {scale}); it has up to {MAX_DECIMAL_DIGITS} digits")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.text.isdecimal() or token.is_name:
            raise _unexpected(token, "a number")
        return int(token.text)

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.text != text or token.is_name:
            raise _unexpected(token, repr(text))

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"cannot be read from {text[position:].strip()[:20]!r} on")
        quoted, word, number, literal, sign = found.groups()
        name = quoted.replace("``", "`") if quoted is not None else word
        start = found.start(found.lastindex or 0)
        tokens.append(_Token(name or number or literal or sign, start, name is not None, quoted is not None))
        position = found.end()
    return [*tokens, _Token("", len(text))]


def _unexpected(token: _Token, wanted: str) -> ValueError:
    found = repr(token.text) if token.text else "the end"
    return ValueError(f"{wanted} is expected at position {token.position}, not {found}")


def _type_names() -> list[str]:
    return [each.name for each in AtomicType] + ["DECIMAL(p, s)", "ARRAY<t>", "MAP<STRING, t>", "STRUCT<name: t, …>"]


def ddl_of(field_type: DataType) -> str:
    """Return a type as SQL writes it, columns as a list of them."""
    match field_type:
        case AtomicType():
            return field_type.name
        case DecimalType(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case ArrayType(element):
            return f"ARRAY<{ddl_of(element)}>"
        case MapType(value):
            return f"MAP<STRING, {ddl_of(value)}>"
        case StructType(fields):
            return f"STRUCT<{', '.join(_field_ddl(each, ': ') for each in fields)}>"


def columns_ddl(columns: StructType) -> str:
    """Return columns as SQL writes them, always in the same way."""
    return ", ".join(_field_ddl(each, " ") for each in columns.fields)


def _field_ddl(field: StructField, separator: str) -> str:
    name = field.name.replace("`", "``")
    return f"`{name}`{separator}{ddl_of(field.type)}{'' if field.nullable else ' NOT NULL'}"


def arrow_type(field_type: DataType) -> pa.DataType:
    """Return the Arrow type of a type."""
    import pyarrow as pa

    match field_type:
        case AtomicType():
            return {
                AtomicType.BOOLEAN: pa.bool_(),
                AtomicType.TINYINT: pa.int8(),
                AtomicType.SMALLINT: pa.int16(),
                AtomicType.INT: pa.int32(),
                AtomicType.BIGINT: pa.int64(),
                AtomicType.FLOAT: pa.float32(),
                AtomicType.DOUBLE: pa.float64(),
                AtomicType.STRING: pa.string(),
                AtomicType.BINARY: pa.binary(),
                AtomicType.DATE: pa.date32(),
                AtomicType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
                AtomicType.TIMESTAMP_NTZ: pa.timestamp("us"),
            }[field_type]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case MapType(value):
            return pa.map_(pa.string(), arrow_type(value))
        case StructType(fields):
            return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in fields])


def arrow_schema_of(columns: StructType) -> pa.Schema:
    """Return the Arrow schema of a table with these columns."""
    import pyarrow as pa

    return pa.schema([pa.field(each.name, arrow_type(each.type)) for each in columns.fields])
