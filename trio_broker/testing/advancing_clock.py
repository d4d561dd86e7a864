"""A clock that runs like the machine's clock and can be advanced, for a broker's parts and for its event loop.

It is a Trio clock too, so a jump also moves sleeping tasks and deadlines: those that it passes are due at once. A week
of retention then takes only as long as the work that it causes.
"""

from __future__ import annotations

import time

import attrs
import trio


@attrs.define(eq=False)
class AdvancingClock(trio.abc.Clock):
    """The system's time plus the advanced seconds. Only the thread of the event loop may call ``advance``."""

    ahead_seconds: float = 0.0

    def now_ms(self) -> int:
        return (time.time_ns() + round(self.ahead_seconds * 1e9)) // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        # Trio and timers rely on a monotonic clock.
        assert seconds >= 0, f"the clock cannot be moved by {seconds} s"
        self.ahead_seconds += seconds

    def start_clock(self) -> None:
        """Called by Trio at the start of the loop. Nothing to do: the clock runs already."""

    def current_time(self) -> float:
        return self.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
