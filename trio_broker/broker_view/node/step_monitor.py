"""How long single steps of tasks hold the event loop, timed for as long as somebody wants to know.

A step is what a task does between two waits. Timing each costs 1.2 us, most of it in Trio, where a small
request takes two to four steps: some hundredths of a busy broker's time. So it is installed on demand and removes
itself.
"""

from __future__ import annotations

from collections import deque

import attrs
import trio

from trio_broker.broker_view.node.task_frames import place_of
from trio_broker.runtime.measurement import perf_counter_ns

WANTED_SECONDS = 60.0
"""How long steps are timed after the last time somebody asked."""

SLOW_STEP_NS = 1_000_000
"""Shorter steps are not worth a line: ten small requests take as long."""

MAX_SLOW_STEPS = 500
"""Slow steps kept; with more in a minute the oldest are forgotten."""


@attrs.frozen
class TimedStep:
    """A slow step: when it ended (``perf_counter_ns``), how long it took, whose it was, and where it stopped."""

    ended_ns: int
    duration_ns: int
    task_name: str
    stopped_in: str


class StepMonitor(trio.abc.Instrument):
    """Times the steps of the loop that it is installed in; ``last_steps`` has when each task ran last."""

    def __init__(self) -> None:
        self.last_steps: dict[trio.lowlevel.Task, int] = {}
        self._steps: deque[TimedStep] = deque(maxlen=MAX_SLOW_STEPS)
        self._began_ns = 0
        self._installed_ns: int | None = None
        self._wanted_until_ns = 0

    def want(self) -> None:
        """Time steps from now on, for ``WANTED_SECONDS``."""
        now_ns = perf_counter_ns()
        self._wanted_until_ns = now_ns + round(WANTED_SECONDS * 1e9)
        if self._installed_ns is None:
            self._installed_ns = now_ns
            trio.lowlevel.add_instrument(self)

    def _stop(self) -> None:
        trio.lowlevel.remove_instrument(self)
        self._installed_ns = None
        self._began_ns = 0
        self.last_steps.clear()

    @property
    def timed_seconds(self) -> float:
        """For how long steps have been timed; 0 while they are not."""
        return 0.0 if self._installed_ns is None else (perf_counter_ns() - self._installed_ns) / 1e9

    def slowest(self, count: int) -> list[TimedStep]:
        """The slowest steps of the last minute, slowest first."""
        since_ns = perf_counter_ns() - round(WANTED_SECONDS * 1e9)
        recent = [step for step in self._steps if step.ended_ns >= since_ns]
        return sorted(recent, key=lambda step: -step.duration_ns)[:count]

    # ---- called by Trio

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_ns = perf_counter_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        now_ns = perf_counter_ns()
        self.last_steps[task] = now_ns
        duration_ns = now_ns - self._began_ns
        # The first step after the installation has no beginning.
        if duration_ns > SLOW_STEP_NS and self._began_ns:
            self._steps.append(TimedStep(now_ns, duration_ns, task.name, place_of(task).waits_in))
        if now_ns > self._wanted_until_ns:
            self._stop()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.last_steps.pop(task, None)
