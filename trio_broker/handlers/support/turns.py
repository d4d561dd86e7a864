"""Yielding to the event loop while a large request is answered.

A request may name tens of thousands of groups, keys or topics. Each takes microseconds; all of them together would
delay every other client. Such lists are handled in slices, with a checkpoint between two of them; a list of common size
is one slice, and no checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

ITEMS_PER_TURN = 500
"""Items handled between two yields: a few milliseconds at most. Common requests have fewer."""


def slices(items: Sequence[T], size: int = ITEMS_PER_TURN) -> Iterator[Sequence[T]]:
    """Cut ``items`` into pieces of ``size``, in order; up to that many come as they are."""
    if len(items) <= size:
        yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]
