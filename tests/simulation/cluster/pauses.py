"""Processes that stand still, as after SIGSTOP: none of their tasks runs until they go on.

Time passes meanwhile, and what happens to the tasks, such as an answer or the end of a wait, is there when they go on.
What was due in the same round of the event loop still runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import trio


@attrs.define(eq=False)
class Pauses:
    """The tasks that stand still, each below a root that was given to ``pause``."""

    _held: dict[trio.lowlevel.Task, list[trio.lowlevel.Task]] = attrs.field(factory=dict)

    def pause(self, root: trio.lowlevel.Task) -> None:
        """Let ``root`` and all tasks below it stand still."""
        self._held.setdefault(root, [])

    def resume(self, root: trio.lowlevel.Task) -> None:
        """Let them go on, in the order in which they could have."""
        if (held := self._held.pop(root, None)) is not None:
            _runner().runq.extend(held)

    def hold_back(self, task: trio.lowlevel.Task) -> bool:
        """Hold a task back that is ready; return whether it stands still."""
        root: trio.lowlevel.Task | None = task
        while root is not None and root not in self._held:
            root = None if root.parent_nursery is None else root.parent_nursery.parent_task
        if root is None:
            return False
        self._held[root].append(task)
        return True

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have Trio ask before it lets a task run."""
        runner: Any = trio._core._run.Runner
        reschedule = runner.reschedule

        def unless_held(self_: Any, task: trio.lowlevel.Task, *arguments: Any) -> None:
            reschedule(self_, task, *arguments)
            # Behind it: what a task waited for is over, whether it runs now or later.
            if self._held and self.hold_back(task):
                last = self_.runq.pop()
                assert last is task, "the task that is ready comes last"

        with patch.object(runner, "reschedule", unless_held):
            yield


def _runner() -> Any:
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner
