"""A clock that runs as the machine's does and can be moved ahead, for a broker's parts and its event loop alike.

Being a clock of Trio's too, it takes along whatever sleeps: after a jump every deadline that lies behind is due. So a
week of retention passes in the moment that its work takes.
"""

from __future__ import annotations

import time

import attrs
import trio


@attrs.define(eq=False)
class AdvancingClock(trio.abc.Clock):
    """The system's time plus what was added. ``advance`` belongs in the thread of the loop that runs by this clock."""

    ahead_seconds: float = 0.0

    def now_ms(self) -> int:
        return (time.time_ns() + round(self.ahead_seconds * 1e9)) // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        assert seconds >= 0, f"time passes forward, not by {seconds} s"
        self.ahead_seconds += seconds

    def start_clock(self) -> None:
        """Trio begins to run by this clock; it runs already."""

    def current_time(self) -> float:
        return self.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
