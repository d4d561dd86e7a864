"""Runs a function once for each task of a plan, in Spark's tasks, and collects what it returns.

Each task of the plan is the one element of a partition of an RDD; the function reads it and keeps the rows to itself.
Only its results come back. So Spark places, repeats and cancels the tasks, while rows never cross into the JVM, which
is what costs most (a microsecond of a core for three rows). A frame would do as well, by ``mapInArrow``; but PySpark
refuses that where pandas is not installed, and nothing here is in need of pandas.

A function may run several times for one task, even twice at once: a task that failed is repeated, a slow one may be run
a second time. Exactly one of its results is handed out. What a function leaves behind elsewhere must therefore have a
name that no other attempt uses, and count only if its result names it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.tasks import ReadTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result: TypeAlias = dict[str, Any]
"""What a task tells the driver: names and values that can be pickled."""

TaskFunction: TypeAlias = Callable[[int, ReadTask], list[Result]]
"""Called with the number of the task and the task. It is pickled itself: a function of a module, or an attrs object."""

TasksDone: TypeAlias = Callable[[int], None]
"""Told from time to time how many of the tasks are done."""

SECONDS_BETWEEN_LOOKS: Final = 0.3
"""How often Spark is asked how many tasks are done."""


class TaskFailed(SparkJobError):
    """A task failed as often as Spark tries; the text is that of its last error."""


class TaskRunner(Protocol):
    """Who runs the tasks of a plan."""

    def parallelism(self) -> int:
        """Return how many tasks run at once."""
        ...

    def run(
        self, tasks: Sequence[ReadTask], function: TaskFunction, on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        """Return what ``function`` returned for each of ``tasks``, in their order.

        Raises:
            SparkJobError: a task failed for good.
        """
        ...


@attrs.frozen
class LocalTaskRunner:
    """Runs one task after the other right here: for tests, and for measuring what Spark adds."""

    def parallelism(self) -> int:
        return 1

    def run(
        self, tasks: Sequence[ReadTask], function: TaskFunction, on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        results = []
        for number, task in enumerate(tasks):
            results.append(function(number, task))
            if on_done is not None:
                on_done(number + 1)
        return results


@attrs.frozen
class SparkTaskRunner:
    """Runs the tasks in Spark's."""

    spark: SparkSession

    def parallelism(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def run(
        self, tasks: Sequence[ReadTask], function: TaskFunction, on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        if not tasks:
            return []
        from pyspark.errors import PySparkException

        elements = self.spark.sparkContext.parallelize(list(enumerate(tasks)), numSlices=len(tasks))
        try:
            with _watched(self.spark, on_done):
                collected = elements.map(_task_body(function)).collect()
        except PySparkException as error:
            raise TaskFailed(reason_of(error)) from error
        return [results for _, results in sorted(collected, key=lambda each: each[0])]


def run_tasks(
    spark: SparkSession, tasks: Sequence[ReadTask], function: TaskFunction, on_done: TasksDone | None = None
) -> list[list[Result]]:
    """Return what ``function(number, task)`` returned for each task, run inside Spark's tasks.

    Raises:
        TaskFailed: a task failed for good.
    """
    return SparkTaskRunner(spark).run(tasks, function, on_done)


def _task_body(function: TaskFunction) -> Callable[[tuple[int, ReadTask]], tuple[int, list[Result]]]:
    """Return what a Spark task does with its element."""

    def body(element: tuple[int, ReadTask]) -> tuple[int, list[Result]]:
        number, task = element
        return number, function(number, task)

    return body


@contextmanager
def _watched(spark: SparkSession, on_done: TasksDone | None) -> Iterator[None]:
    """Let a thread tell ``on_done`` how many tasks of the jobs started meanwhile are done; nothing without one."""
    if on_done is None:
        yield
        return
    context = spark.sparkContext
    group = f"trio-broker-{uuid.uuid4().hex}"
    context.setJobGroup(group, "trio-broker pipeline", interruptOnCancel=True)
    ended = threading.Event()

    def look() -> None:
        tracker = context.statusTracker()
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            on_done(sum(stage.numCompletedTasks for stage in stages if stage))

    watcher = threading.Thread(target=look, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # the JVM takes it for "unset"


def reason_of(error: Exception) -> str:
    """Return in one line why a Spark job failed: the text of the Python error in the worker, if that is what it was."""
    from pyspark.errors import PySparkException

    parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
    lines = [line for line in (parameters or {}).get("traceback", str(error)).splitlines() if line.strip()]
    # A traceback's own lines are indented. Of several chained errors the last is the one that the task ended with.
    for line in reversed(lines):
        if not line.startswith((" ", "\t")) and ": " in line:
            name, _, text = line.partition(": ")
            if name.startswith("trio_broker."):
                return text
            if name.isidentifier() or all(part.isidentifier() for part in name.split(".")):
                return f"{name.rpartition('.')[2]}: {text}"
    return lines[0] if lines else type(error).__name__
