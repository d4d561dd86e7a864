"""Bugs of waits, put into the broker on purpose, to show that the simulation finds them.

Source: the habit of testing a test; mutation testing.
"""

from __future__ import annotations

import pytest

from trio_broker.partition.delayed_operations import DelayedFetch, DelayedOperations
from trio_broker.partition.state import Advance


def a_fetch_registers_when_it_waits(patch: pytest.MonkeyPatch) -> None:
    """In a turn of the event loop after the one in which it has looked."""
    add_fetch, wait = DelayedOperations.add_fetch, DelayedFetch.wait
    asked: dict[DelayedFetch, list[DelayedOperations]] = {}

    def add_later(operations: DelayedOperations, delayed: DelayedFetch) -> None:
        asked.setdefault(delayed, []).append(operations)

    async def add_and_wait(delayed: DelayedFetch, seconds: float) -> bool:
        for operations in asked.pop(delayed, ()):
            add_fetch(operations, delayed)
        return await wait(delayed, seconds)

    patch.setattr(DelayedOperations, "add_fetch", add_later)
    patch.setattr(DelayedFetch, "wait", add_and_wait)


def the_end_of_a_transaction_wakes_no_fetch(patch: pytest.MonkeyPatch) -> None:
    """Of records that it held back."""
    advanced = DelayedFetch.advanced

    def advanced_by_appends(delayed: DelayedFetch, advance: Advance, visible_bytes: int) -> None:
        if advance is not Advance.RELEASED:
            advanced(delayed, advance, visible_bytes)

    patch.setattr(DelayedFetch, "advanced", advanced_by_appends)
