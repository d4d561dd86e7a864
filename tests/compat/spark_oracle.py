"""The same Spark job by Spark's own Kafka source and by ours, and what came of it.

Spark's own source is ``spark-sql-kafka-0-10``; its jars (``tests/compat/spark/pom.xml``) must be there when the JVM of
the test run starts. Where they are not, tests that need them are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.read_options import Mode, read_options
from trio_broker.spark.task_planning import plan_batch_tasks
from trio_broker.spark.tasks import read_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA: Final = "kafka"
OURS: Final = "trio_broker"

COMMON: Final = {
    # The one option whose default is another one with us.
    "kafka.isolation.level": "read_uncommitted",
    # Many of the jobs are there to fail; they need not take long.
    "fetchOffset.retryIntervalMs": "1",
    "kafkaConsumer.pollTimeoutMs": "20000",
    # A consumer of Kafka's waits for its last fetch, which has nothing to bring, before it is used again or closed.
    "kafka.fetch.max.wait.ms": "20",
}
"""Options of every job, unless it says otherwise."""

PLACE: Final = ("topic", "partition", "offset")

Row: TypeAlias = tuple[Any, ...]

needs_oracle = pytest.mark.usefixtures("spark_oracle")


@attrs.frozen
class Rows:
    """A job that went well: its rows, by topic, partition and offset, and how many tasks read them."""

    rows: tuple[Row, ...]
    tasks: int

    def __str__(self) -> str:
        return f"{len(self.rows)} rows in {self.tasks} tasks"


@attrs.frozen
class Failure:
    """A job that failed, before or while it read. ``text`` is what its user saw."""

    text: str = attrs.field(eq=False)

    def __str__(self) -> str:
        return "fails"


def run(spark: SparkSession, kind: str, options: Mapping[str, str]) -> Rows | Failure:
    """Read a batch as format ``kind``."""
    try:
        frame = spark.read.format(kind).options(**{**COMMON, **options}).load()
        rows = sorted_rows(frame.collect(), frame.columns)
        return Rows(rows, tasks_of(frame))
    except (PySparkException, Py4JJavaError) as error:
        return Failure(str(error))


def run_without_spark(options: Mapping[str, str]) -> Rows | Failure:
    """Read a batch with our source, as Spark would, but without it, which takes a hundredth of the time."""
    try:
        read = read_options({**COMMON, **options}, Mode.BATCH)
        tasks = plan_batch_tasks(read)
        rows = [tuple(row.values()) for task in tasks for batch in read_task(task) for row in batch.to_pylist()]
    except SparkJobError as error:
        return Failure(str(error))
    return Rows(sorted_rows(rows, read.columns), len(tasks))


def sorted_rows(rows: Iterable[Iterable[Any]], columns: Iterable[str]) -> tuple[Row, ...]:
    """Return ``rows`` as plain values, sorted by where they lie."""
    place = [list(columns).index(column) for column in PLACE]
    return tuple(sorted((plain_row(row) for row in rows), key=lambda row: [row[index] for index in place]))


def plain_row(row: Iterable[Any]) -> Row:
    return tuple(plain(value) for value in row)


def plain(value: Any) -> Any:
    """Return ``value`` as something that is equal whichever engine made it: bytes, milliseconds, tuples."""
    match value:
        case bytearray():
            return bytes(value)
        case datetime():
            return round(value.timestamp() * 1000)
        case dict():
            return plain_row(value.values())
        case list() | tuple():
            return plain_row(value)
        case _:
            return value


def tasks_of(frame: DataFrame) -> int:
    """Return how many tasks read ``frame``. It was used before, so its plan is not made anew."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())
