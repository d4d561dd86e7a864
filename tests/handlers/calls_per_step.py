"""What the tasks of a loop do between two yields, counted in calls of functions, which no machine changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

import trio


class CallsPerStep(trio.abc.Instrument):
    """Counts the calls in each step of every task; ``most`` is the largest count, ``where`` what called most in it."""

    def __init__(self) -> None:
        self.most = 0
        self.where: list[tuple[int, str]] = []
        self._callers: dict[int, tuple[int, CodeType]] = {}

    def count(self, frame: FrameType, event: str, argument: object) -> None:
        """Called by the interpreter at each call of a function, of Python's or of C's."""
        if event == "call" or event == "c_call":
            # By its identity: to hash a code object takes long.
            code = frame.f_code
            calls, _ = self._callers.get(id(code), (0, code))
            self._callers[id(code)] = calls + 1, code

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._callers = {}
        # Between two steps nothing is counted: of the loop itself there is more than of short steps.
        sys.setprofile(self.count)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        callers, self._callers = self._callers, {}
        if (total := sum(calls for calls, _ in callers.values())) > self.most:
            self.most = total
            self.where = sorted(((calls, code.co_qualname) for calls, code in callers.values()), reverse=True)[:5]


@contextmanager
def calls_per_step() -> Iterator[CallsPerStep]:
    """Count the calls in each step of the running loop while the block lasts."""
    calls = CallsPerStep()
    trio.lowlevel.add_instrument(calls)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        trio.lowlevel.remove_instrument(calls)
