"""The error codes of a response, wherever they stand in it.

A response may hold one for the whole, one per topic, one per partition: every field with one of the names in
``ERROR_CODES``. The walk is a function written for each class from its declaration, as readers and writers are: for a
Produce of one partition it takes a sixth of a microsecond. A second form gives turns, for responses of many elements.

Source: AbstractResponse.errorCounts of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from kafka_wire.emit_source import Source
from kafka_wire.schema import ArrayOf, StructOf, WireType, fields_of

ERROR_CODES: Final = frozenset({"error_code", "partition_error_code"})
"""The names of such a field. Other codes stand beside one of these, and say more."""

Counts = dict[int, int]
"""How often each error code stands in a response."""

LARGE: Final[Counts] = {}
"""Returned, itself, for a response of more than ``LARGE_ELEMENTS`` elements, whose codes were not counted."""

LARGE_ELEMENTS: Final = 200
"""Elements of all arrays that a response may have to be walked over, and written, at once: half a millisecond."""


class ErrorWalks(dict[type[Any], Callable[[Any], Counts | None]]):
    """By the class of a response, the function that counts its error codes: None if there are none, or ``LARGE``.

    A function is written when it is first looked up.
    """

    def __missing__(self, cls: type[Any]) -> Callable[[Any], Counts | None]:
        walk = self[cls] = _written(cls, in_turns=False)
        return walk


class ErrorWalksInTurns(dict[type[Any], Callable[[Any], Generator[None, None, Counts | None]]]):
    """The same functions as generators, which yield after every ``TURN_ELEMENTS`` elements."""

    def __missing__(self, cls: type[Any]) -> Callable[[Any], Generator[None, None, Counts | None]]:
        walk = self[cls] = _written(cls, in_turns=True)
        return walk


ERROR_WALKS: Final = ErrorWalks()
ERROR_WALKS_IN_TURNS: Final = ErrorWalksInTurns()


def _written(cls: type[Any], *, in_turns: bool) -> Callable[[Any], Any]:
    """The function that counts the error codes of a response of this class."""
    source = Source(in_turns=in_turns)
    with source.block("def error_codes(response):"):
        source.begin_turns()
        if not in_turns:
            source.globals["LARGE"] = LARGE
            source.line(f"room = {LARGE_ELEMENTS}")
        source.line("found = None")
        _walk(source, cls, "response")
        source.line("return found")
    return source.function("error_codes", f"<error codes of {cls.__name__}{source.suffix}>")


def _walk(source: Source, cls: type[Any], value: str) -> None:
    for field in fields_of(cls):
        path = f"{value}.{field.name}"
        if field.name in ERROR_CODES:
            with source.block(f"if {path}:"):
                with source.block("if found is None:"):
                    source.line("found = {}")
                source.line(f"found[{path}] = found.get({path}, 0) + 1")
        elif isinstance(field.type, ArrayOf):
            items = f"items_{source.number()}"
            source.line(f"{items} = {path} or ()")
            if not source.in_turns:
                source.line(f"room -= len({items})")
                with source.block("if room < 0:"):
                    source.line("return LARGE")
            if _is_walked(source, field.type.element):
                assert isinstance(field.type.element, StructOf), f"{cls.__name__}.{field.name} is a list of lists"
                each = f"each_{source.number()}"
                with source.block(f"for {each} in {items}:"):
                    source.turn()
                    _walk(source, field.type.element.cls, each)
        elif isinstance(field.type, StructOf) and _is_walked(source, field.type):
            with source.block(f"if {path} is not None:"):
                _walk(source, field.type.cls, path)


def _is_walked(source: Source, wire_type: WireType) -> bool:
    """Whether a value of this type has codes to count, or elements, which one that does not give turns counts too."""
    return _has_error_code(wire_type) or (
        not source.in_turns and isinstance(wire_type, StructOf) and _has_array(wire_type)
    )


def _has_array(wire_type: WireType) -> bool:
    match wire_type:
        case ArrayOf():
            return True
        case StructOf(cls):
            return any(_has_array(field.type) for field in fields_of(cls))
        case _:
            return False


def _has_error_code(wire_type: WireType) -> bool:
    match wire_type:
        case ArrayOf(element):
            return _has_error_code(element)
        case StructOf(cls):
            return any(field.name in ERROR_CODES or _has_error_code(field.type) for field in fields_of(cls))
        case _:
            return False
