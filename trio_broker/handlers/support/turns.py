"""Letting others have the event loop while a large request is answered.

A request may name tens of thousands of groups, keys or topics. Each takes microseconds, and all of them together would
make every other client wait. So what comes in such numbers is taken in slices, with a checkpoint between two of them;
a request of common size is one slice and goes straight through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

ITEMS_PER_TURN = 500
"""Named things handled before the loop goes round: a few milliseconds at most. Common requests never get there."""


def slices(items: Sequence[T], size: int = ITEMS_PER_TURN) -> Iterator[Sequence[T]]:
    """Cut ``items`` into pieces of ``size``, in order; up to that many come as they are."""
    if len(items) <= size:
        yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]
