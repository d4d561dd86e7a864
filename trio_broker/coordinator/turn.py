"""Taking turns with everybody else while something large is done.

Named in one request, or ended by one moment, may be ten thousand groups, or one with ten thousand members. Each takes
microseconds or milliseconds, and whoever does them all at once keeps all other groups from their heartbeats. How long
one takes is not known beforehand, so a turn goes by the clock.
"""

from __future__ import annotations

from time import perf_counter

from trio.lowlevel import checkpoint

TURN_SECONDS = 0.005
"""How long a turn takes, or as long as its last item: short beside any session, long beside a round of the loop."""


class Turn:
    """The turn of one task, which begins now."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def pause(self) -> None:
        """Let others come if this turn has lasted. Anything may have happened after that."""
        if perf_counter() - self._began > TURN_SECONDS:
            await checkpoint()
            self._began = perf_counter()
