"""The tasks of a running broker's event loop, for the admin app.

Connections are tasks, so there may be ten thousand; they are read in turns, and those of one nursery that wait for the
same are one row.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import trio
from trio.lowlevel import Task

from broker_admin.views.node.tasks import SlowStep, TaskInfo, TaskTree
from trio_broker.broker_view.node.step_monitor import StepMonitor
from trio_broker.broker_view.node.task_frames import TaskPlace, place_of
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.network.loop_monitor import LoopMonitor
from trio_broker.network.socket_server import SocketServer
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.measurement import perf_counter_ns

MAX_ROWS = 500
"""Rows of a report, about 200 bytes each; a broker has some thirty, whatever its connections."""

SLOWEST_STEPS = 20
"""Steps that are named."""


@attrs.define
class TaskGroup:
    """Tasks of one nursery with the same name that wait in the same place, and have no nursery of their own."""

    name: str
    place: TaskPlace
    tasks: list[Task] = attrs.field(factory=list)


@attrs.define
class TaskWalk:
    """One walk over the tree, which makes rows of it."""

    monitor: LoopMonitor
    steps: StepMonitor
    budget: YieldBudget = attrs.field(factory=YieldBudget)
    rows: list[TaskInfo] = attrs.field(factory=list)
    tasks: int = 0
    shown: int = 0

    async def add(self, group: TaskGroup, parent_id: int | None, depth: int, nursery: int) -> None:
        """Add a row for ``group``, and those of its task's nurseries below it."""
        self.tasks += len(group.tasks)
        task_id = len(self.rows)
        if task_id < MAX_ROWS:
            self.shown += len(group.tasks)
            self.rows.append(self._row(group, task_id, parent_id, depth, nursery))
        for number, children in enumerate([list(each.child_tasks) for each in group.tasks[0].child_nurseries]):
            for child in await self._groups(children):
                await self.add(child, task_id, depth + 1, number)

    async def _groups(self, tasks: Iterable[Task]) -> list[TaskGroup]:
        """``tasks`` of one nursery, oldest first, equal ones together."""
        groups: dict[object, TaskGroup] = {}
        for task in sorted(tasks, key=lambda each: self.monitor.spawned_ns.get(each, 0)):
            await self.budget.maybe_yield()
            place = place_of(task)
            key: object = task if task.child_nurseries else (task.name, place)
            groups.setdefault(key, TaskGroup(task.name, place)).tasks.append(task)
        return list(groups.values())

    def _row(self, group: TaskGroup, task_id: int, parent_id: int | None, depth: int, nursery: int) -> TaskInfo:
        now_ns = perf_counter_ns()
        spawned = [self.monitor.spawned_ns[each] for each in group.tasks if each in self.monitor.spawned_ns]
        stepped = [self.steps.last_steps[each] for each in group.tasks if each in self.steps.last_steps]
        return TaskInfo(
            task_id=task_id,
            parent_id=parent_id,
            depth=depth,
            nursery=nursery,
            name=group.name,
            count=len(group.tasks),
            waits_for=group.place.waits_for,
            waits_in=group.place.waits_in,
            age_seconds=(now_ns - min(spawned)) / 1e9 if spawned else None,
            waits_seconds=(now_ns - min(stepped)) / 1e9 if stepped else None,
        )


class LiveTasksView:
    """The part of the admin app's view that is about the tasks of the event loop."""

    def __init__(self, server: SocketServer, clock: Clock) -> None:
        self._clock_of_steps = clock
        self._loop_monitor = server.monitor
        self._step_monitor = StepMonitor()
        self._walking = trio.Lock()

    async def tree(self) -> TaskTree:
        async with self._walking:
            self._step_monitor.want()
            walk = TaskWalk(self._loop_monitor, self._step_monitor)
            root = trio.lowlevel.current_root_task()
            assert root is not None, "this runs in the event loop"
            await walk.add(TaskGroup(root.name, place_of(root), [root]), None, 0, 0)
            return TaskTree(
                tasks=walk.tasks,
                rows=tuple(walk.rows),
                further_tasks=walk.tasks - walk.shown,
                slowest_pass_ms=tuple(each / 1e6 for each in self._loop_monitor.slowest_passes_ns),
                timed_seconds=self._step_monitor.timed_seconds,
                slowest_steps=self._slow_steps(),
            )

    def _slow_steps(self) -> tuple[SlowStep, ...]:
        now_ms, now_ns = self._clock_of_steps.now_ms(), perf_counter_ns()
        return tuple(
            SlowStep(
                ended_at_ms=now_ms - (now_ns - step.ended_ns) // 1_000_000,
                milliseconds=step.duration_ns / 1e6,
                task=step.task_name,
                stopped_in=step.stopped_in,
            )
            for step in self._step_monitor.slowest(SLOWEST_STEPS)
        )
