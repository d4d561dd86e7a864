"""Converts JSON texts to rows of typed columns, or reports why a text does not fit.

Names that are not in the schema are ignored; a column whose name is not in the text, or is ``null``, is null unless it
is ``NOT NULL``. Of a repeated name the last value counts. ``column_types`` defines which values fit.

Source: RFC 8259 for JSON.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from trio_broker.spark.pipelines.etl.column_types import RowError, StructType, shown

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.define
class TypedRows:
    """The rows of some texts. ``valid`` are the positions of their texts; ``invalid``, with ``reasons``, of the
    others."""

    batch: pa.RecordBatch
    valid: list[int]
    invalid: list[int]
    reasons: list[str]


class RowReader:
    """Converts texts to rows with ``columns``."""

    def __init__(self, columns: StructType) -> None:
        self._schema = columns.arrow_schema()
        self._converters = [(each.name, each.converter()) for each in columns.fields]
        # A decimal needs the digits of a number as they are in the text.
        parse_float = decimal.Decimal if "DECIMAL(" in columns.ddl() else float
        # json.loads makes a new decoder for every text where parse_float is given, which takes as long as decoding.
        self._decode = json.JSONDecoder(parse_float=parse_float, parse_constant=_refuse_constant).decode

    def read(self, texts: Sequence[bytes | None]) -> TypedRows:
        """Return the rows of ``texts``, and the reasons of those that do not fit."""
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
            RowError: the text does not fit.
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
        # An escape can be half of a surrogate pair, which UTF-8 cannot encode. Only texts with an escape are searched.
        if "\\u" in decoded and _has_lone_surrogate(document):
            raise RowError("a string has half of a surrogate pair")
        return document


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
