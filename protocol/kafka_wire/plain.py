"""Messages as what ``json`` can write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kafka_wire.primitives import uuid_text


def plain(value: Any, rename: Callable[[str], str] = str) -> Any:
    """Return a message as dictionaries and lists: ids as their text, other bytes in hexadecimal.

    ``rename`` makes the keys of the dictionaries from the names of fields.
    """
    if attrs.has(type(value)):
        return {
            rename(field.name): _texts_of_ids(getattr(value, field.name))
            if "Uuid" in str(field.type)
            else plain(getattr(value, field.name), rename)
            for field in attrs.fields(type(value))
        }
    if isinstance(value, list | tuple):
        return [plain(each, rename) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _texts_of_ids(value: Any) -> Any:
    """Return an id as its text, or a list of them."""
    if isinstance(value, list | tuple):
        return [_texts_of_ids(each) for each in value]
    return uuid_text(value) if isinstance(value, bytes) else value
