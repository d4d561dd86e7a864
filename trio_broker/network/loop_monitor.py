"""How busy the event loop is.

A Trio instrument: the loop works from the end of one wait for I/O to the beginning of the next. It costs about a
microsecond per pass of the loop, which carries many requests when the loop is busy, and less for each task that can run
again, begins or ends, whose age it knows thereby. A ratio near 1 means that the interpreter lock limits the broker:
thread settings do not help then, only more nodes.

An instrument that is added in the middle of a pass would see its end first, so the count starts at the first wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from trio_broker.common.busy_time import BusyTime
from trio_broker.network.request_metrics import RECENT_INTERVALS
from trio_broker.runtime.measurement import perf_counter_ns

SEVERAL = 2
"""Tasks, or more: they are not counted."""


class LoopMonitor(trio.abc.Instrument):
    """Measures the loop that it is installed in."""

    def __init__(self) -> None:
        self.busy_time = BusyTime()
        self.passes = 0
        self.tasks_scheduled = SEVERAL
        """How many tasks could run since the last wait: with 1, none but the one that runs now."""
        self.spawned_ns: dict[trio.lowlevel.Task, int] = {}
        """When each task began, for those that began while this was installed."""
        self.slowest_passes_ns: deque[int] = deque(maxlen=RECENT_INTERVALS)
        """The longest pass of each of the last seconds, oldest first."""
        self._slowest_ns = 0

    def before_io_wait(self, timeout: float) -> None:
        """The loop has run every task that could run."""
        # Those that could before the wait make it one of no time, and are not counted again.
        self.tasks_scheduled = 0 if timeout > 0 else SEVERAL
        meter = self.busy_time
        if meter.depth:
            before_ns = meter.busy_ns
            meter.exit()
            pass_ns = meter.busy_ns - before_ns
            if pass_ns > self._slowest_ns:
                self._slowest_ns = pass_ns

    def after_io_wait(self, timeout: float) -> None:
        """There may be something to do again."""
        meter = self.busy_time
        self.passes += 1
        # ``BusyTime.enter`` written out: this runs at every pass of the loop.
        if not meter.depth:
            meter.since_ns = perf_counter_ns()
            meter.depth = 1

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.tasks_scheduled += 1

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.spawned_ns[task] = perf_counter_ns()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.spawned_ns.pop(task, None)

    def roll(self) -> None:
        """Close an interval; called about once a second."""
        self.slowest_passes_ns.append(self._slowest_ns)
        self._slowest_ns = 0

    @contextmanager
    def installed(self) -> Iterator[LoopMonitor]:
        """Measure the loop of the calling task while the block runs."""
        trio.lowlevel.add_instrument(self)
        try:
            yield self
        finally:
            trio.lowlevel.remove_instrument(self)
            self.spawned_ns.clear()
