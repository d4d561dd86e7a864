"""Freeing a large message in turns.

A message of hundreds of thousands of elements, dropped as a whole, is freed as a whole: tens of milliseconds in which
nothing else runs.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import attrs

from kafka_wire.emit_source import TURN_ELEMENTS
from kafka_wire.schema import ArrayOf, StructOf, fields_of


def release_in_turns(messages: list[Any]) -> Generator[None, None, None]:
    """Take the messages out of their list and free their elements, yielding after every ``TURN_ELEMENTS`` of them.

    To be given the last references to the messages. Nothing in them is changed: what somebody else holds stays whole.
    """
    # Copies of the arrays hold the elements while the messages, and the arrays themselves, are freed.
    held = [messages]
    left = TURN_ELEMENTS
    while held:
        items = held[-1]
        if not items:
            held.pop()
            continue
        held += large_arrays(items.pop(), smallest=1 if items is messages else TURN_ELEMENTS)
        left -= 1
        if left <= 0:
            left = TURN_ELEMENTS
            yield


def large_arrays(item: Any, smallest: int) -> list[list[Any]]:
    """Copies of the arrays of a struct, and of the structs in it, that have at least ``smallest`` elements."""
    arrays = []
    for name, is_array in _containers(type(item)):
        value = getattr(item, name)
        if not is_array:
            arrays += large_arrays(value, smallest)
        elif value and len(value) >= smallest:
            arrays.append(value.copy())
    return arrays


_containers_of: Final[dict[type[Any], tuple[tuple[str, bool], ...]]] = {}


def _containers(cls: type[Any]) -> tuple[tuple[str, bool], ...]:
    """The fields of a class that are arrays or structs, and which of the two."""
    if cls not in _containers_of:
        _containers_of[cls] = tuple(
            (each.name, isinstance(each.type, ArrayOf))
            for each in (fields_of(cls) if attrs.has(cls) else ())
            if isinstance(each.type, (ArrayOf, StructOf))
        )
    return _containers_of[cls]
