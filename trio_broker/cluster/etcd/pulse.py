"""Waking whatever waits for a change."""

from __future__ import annotations

import trio


class Pulse:
    """Wakes all that wait now. A waiter looks at what it waits for before it waits: nothing is remembered here."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()
        self._event = trio.Event()

    async def wait(self, *, until: float = float("inf")) -> None:
        """Return at the next ``wake``, or at ``until`` by Trio's clock."""
        with trio.move_on_at(until):
            await self._event.wait()
