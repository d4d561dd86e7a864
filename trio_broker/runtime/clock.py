"""The clock of the broker, which tests replace.

Two readings, for two uses: ``now_ms`` is the wall clock, which may jump, and dates records and retention; ``monotonic``
only ever grows, and measures intervals. Deadlines of waiting tasks are Trio's own (``trio.current_time``). Classes that
need the time take a ``Clock``, so that a test advances a week of retention in a microsecond.
"""

from __future__ import annotations

import time
from typing import Protocol

import attrs


class Clock(Protocol):
    """The two readings."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC, as Kafka's timestamps are."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@attrs.define
class ManualClock:
    """A clock that changes by ``advance`` only."""

    time_ms: int = 1_700_000_000_000
    elapsed_seconds: float = 0.0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.elapsed_seconds

    def advance(self, seconds: float) -> None:
        """Advance both readings by ``seconds``."""
        assert seconds >= 0, f"time passes forward, not by {seconds} s"
        self.elapsed_seconds += seconds
        self.time_ms += round(seconds * 1000)
