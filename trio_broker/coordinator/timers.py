"""One alarm for each group, and one task that waits for the earliest of them.

A group moves its deadlines with every heartbeat, so an alarm is advice: it may ring early, and the group then says when
to ring next. That is why an alarm that is set later than it stands already stays where it is: thousands of heartbeats
a second cost the heap nothing.

Source: the idea is Kafka's CoordinatorTimer, with Trio's deadlines in the place of its timing wheel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import trio

from trio_broker.coordinator.turn import Turn

Key = TypeVar("Key", bound=Hashable)

MAX_VOID_ENTRIES = 1_000
"""Entries of alarms that were taken away or set earlier, beyond as many as there are alarms: groups that come and go
would else fill the memory until their sessions would have ended, in half an hour."""


class Timers(Generic[Key]):
    """Alarms by key; ``ring`` is called with each whose time has come, and does not raise."""

    def __init__(self, ring: Callable[[Key], None]) -> None:
        self._ring = ring
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0
        self._earlier = trio.Event()

    def ring_by(self, key: Key, deadline: float | None) -> None:
        """Have the alarm of ``key`` ring at ``deadline`` or before, in Trio's seconds; None takes it away."""
        if deadline is None:
            self._due.pop(key, None)
            return
        due = self._due.get(key)
        if due is not None and due <= deadline:
            return
        self._due[key] = deadline
        self._order += 1
        heapq.heappush(self._heap, (deadline, self._order, key))
        if len(self._heap) > 2 * len(self._due) + MAX_VOID_ENTRIES:
            self._sweep()
        if self._heap[0][2] == key:
            self._earlier.set()

    def _sweep(self) -> None:
        """Forget the void entries."""
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    async def run(self) -> None:
        """Ring, until cancelled."""
        while True:
            self._earlier = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else float("inf")):
                await self._earlier.wait()
            await self._ring_due()

    async def _ring_due(self) -> None:
        turn = Turn()
        while self._heap and self._heap[0][0] <= trio.current_time():
            deadline, _, key = heapq.heappop(self._heap)
            # Another alarm of the same key may have been set for an earlier time, or the alarm taken away.
            if self._due.get(key) != deadline:
                continue
            del self._due[key]
            self._ring(key)
            await turn.pause()
