"""The error codes of a response, wherever they stand in it.

A response may hold one for the whole, one per topic, one per partition: every field that is called ``error_code``.
The walk is a function written for each class from its declaration, as readers and writers are: for a Produce of one
partition it takes a sixth of a microsecond.

Source: AbstractResponse.errorCounts of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafka_wire.emit_source import Source
from kafka_wire.schema import ArrayOf, StructOf, WireType, fields_of

ERROR_CODE: Final = "error_code"


class ErrorWalks(dict[type[Any], Callable[[Any], list[int] | None]]):
    """By the class of a response, the function that returns its error codes, or None if there are none.

    A function is written when it is first looked up.
    """

    def __missing__(self, cls: type[Any]) -> Callable[[Any], list[int] | None]:
        walk = self[cls] = _written(cls)
        return walk


ERROR_WALKS: Final = ErrorWalks()


def _written(cls: type[Any]) -> Callable[[Any], list[int] | None]:
    """The function that collects the error codes of a response of this class."""
    source = Source()
    with source.block("def error_codes(response):"):
        source.line("found = None")
        _walk(source, cls, "response")
        source.line("return found")
    return source.function("error_codes", f"<error codes of {cls.__name__}>")


def _walk(source: Source, cls: type[Any], value: str) -> None:
    for field in fields_of(cls):
        path = f"{value}.{field.name}"
        if field.name == ERROR_CODE:
            with source.block(f"if {path}:"):
                source.line(f"found = [*(found or ()), {path}]")
        elif isinstance(field.type, ArrayOf) and _has_error_code(field.type):
            assert isinstance(field.type.element, StructOf), f"{cls.__name__}.{field.name} is a list of lists"
            each = f"each_{source.number()}"
            with source.block(f"for {each} in {path} or ():"):
                _walk(source, field.type.element.cls, each)
        elif isinstance(field.type, StructOf) and _has_error_code(field.type):
            with source.block(f"if {path} is not None:"):
                _walk(source, field.type.cls, path)


def _has_error_code(wire_type: WireType) -> bool:
    match wire_type:
        case ArrayOf(element):
            return _has_error_code(element)
        case StructOf(cls):
            return any(field.name == ERROR_CODE or _has_error_code(field.type) for field in fields_of(cls))
        case _:
            return False
