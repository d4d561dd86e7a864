"""The types of a table's columns: the name in SQL, the Arrow type, and the conversion of JSON values.

Conversions are strict, because a wrong value in a table is found much later than a dead letter: a number is not a
STRING, and neither ``1.0`` nor ``"1"`` is a BIGINT.

    BOOLEAN                    true, false
    TINYINT … BIGINT           a number without a point or an exponent, within the type's range
    FLOAT, DOUBLE              a number, within range
    DECIMAL(p, s)              a number, or one in a string; with no more digits than that, never rounded
    STRING                     a string
    BINARY                     a string of base64
    DATE                       "2026-01-31"
    TIMESTAMP                  "2026-01-31T12:00:00.123456+02:00", a date, or 'Z' for the zone; UTC without one
    TIMESTAMP_NTZ              the same without a zone
    ARRAY, MAP, STRUCT         a list; an object; an object

Source: Spark's SQL reference, "Data Types", for the names; ``datetime.fromisoformat`` for ISO 8601.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import attrs
import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]
"""Takes a JSON value that is not null and returns what Arrow takes; raises ``ValueError`` for a value of another type.

The caller, which knows the value's place, makes a ``RowError`` of it: a handler that is not entered costs nothing,
while one more function around each value would."""

MAX_DOUBLE: Final = 1.7976931348623157e308
MAX_FLOAT: Final = 3.4028234663852886e38
"""The largest number that a FLOAT holds; beyond it Arrow would make it infinite."""

MAX_NUMBER_DIGITS: Final = 100
"""Of a decimal as it is written; more do not fit any type, and arithmetic with millions of them takes long."""

MAX_SHOWN: Final = 40
"""Letters of a value that an error shows."""


class RowError(ValueError):
    """A text does not fit the columns; ``path`` names the value that does not."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, name: str) -> RowError:
        """Return the error with the name of the field or element that contains the value."""
        return RowError(self.reason, name + ("." + self.path if self.path and self.path[0] != "[" else self.path))

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


def row_error(error: ValueError | OverflowError, wanted: DataType, value: Any, name: str) -> RowError:
    """Return the error for the value ``name`` that is not of type ``wanted``; the error of a value in it keeps its
    reason."""
    if not isinstance(error, RowError):
        error = RowError(f"{wanted.ddl()} is expected, not {shown(value)}")
    return error.within(name)


def shown(value: Any) -> str:
    """Return a value as errors show it."""
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else str(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


class DataType(Protocol):
    """The type of a column, or of a part of one."""

    def ddl(self) -> str:
        """Return the type in SQL."""
        ...

    def arrow(self) -> pa.DataType:
        """Return the Arrow type."""
        ...

    def converter(self) -> Convert:
        """Return the function that converts values."""
        ...


# --- Types without parts ---


def _exactly(kind: type[Any]) -> Convert:
    # Not isinstance, because a bool is an int in Python.
    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise ValueError

    return convert


_text = _exactly(str)


def _integer(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is int and -limit <= value < limit:
            return value
        raise ValueError

    return convert


def _number(limit: float) -> Convert:
    def convert(value: Any) -> float:
        if type(value) in (int, float, decimal.Decimal) and abs(number := float(value)) <= limit:
            return number
        raise ValueError

    return convert


def _binary(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError:
        raise RowError(f"BINARY is expected, as base64, not {shown(value)}") from None


def _timestamp(value: Any) -> datetime.datetime:
    """Return a moment in UTC without a zone: for a value with one Arrow calls Python for its offset, which is slow."""
    moment = datetime.datetime.fromisoformat(_text(value))
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _timestamp_ntz(value: Any) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(_text(value))
    if moment.tzinfo is not None:
        raise ValueError
    return moment


@attrs.frozen(eq=False)
class _Atomic:
    """A type: its names in lower case, its Arrow type, its conversion."""

    names: tuple[str, ...]
    arrow: pa.DataType
    convert: Convert


class AtomicType(Enum):
    """Types without parts, by the first of their names."""

    BOOLEAN = _Atomic(("boolean", "bool"), pa.bool_(), _exactly(bool))
    TINYINT = _Atomic(("tinyint", "byte"), pa.int8(), _integer(8))
    SMALLINT = _Atomic(("smallint", "short"), pa.int16(), _integer(16))
    INT = _Atomic(("int", "integer"), pa.int32(), _integer(32))
    BIGINT = _Atomic(("bigint", "long"), pa.int64(), _integer(64))
    FLOAT = _Atomic(("float", "real"), pa.float32(), _number(MAX_FLOAT))
    DOUBLE = _Atomic(("double",), pa.float64(), _number(MAX_DOUBLE))
    STRING = _Atomic(("string",), pa.string(), _text)
    BINARY = _Atomic(("binary",), pa.binary(), _binary)
    DATE = _Atomic(("date",), pa.date32(), lambda value: datetime.date.fromisoformat(_text(value)))
    TIMESTAMP = _Atomic(("timestamp", "timestamp_ltz"), pa.timestamp("us", tz="UTC"), _timestamp)
    TIMESTAMP_NTZ = _Atomic(("timestamp_ntz",), pa.timestamp("us"), _timestamp_ntz)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # By name: a task unpickles it in another process, where the value's closures are other objects.
        return getattr, (AtomicType, self.name)

    def ddl(self) -> str:
        return self.name

    def arrow(self) -> pa.DataType:
        return self.value.arrow

    def converter(self) -> Convert:
        return self.value.convert


ATOMIC_TYPES: Final = {name: each for each in AtomicType for name in each.value.names}


# --- Types with parts ---


@attrs.frozen
class DecimalType:
    """A number with up to ``precision`` digits, ``scale`` of them behind the point."""

    precision: int = 10
    scale: int = 0

    def ddl(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def converter(self) -> Convert:
        exact = decimal.Context(prec=2 * MAX_NUMBER_DIGITS, traps=[])
        limit, scale = 10**self.precision, self.scale

        def convert(value: Any) -> decimal.Decimal:
            if type(value) not in (int, decimal.Decimal, str) or len(str(value)) > MAX_NUMBER_DIGITS:
                raise ValueError
            number = exact.create_decimal(value)
            scaled = number.scaleb(scale, exact) if number.is_finite() else number
            if not number.is_finite() or scaled.copy_abs() >= limit or scaled != scaled.to_integral_value():
                raise ValueError
            return number

        return convert


@attrs.frozen
class ArrayType:
    """A list."""

    element: DataType

    def ddl(self) -> str:
        return f"ARRAY<{self.element.ddl()}>"

    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.element.arrow()))

    def converter(self) -> Convert:
        element = self.element
        convert_element = element.converter()

        def convert(value: Any) -> list[Any]:
            if type(value) is not list:
                raise ValueError
            elements = []
            for index, each in enumerate(value):
                try:
                    elements.append(None if each is None else convert_element(each))
                except (ValueError, OverflowError) as error:
                    raise row_error(error, element, each, f"[{index}]") from None
            return elements

        return convert


@attrs.frozen
class MapType:
    """Values by name: keys are strings, as JSON's are."""

    value: DataType

    def ddl(self) -> str:
        return f"MAP<STRING, {self.value.ddl()}>"

    def arrow(self) -> pa.DataType:
        return pa.map_(pa.string(), self.value.arrow())

    def converter(self) -> Convert:
        wanted = self.value
        convert_value = wanted.converter()

        def convert(value: Any) -> list[tuple[str, Any]]:
            if type(value) is not dict:
                raise ValueError
            entries = []
            for key, each in value.items():
                try:
                    entries.append((key, None if each is None else convert_value(each)))
                except (ValueError, OverflowError) as error:
                    raise row_error(error, wanted, each, shown(key)) from None
            return entries

        return convert


@attrs.frozen
class StructField:
    """A column, or a field of a struct."""

    name: str
    type: DataType
    nullable: bool = True

    def ddl(self, separator: str) -> str:
        """Return the field in SQL."""
        name = self.name.replace("`", "``")
        return f"`{name}`{separator}{self.type.ddl()}{'' if self.nullable else ' NOT NULL'}"

    def converter(self) -> Convert:
        """Return the function that converts the field's value, None included.

        It raises ``RowError``.
        """
        wanted, name, nullable = self.type, self.name, self.nullable
        convert = wanted.converter()

        def convert_field(value: Any) -> Any:
            if value is None:
                if nullable:
                    return None
                raise RowError("is missing or null, and must not be", name)
            try:
                return convert(value)
            except (ValueError, OverflowError) as error:
                raise row_error(error, wanted, value, name) from None

        return convert_field


@attrs.frozen
class StructType:
    """Fields by name; also the columns of a table."""

    fields: tuple[StructField, ...]

    def ddl(self) -> str:
        return f"STRUCT<{', '.join(each.ddl(': ') for each in self.fields)}>"

    def columns_ddl(self) -> str:
        """Return the fields as the columns of a table; equal types give equal texts."""
        return ", ".join(each.ddl(" ") for each in self.fields)

    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(each.name, each.type.arrow()) for each in self.fields])

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema of a table with the fields as its columns."""
        return pa.schema(list(self.arrow()))

    def converter(self) -> Convert:
        converters = [(each.name, each.converter()) for each in self.fields]

        def convert(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise ValueError
            return {name: convert_field(value.get(name)) for name, convert_field in converters}

        return convert
