"""Makes rows of typed columns from JSON texts, or says why a text is none.

Nothing is guessed, because a guess in a table is found much later than a dead letter: a number is not a string, ``1.0``
is not a BIGINT, ``"1"`` is neither. What is not in the schema is left out; what is not in the text is null, as is what
is ``null``, unless the column is ``NOT NULL``. A name that comes twice counts where it comes last.

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

Source: RFC 8259 for JSON; ``datetime.fromisoformat`` for ISO 8601.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import attrs

from trio_broker.spark.pipelines.ddl import (
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    arrow_schema_of,
    ddl_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]
"""Takes what JSON had for a value that is not null, and returns what Arrow takes; raises ``RowError``."""

INTEGER_BITS: Final = {AtomicType.TINYINT: 8, AtomicType.SMALLINT: 16, AtomicType.INT: 32, AtomicType.BIGINT: 64}

MAX_FLOAT: Final = 3.4028234663852886e38
"""The largest number that a FLOAT holds; beyond it Arrow would make it infinite."""

MAX_NUMBER_DIGITS: Final = 100
"""Of a decimal as it is written; more do not fit any type, and arithmetic with millions of them takes long."""

MAX_SHOWN: Final = 40
"""Letters of a value that an error shows."""


class RowError(Exception):
    """A text is no row; ``path`` leads to the value that does not fit."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, name: str) -> RowError:
        """Return the error of what the value lies in."""
        return RowError(self.reason, name + ("." + self.path if self.path and self.path[0] != "[" else self.path))

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


@attrs.define
class TypedRows:
    """The rows that came of texts. ``valid`` are the positions of their texts, ``invalid`` those of all others."""

    batch: pa.RecordBatch
    valid: list[int]
    invalid: list[int]
    reasons: list[str]


class RowReader:
    """Reads texts as rows with ``columns``."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        self._schema = arrow_schema_of(columns)
        self._converters = [(each.name, field_converter(each)) for each in columns.fields]
        # json.loads would make a decoder for every text that is not read in its usual way, which takes as long again.
        parse_float = decimal.Decimal if _has_decimals(columns) else float
        self._decode = json.JSONDecoder(parse_float=parse_float, parse_constant=_refuse_constant).decode

    def read(self, texts: Sequence[bytes | None]) -> TypedRows:
        """Return the rows of ``texts``, and why the others are none."""
        import pyarrow as pa

        values: list[list[Any]] = [[] for _ in self._converters]
        valid, invalid, reasons = [], [], []
        for position, text in enumerate(texts):
            try:
                row = self.row(text)
            except RowError as error:
                invalid.append(position)
                reasons.append(str(error))
                continue
            valid.append(position)
            for column, value in zip(values, row, strict=True):
                column.append(value)
        arrays = [pa.array(column, field.type) for column, field in zip(values, self._schema, strict=True)]
        return TypedRows(pa.RecordBatch.from_arrays(arrays, schema=self._schema), valid, invalid, reasons)

    def row(self, text: bytes | None) -> list[Any]:
        """Return the values of one row.

        Raises:
            RowError: the text is none.
        """
        document = self._parse(text)
        if type(document) is not dict:
            raise RowError(f"a JSON object is expected, not {shown(document)}")
        get = document.get
        return [convert(get(name)) for name, convert in self._converters]

    def _parse(self, text: bytes | None) -> Any:
        if text is None:
            raise RowError("the value is null")
        try:
            decoded = text.decode()
            document = self._decode(decoded)
        except UnicodeDecodeError as error:
            raise RowError(f"not UTF-8 at byte {error.start}") from None
        except RecursionError:
            raise RowError("not JSON: too many values within each other") from None
        except ValueError as error:
            raise RowError(f"not JSON: {error}") from None
        # An escape can stand for half of a character, which no file can hold.
        if "\\u" in decoded and _has_lone_surrogate(document):
            raise RowError("a string has half of a surrogate pair")
        return document


def field_converter(field: StructField) -> Convert:
    """Return what converts the value of a field, None included."""
    convert, name, nullable = converter(field.type), field.name, field.nullable

    def convert_field(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise RowError("is missing or null, and must not be", name)
        try:
            return convert(value)
        except RowError as error:
            raise error.within(name) from None

    return convert_field


def converter(field_type: DataType) -> Convert:
    """Return what converts the values of a type."""
    match field_type:
        case AtomicType.TINYINT | AtomicType.SMALLINT | AtomicType.INT | AtomicType.BIGINT:
            return _integer(field_type)
        case AtomicType():
            return SCALAR_CONVERTERS[field_type]
        case DecimalType():
            return _decimal(field_type)
        case ArrayType():
            return _array(field_type)
        case MapType():
            return _map(field_type)
        case StructType():
            return _struct(field_type)


def shown(value: Any) -> str:
    """Return what a value is, for an error."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else str(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _mismatch(field_type: DataType, value: Any) -> RowError:
    return RowError(f"{ddl_of(field_type)} is expected, not {shown(value)}")


def _integer(field_type: AtomicType) -> Convert:
    limit = 1 << (INTEGER_BITS[field_type] - 1)

    def convert(value: Any) -> int:
        # A boolean is an int of Python's as well, hence no isinstance.
        if type(value) is int and -limit <= value < limit:
            return value
        raise _mismatch(field_type, value)

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _mismatch(AtomicType.BOOLEAN, value)


def _number(value: Any, field_type: AtomicType, limit: float) -> float:
    if type(value) in (int, float, decimal.Decimal):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) <= limit:
            return number
    raise _mismatch(field_type, value)


def _float(value: Any) -> float:
    return _number(value, AtomicType.FLOAT, MAX_FLOAT)


def _double(value: Any) -> float:
    return _number(value, AtomicType.DOUBLE, 1.7976931348623157e308)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    raise _mismatch(AtomicType.STRING, value)


def _binary(value: Any) -> bytes:
    try:
        return base64.b64decode(_string(value), validate=True)
    except (ValueError, RowError):
        raise RowError(f"BINARY is expected, as base64, not {shown(value)}") from None


def _date(value: Any) -> datetime.date:
    try:
        return datetime.date.fromisoformat(_string(value))
    except (ValueError, RowError):
        raise _mismatch(AtomicType.DATE, value) from None


def _timestamp(value: Any) -> datetime.datetime:
    """Return a moment in UTC, without saying so: Arrow asks every value that has a zone for its difference to UTC."""
    try:
        moment = datetime.datetime.fromisoformat(_string(value))
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, RowError):
        raise _mismatch(AtomicType.TIMESTAMP, value) from None


def _timestamp_ntz(value: Any) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(_string(value))
    except (ValueError, RowError):
        raise _mismatch(AtomicType.TIMESTAMP_NTZ, value) from None
    if moment.tzinfo is not None:
        raise _mismatch(AtomicType.TIMESTAMP_NTZ, value)
    return moment


SCALAR_CONVERTERS: Final[dict[AtomicType, Convert]] = {
    AtomicType.BOOLEAN: _boolean,
    AtomicType.FLOAT: _float,
    AtomicType.DOUBLE: _double,
    AtomicType.STRING: _string,
    AtomicType.BINARY: _binary,
    AtomicType.DATE: _date,
    AtomicType.TIMESTAMP: _timestamp,
    AtomicType.TIMESTAMP_NTZ: _timestamp_ntz,
}


def _decimal(field_type: DecimalType) -> Convert:
    exact = decimal.Context(prec=2 * MAX_NUMBER_DIGITS, traps=[])
    limit = 10**field_type.precision

    def convert(value: Any) -> decimal.Decimal:
        if type(value) not in (int, decimal.Decimal, str) or len(str(value)) > MAX_NUMBER_DIGITS:
            raise _mismatch(field_type, value)
        number = exact.create_decimal(value)
        scaled = number.scaleb(field_type.scale, exact) if number.is_finite() else number
        if not number.is_finite() or scaled.copy_abs() >= limit or scaled != scaled.to_integral_value():
            raise _mismatch(field_type, value)
        return number

    return convert


def _array(field_type: ArrayType) -> Convert:
    convert_element = converter(field_type.element)

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _mismatch(field_type, value)
        elements = []
        for index, each in enumerate(value):
            try:
                elements.append(None if each is None else convert_element(each))
            except RowError as error:
                raise error.within(f"[{index}]") from None
        return elements

    return convert


def _map(field_type: MapType) -> Convert:
    convert_value = converter(field_type.value)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _mismatch(field_type, value)
        entries = []
        for key, each in value.items():
            try:
                entries.append((key, None if each is None else convert_value(each)))
            except RowError as error:
                raise error.within(shown(key)) from None
        return entries

    return convert


def _struct(field_type: StructType) -> Convert:
    converters = [(each.name, field_converter(each)) for each in field_type.fields]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _mismatch(field_type, value)
        return {name: convert_field(value.get(name)) for name, convert_field in converters}

    return convert


def _has_decimals(field_type: DataType) -> bool:
    match field_type:
        case DecimalType():
            return True
        case ArrayType(inner) | MapType(inner):
            return _has_decimals(inner)
        case StructType(fields):
            return any(_has_decimals(each.type) for each in fields)
        case AtomicType():
            return False


def _has_lone_surrogate(document: Any) -> bool:
    left = [document]
    while left:
        match left.pop():
            case str(text) if any("\ud800" <= letter <= "\udfff" for letter in text):
                return True
            case dict(entries):
                left += [*entries.keys(), *entries.values()]
            case list(elements):
                left += elements
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
