"""Runs a function for each task of a plan, in Spark's tasks, and collects its results.

Each task of the plan is the one element of a partition of an RDD. The function reads the rows and returns only results,
so that Spark places, repeats and cancels the tasks while no row crosses into the JVM, which would cost most (a
microsecond of a core for three rows). Spark Connect has no RDDs: there a task's element is the one row of a partition
of a frame, and ``mapInArrow`` runs the function. That would do for all sessions; but PySpark refuses it without pandas,
which only clients of Spark Connect need.

A function may run several times for one task, even twice at once: Spark repeats a task that failed, and may run a slow
one a second time. Exactly one of the results is returned. Files that a function writes must therefore have names that
no other attempt uses, and count only if the returned result names them.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

import attrs

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.session import is_connect
from trio_broker.spark.workarounds.worker_memory import keeping_loaded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

Result: TypeAlias = dict[str, Any]
"""What a task returns to the driver: names and values that can be pickled."""

T = TypeVar("T")
"""A task of the plan, which is pickled. A runner passes it to the function and reads nothing of it."""

TaskFunction: TypeAlias = Callable[[int, T], list[Result]]
"""Called with the number of the task and the task. It is pickled: a function of a module, or an attrs object."""

TasksDone: TypeAlias = Callable[[int], None]
"""Called from time to time with the number of tasks that are done."""

Element: TypeAlias = tuple[int, Any]
"""A task with its number in the plan."""

Finished: TypeAlias = tuple[int, list[Result]]
"""The number of a task, and its results."""

TaskBody: TypeAlias = Callable[[Element], Finished]
"""What a Spark task applies to its element."""

SECONDS_BETWEEN_LOOKS: Final = 0.3
"""How often Spark is asked how many tasks are done."""

MOST_PARALLELISM: Final = 1 << 20
"""More tasks than any cluster runs at once."""


class TaskFailed(SparkJobError):
    """A task failed as often as Spark repeats tasks; the text is that of its last error."""


class TaskRunner(Protocol):
    """Runs the tasks of a plan."""

    def parallelism(self) -> int:
        """Return how many tasks run at once."""
        ...

    def run(
        self, tasks: Sequence[T], function: TaskFunction[T], on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        """Return what ``function`` returned for each of ``tasks``, in their order.

        Raises:
            SparkJobError: a task failed for good.
        """
        ...


@attrs.frozen
class SparkTaskRunner:
    """Runs each task of the plan as a task of Spark. The session may be one of Spark Connect."""

    spark: SparkSession

    def parallelism(self) -> int:
        if is_connect(self.spark):
            with _failing_in_one_line():
                return _parallelism_of_server(self.spark)
        return int(self.spark.sparkContext.defaultParallelism)

    def run(
        self, tasks: Sequence[T], function: TaskFunction[T], on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        if not tasks:
            return []
        apply = _apply_in_frame if is_connect(self.spark) else _apply_in_rdd
        with _failing_in_one_line():
            collected = apply(self.spark, _task_body(function), list(enumerate(tasks)), on_done)
        return [results for _, results in sorted(collected, key=lambda each: each[0])]


def _task_body(function: TaskFunction[Any]) -> TaskBody:
    """Return the function that a Spark task applies to its element."""

    def body(element: Element) -> Finished:
        number, task = element
        with keeping_loaded(type(function).__name__):
            return number, function(number, task)

    return body


def _apply_in_rdd(
    spark: SparkSession, body: TaskBody, elements: list[Element], on_done: TasksDone | None
) -> list[Finished]:
    """Apply ``body`` to each of ``elements``, in a session with a ``SparkContext``."""
    with _reporting_progress(spark, on_done):
        return spark.sparkContext.parallelize(elements, numSlices=len(elements)).map(body).collect()


@contextmanager
def _reporting_progress(spark: SparkSession, on_done: TasksDone | None) -> Iterator[None]:
    """Call ``on_done``, from a thread, with the number of finished tasks of the Spark jobs that the block starts.

    The jobs are found by a job group of their own, since the session may run other jobs as well.
    """
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


# --- Spark Connect ---


def _parallelism_of_server(spark: SparkSession) -> int:
    """Return how many tasks the server runs at once: it cuts a range into so many partitions."""
    numbers = spark.range(MOST_PARALLELISM).selectExpr("spark_partition_id() AS number")
    [row] = numbers.selectExpr("1 + max(number) AS count").collect()
    return int(row[0])


def _apply_in_frame(
    spark: SparkSession, body: TaskBody, elements: list[Element], on_done: TasksDone | None
) -> list[Finished]:
    """Apply ``body`` to each of ``elements``, in a session of Spark Connect.

    Every Spark task receives all elements, and unpickles its own. They are some hundred bytes each.
    """
    pickled = [pickle.dumps(element) for element in elements]

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for index in batch.column(0).to_pylist():
                finished = pickle.dumps(body(pickle.loads(pickled[index])))
                yield pa.RecordBatch.from_arrays([pa.array([finished], pa.binary())], ["finished"])

    frame = spark.range(0, len(elements), 1, numPartitions=len(elements)).mapInArrow(rows, "finished BINARY")
    with _reporting_progress_of_server(spark, on_done), _interrupted_by_ctrl_c(spark):
        return [pickle.loads(row.finished) for row in frame.collect()]


@contextmanager
def _interrupted_by_ctrl_c(spark: SparkSession) -> Iterator[None]:
    """Interrupt the jobs of the block on the server at Ctrl-C. PySpark does so only where it runs the driver."""
    tag = f"trio-broker-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        yield
    except KeyboardInterrupt:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


@contextmanager
def _reporting_progress_of_server(spark: SparkSession, on_done: TasksDone | None) -> Iterator[None]:
    """Call ``on_done`` with the number of finished tasks of the operations that run in the session."""
    if on_done is None:
        yield
        return

    def look(stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        on_done(sum(stage.num_completed_tasks for stage in stages or ()))

    handler = cast("ProgressHandler", look)
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


# --- Errors ---


@contextmanager
def _failing_in_one_line() -> Iterator[None]:
    """Make an error of PySpark a ``TaskFailed``."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise TaskFailed(reason_of(error)) from error


def reason_of(error: Exception) -> str:
    """Return in one line why a Spark job failed: the text of the worker's Python error, if there was one."""
    from pyspark.errors import PySparkException

    parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
    lines = [line for line in (parameters or {}).get("traceback", str(error)).splitlines() if line.strip()]
    # A traceback's own lines are indented. Of several chained errors the last is the one that the task ended with.
    for line in reversed(lines):
        if not line.startswith((" ", "\t")) and ": " in line:
            name, _, text = line.partition(": ")
            if name.startswith("trio_broker."):
                return text
            if name == ModuleNotFoundError.__name__:
                return f"{text}: install trio-broker[spark-provided] in the Python of Spark's executors"
            if name.isidentifier() or all(part.isidentifier() for part in name.split(".")):
                return f"{name.rpartition('.')[2]}: {text}"
    return lines[0] if lines else type(error).__name__
