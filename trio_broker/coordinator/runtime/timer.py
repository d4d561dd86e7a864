"""One timer for each key, and one task that waits for the earliest of them.

A timer may run early: the machine does what is due and says when it is to be called next. That is why a timer that is
scheduled for later than it stands already stays where it is: thousands of heartbeats a second, each of which moves a
session's deadline, cost the heap nothing.

Source: the idea is Kafka's CoordinatorTimer, with Trio's deadlines in the place of its timing wheel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import trio

from trio_broker.concurrency.yield_budget import YieldBudget

Key = TypeVar("Key", bound=Hashable)

MAX_STALE_ENTRIES = 1_000
"""Heap entries of timers that were cancelled or rescheduled, beyond as many as there are timers. Without a limit keys
that come and go would fill the memory until their sessions would have ended, in half an hour."""


class CoordinatorTimer(Generic[Key]):
    """Timers by key; ``on_timeout`` is called with each key that is due, and does not raise."""

    def __init__(self, on_timeout: Callable[[Key], None]) -> None:
        self._on_timeout = on_timeout
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0
        self._earlier = trio.Event()

    def schedule(self, key: Key, deadline: float | None) -> None:
        """Call ``on_timeout`` for ``key`` at ``deadline`` or before, in Trio's seconds; None cancels."""
        if deadline is None:
            self._due.pop(key, None)
            return
        due = self._due.get(key)
        if due is not None and due <= deadline:
            return
        self._due[key] = deadline
        self._order += 1
        heapq.heappush(self._heap, (deadline, self._order, key))
        if len(self._heap) > 2 * len(self._due) + MAX_STALE_ENTRIES:
            self._drop_stale_entries()
        if self._heap[0][2] == key:
            self._earlier.set()

    def _drop_stale_entries(self) -> None:
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    async def run(self) -> None:
        """Call ``on_timeout`` for each timer as it becomes due, until cancelled."""
        while True:
            self._earlier = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else float("inf")):
                await self._earlier.wait()
            await self._run_due()

    async def _run_due(self) -> None:
        budget = YieldBudget()
        while self._heap and self._heap[0][0] <= trio.current_time():
            deadline, _, key = heapq.heappop(self._heap)
            # Stale: the timer was rescheduled for an earlier time, or cancelled.
            if self._due.get(key) != deadline:
                continue
            del self._due[key]
            self._on_timeout(key)
            await budget.maybe_yield()
