"""Parses a table's columns in Spark's SQL: ``id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>``.

Spark could parse them, too, but only after a JVM has started; a wrong schema is refused at once. Names may be in
backquotes. A ``NOT NULL`` column must have a value in every record; in the table it is nullable like the others.

Source: the ``colTypeList`` of Spark's SQL grammar.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from trio_broker.spark.pipelines.etl.column_types import (
    ATOMIC_TYPES,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

MAX_DECIMAL_DIGITS: Final = 38
"""The limit of Spark, Iceberg and Delta."""

MAX_DEPTH: Final = 50
"""Of types within types: the parser is recursive."""


_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*)|(\d+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([(),<>:]))")


def parse_ddl(text: str) -> StructType:
    """Return the columns that ``text`` lists.

    Raises:
        ValueError: the text is not a list of columns, names a column twice, or a type that is not known.
    """
    reader = _Parser(text)
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


class _Parser:
    """A recursive descent through the tokens, one method for each part of the grammar."""

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
                    raise ValueError(f"a map has STRING keys in JSON, not {key.ddl()}")
                self._expect(",")
                value = self._type()
                self._expect(">")
                return MapType(value)
            case "struct":
                self._expect("<")
                return StructType(self.fields(until=">"))
            case name if name in ATOMIC_TYPES:
                return ATOMIC_TYPES[name]
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
