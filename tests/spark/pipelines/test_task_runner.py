"""Functions run inside Spark's tasks: their results, and the error when one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.pipelines.memory_log import InMemory, batch, task_on
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, TaskFailed
from trio_broker.spark.tasks import ReadTask, read_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = InMemory(tuple(batch(offset) for offset in range(0, 60, 3)))


def tasks(count: int) -> list[ReadTask]:
    return [task_on(LOG, number, 2 * number) for number in range(1, count + 1)]


def count_rows(number: int, task: ReadTask) -> list[Result]:
    return [{"task": number, "rows": sum(batch.num_rows for batch in read_task(task))}]


def test_results_come_in_the_order_of_the_tasks():
    reported: list[int] = []
    assert LocalTaskRunner().run(tasks(3), count_rows, reported.append) == [
        [{"task": 0, "rows": 1}],
        [{"task": 1, "rows": 2}],
        [{"task": 2, "rows": 3}],
    ]
    assert reported == [1, 2, 3]


@pytest.mark.spark
def test_spark_gives_the_same_results_as_this_process(spark: SparkSession):
    assert SparkTaskRunner(spark).run(tasks(11), count_rows) == LocalTaskRunner().run(tasks(11), count_rows)


@pytest.mark.spark
def test_no_tasks_are_no_job(spark: SparkSession):
    assert SparkTaskRunner(spark).run([], count_rows) == []


@pytest.mark.spark
def test_spark_tells_how_many_tasks_are_done(spark: SparkSession):
    reported: list[int] = []

    def slow(number: int, task: ReadTask) -> list[Result]:
        import time

        time.sleep(0.4)  # longer than Spark is left alone between two looks
        return []

    SparkTaskRunner(spark).run(tasks(6), slow, reported.append)
    assert reported == sorted(reported)
    assert 0 < max(reported) <= 6
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.spark
def test_what_went_wrong_in_a_task_is_reported_in_one_line(spark: SparkSession):
    def lose(number: int, task: ReadTask) -> list[Result]:
        from trio_broker.spark.errors import DataLoss

        raise DataLoss(task.offsets.partition, task.offsets.start_offset, "the segment is gone")

    with pytest.raises(TaskFailed) as caught:
        SparkTaskRunner(spark).run(tasks(1), lose)
    assert str(caught.value) == "orders-0 at offset 1: the segment is gone"


@pytest.mark.spark
def test_what_nobody_foresaw_is_reported_with_its_name(spark: SparkSession):
    def fail(number: int, task: ReadTask) -> list[Result]:
        try:
            raise KeyError("first")
        except KeyError:
            raise OSError(28, "No space left on device") from None

    with pytest.raises(TaskFailed, match=r"^OSError: \[Errno 28\] No space left on device$"):
        SparkTaskRunner(spark).run(tasks(1), fail)


@pytest.mark.spark
def test_a_package_that_executors_lack_is_reported_with_where_to_install_it(spark: SparkSession):
    def lack(number: int, task: ReadTask) -> list[Result]:
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401

        return []

    expected = (
        r"^No module named 'no_such_package': install trio-broker\[spark-provided\] in the Python of Spark's executors$"
    )
    with pytest.raises(TaskFailed, match=expected):
        SparkTaskRunner(spark).run(tasks(1), lack)


@pytest.mark.spark
def test_as_many_tasks_run_at_once_as_there_are_cores(spark: SparkSession):
    assert SparkTaskRunner(spark).parallelism() == 2
