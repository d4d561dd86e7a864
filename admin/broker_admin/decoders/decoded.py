"""What a decoder makes of some bytes."""

from __future__ import annotations

from typing import Any

import attrs

MAX_DECODED_BYTES = 1024 * 1024
"""Larger keys and values are shown as text or in hexadecimal, cut: parsing a megabyte of JSON keeps the interpreter
for some ten milliseconds, during which the broker serves nobody."""

MAX_ELEMENTS = 20_000
"""Fields and elements that the decoders written here take from one value; each costs about a microsecond."""

MAX_NESTING = 64
"""Values inside values that the decoders written here follow."""


class NotDecodable(Exception):
    """The bytes are not what the decoder reads; the text says why, in a few words."""


@attrs.frozen
class Decoded:
    """A value, and the name of the decoder that made it.

    ``data`` is what ``json`` can write, or bytes. ``problem`` says why the decoder that was asked for did not do.
    """

    decoder: str
    data: Any
    problem: str = ""


class ElementBudget:
    """Counts the elements of one value."""

    def __init__(self) -> None:
        self._left = MAX_ELEMENTS

    def take(self, count: int = 1) -> None:
        """Pay for ``count`` elements.

        Raises:
            NotDecodable: there are more than one value may have.
        """
        self._left -= count
        if self._left < 0:
            raise NotDecodable(f"more than {MAX_ELEMENTS} elements")
