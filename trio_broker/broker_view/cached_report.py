"""CachedReport: a report on everything, which is made once for all that ask within some seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from trio_broker.runtime.clock import Clock

R = TypeVar("R")


class CachedReport(Generic[R]):
    """What ``make`` returns, for ``seconds`` and for ``pause_factor`` times as long as it took, whichever is longer.

    So many open pages cost no more than one, and making takes at most the ``pause_factor + 1``-th part of the time.
    ``make`` may change ``seconds``. One report is made at a time; those that ask meanwhile get that one.
    """

    def __init__(
        self, make: Callable[[], Awaitable[R]], clock: Clock, *, seconds: float, pause_factor: float = 0.0
    ) -> None:
        self.seconds = seconds
        self._make, self._clock, self._pause_factor = make, clock, pause_factor
        self._making = trio.Lock()
        self._report: R | None = None
        self._is_current = False
        self._good_until = 0.0

    async def get(self) -> R:
        """The report, which may be some seconds old."""
        async with self._making:
            if self._report is None or not self._is_current or self._clock.monotonic() >= self._good_until:
                return await self._made(self._make)
            return self._report

    async def replaced(self, make: Callable[[], Awaitable[R]]) -> R:
        """A report that is made now, by ``make``; it takes the place of the one that is kept."""
        async with self._making:
            return await self._made(make)

    def expire(self) -> None:
        """Something has changed: the next ``get`` makes a new one."""
        self._is_current = False

    async def _made(self, make: Callable[[], Awaitable[R]]) -> R:
        # Before it is made, so that a change meanwhile counts.
        self._is_current = True
        began = self._clock.monotonic()
        self._report = await make()
        now = self._clock.monotonic()
        self._good_until = now + max(self.seconds, self._pause_factor * (now - began))
        return self._report
