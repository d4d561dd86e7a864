"""How busy the event loop is.

A Trio instrument with two hooks: the loop works from the end of one wait for I/O to the beginning of the next. It
costs about a microsecond per pass of the loop, which carries many requests when the loop is busy. A ratio near 1 means
that the interpreter lock limits the broker: thread settings do not help then, only more nodes.

An instrument that is added in the middle of a pass would see its end first, so the count starts at the first wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import trio

from trio_broker.network.busy_time import BusyTime


class LoopMonitor(trio.abc.Instrument):
    """Measures the loop that it is installed in."""

    def __init__(self) -> None:
        self.busy_time = BusyTime()
        self.passes = 0

    def before_io_wait(self, timeout: float) -> None:
        """The loop has run every task that could run."""
        if self.busy_time.depth:
            self.busy_time.exit()

    def after_io_wait(self, timeout: float) -> None:
        """There may be something to do again."""
        meter = self.busy_time
        self.passes += 1
        # ``BusyTime.enter`` written out: this runs at every pass of the loop.
        if not meter.depth:
            meter.since_ns = perf_counter_ns()
            meter.depth = 1

    @contextmanager
    def installed(self) -> Iterator[LoopMonitor]:
        """Measure the loop of the calling task while the block runs."""
        trio.lowlevel.add_instrument(self)
        try:
            yield self
        finally:
            trio.lowlevel.remove_instrument(self)
