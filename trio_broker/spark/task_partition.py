"""What PySpark carries from the driver to a task, and how the task is read there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from trio_broker.spark.tasks import ReadTask, read_task

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """One task. ``value`` is what PySpark's own class has; there it is None where a source has no partitions at all."""

    value: ReadTask

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)


def input_partitions(tasks: Iterable[ReadTask]) -> list[InputPartition]:
    """Return a partition for each task. PySpark insists on a list."""
    return [TaskPartition(task) for task in tasks]


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Return the rows of a partition. PySpark makes up a partition of None where a batch has none; that one is empty.

    Raises:
        SparkJobError: as ``read_task``, at the first row or later.
    """
    return iter(()) if partition.value is None else read_task(partition.value)
