"""The value that PySpark sends from the driver to a task, and how the task reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from trio_broker.spark.job_errors import CutTraceback
from trio_broker.spark.tasks import ReadTask, read_task
from trio_broker.spark.workarounds.early_end import ending_quietly
from trio_broker.spark.workarounds.worker_memory import keeping_loaded

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """One task. ``value`` is the attribute of PySpark's own class, where it is None for a source without partitions."""

    value: ReadTask

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)


def input_partitions(tasks: Iterable[ReadTask]) -> list[InputPartition]:
    """Return a partition for each task, as the list that PySpark requires."""
    return [TaskPartition(task) for task in tasks]


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Return the rows of a partition. For a batch without partitions PySpark makes one with the value None, which is
    empty.

    Raises:
        SparkJobError: as ``read_task``, at the first row or later.
    """
    if partition.value is not None:
        with keeping_loaded("source"), CutTraceback(), ending_quietly():
            yield from read_task(partition.value)
