"""Waking whatever waits for a change."""

from __future__ import annotations

import trio


class Pulse:
    """Wakes all that wait. A waiter that has to wait in order to look, too, takes ``moment`` before it looks, and waits
    for what has come ``since``."""

    def __init__(self) -> None:
        self.moment = trio.Event()

    def wake(self) -> None:
        self.moment.set()
        self.moment = trio.Event()

    async def wait(self, *, since: trio.Event | None = None, until: float = float("inf")) -> None:
        """Return at the next ``wake``, or the first one after ``since``; at ``until`` by Trio's clock in any case."""
        with trio.move_on_at(until):
            await (self.moment if since is None else since).wait()
