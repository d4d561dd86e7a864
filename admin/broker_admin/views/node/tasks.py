"""The tasks of the event loop that the broker runs in."""

from __future__ import annotations

from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class TaskInfo:
    """A task, or ``count`` tasks of one nursery that do and wait for the same.

    ``task_id`` is the number of the row; ``parent_id`` the row of the task whose nursery it is in, None for the first;
    ``nursery`` numbers the nurseries of that task. ``waits_for`` is the call of Trio that it waits in, empty for a task
    that can run; ``waits_in`` is the place in the broker's code that made it. ``age_seconds`` is that of the oldest,
    None for tasks from before the broker's start; ``waits_seconds`` is since its last step, None until steps are timed.
    """

    task_id: int
    parent_id: int | None
    depth: int
    nursery: int
    name: str
    count: int
    waits_for: str
    waits_in: str
    age_seconds: float | None
    waits_seconds: float | None


@attrs.frozen
class SlowStep:
    """A step of a task that held the event loop for ``milliseconds``, and where it stopped."""

    ended_at_ms: int
    milliseconds: float
    task: str
    stopped_in: str


@attrs.frozen(kw_only=True)
class TaskTree:
    """The tasks, in the order of the tree, at most some hundred rows.

    ``slowest_pass_ms`` has the longest pass of the event loop in each of the last seconds, oldest first; all tasks that
    can run take one step in a pass. Single steps are timed while somebody looks at this, and for a minute after:
    ``timed_seconds`` says for how long they have been.
    """

    tasks: int
    rows: tuple[TaskInfo, ...]
    further_tasks: int
    slowest_pass_ms: tuple[float, ...]
    timed_seconds: float
    slowest_steps: tuple[SlowStep, ...]


class TasksView(Protocol):
    """The tasks of the event loop, as the admin app sees them."""

    async def tree(self) -> TaskTree:
        """All tasks, read in turns, so they may have moved on meanwhile. One report at a time."""
        ...
