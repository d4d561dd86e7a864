"""How often something happens, over about a minute: as long ago as a minute it counts for a third.

Source: Kafka's MinFetchRate, which is the one-minute rate of a Meter of Yammer's metrics.
"""

from __future__ import annotations

import math

import attrs

TICK_SECONDS = 5.0
"""Between two corrections of the rate."""

WEIGHT = 1 - math.exp(-TICK_SECONDS / 60)
"""Of the newest tick."""


@attrs.define
class FetchRate:
    """Times are readings of one clock, in seconds; the first tick begins at ``since``."""

    since: float
    _rate: float | None = None
    _count: int = 0

    def mark(self, now: float) -> None:
        """It has happened once more."""
        self._tick(now)
        self._count += 1

    def per_second(self, now: float) -> float:
        """Return how often it happens; in the first tick what there was."""
        self._tick(now)
        if self._rate is None:
            return self._count / TICK_SECONDS
        return self._rate

    def _tick(self, now: float) -> None:
        ticks = int((now - self.since) / TICK_SECONDS)
        if ticks <= 0:
            return
        self.since += ticks * TICK_SECONDS
        latest, self._count = self._count / TICK_SECONDS, 0
        self._rate = latest if self._rate is None else self._rate + WEIGHT * (latest - self._rate)
        # Nothing has happened in the others.
        self._rate *= (1 - WEIGHT) ** (ticks - 1)
