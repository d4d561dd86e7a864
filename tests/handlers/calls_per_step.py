"""What the tasks of a loop do between two yields, counted in calls of functions, which no machine changes."""

from __future__ import annotations

import itertools
from _lsprof import Profiler, profiler_entry
from collections.abc import Iterator
from contextlib import contextmanager

import trio


class CallsPerStep(trio.abc.Instrument):
    """Counts the calls in each step of every task; ``most`` is the largest count.

    The profiler of the standard library asks its timer when a function is entered and when it is left, so a timer that
    counts how often it is asked counts calls. A function of Python's own, called at each call, would take several times
    as long as what is counted.
    """

    def __init__(self) -> None:
        self.most = 0
        self._longest = ""
        self._asked = itertools.count()
        self._asked_before = 0
        self._profiler = Profiler(self._asked.__next__, 1.0, subcalls=False, builtins=True)

    @property
    def where(self) -> str:
        """The task of the largest step, and what was called most in all steps together."""
        called = sorted(((entry.callcount, name_of(entry)) for entry in self._profiler.getstats()), reverse=True)
        return f"{self.most} in a step of {self._longest}; in all steps {called[:5]}"

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._asked_before = next(self._asked)
        # Between two steps nothing is counted: of the loop itself there is more than of short steps.
        self._profiler.enable()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.stop()
        calls = (next(self._asked) - self._asked_before) // 2
        if calls > self.most:
            self.most, self._longest = calls, task.name

    def stop(self) -> None:
        """Count no longer, from the middle of a step on as well."""
        self._profiler.disable()


def name_of(entry: profiler_entry) -> str:
    return entry.code if isinstance(entry.code, str) else entry.code.co_qualname


@contextmanager
def calls_per_step() -> Iterator[CallsPerStep]:
    """Count the calls in each step of the running loop while the block lasts."""
    calls = CallsPerStep()
    trio.lowlevel.add_instrument(calls)
    try:
        yield calls
    finally:
        calls.stop()
        trio.lowlevel.remove_instrument(calls)
