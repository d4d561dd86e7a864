"""Runs work that gives turns, and counts them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def run(work: Generator[None, None, T]) -> tuple[T, int]:
    """What ``work`` returns, and how often it yielded before."""
    turns = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, turns
        turns += 1
