"""Permits that come at a rate, and of which so many may be saved up.

Source: Kafka's TokenBucket; KIP-599.
"""

from __future__ import annotations

from trio_broker.runtime.clock import Clock


class MutationTokens:
    """Holds what ``burst_seconds`` bring. It may be overdrawn once, and then gives nothing until the debt is paid.

    The rate is given with each call, since it may change.
    """

    def __init__(self, clock: Clock, burst_seconds: float) -> None:
        self._clock = clock
        self._burst_seconds = burst_seconds
        self._tokens: float | None = None
        self._filled_at = clock.monotonic()

    def seconds_in_debt(self, per_second: float) -> float:
        """How long nothing may be taken; 0 where something may."""
        return max(0.0, -self._filled(per_second) / per_second)

    def take(self, permits: float, per_second: float) -> None:
        """Take ``permits``, more than there are if need be."""
        self._tokens = self._filled(per_second) - permits

    def _filled(self, per_second: float) -> float:
        now, capacity = self._clock.monotonic(), per_second * self._burst_seconds
        tokens = capacity if self._tokens is None else self._tokens + (now - self._filled_at) * per_second
        self._filled_at, self._tokens = now, min(tokens, capacity)
        return self._tokens
