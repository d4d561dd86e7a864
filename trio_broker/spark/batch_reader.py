"""Reads a batch: everything between two offsets of each partition, which are found out once.

PySpark asks for the partitions once for each frame, not for each query of it: a frame stands for what was there when it
was first used. Load it again to see what came since.

Source: pyspark.sql.datasource.DataSourceReader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.planner_errors import shown_in_one_line
from trio_broker.spark.task_partition import input_partitions, read_partition
from trio_broker.spark.task_planning import plan_batch_tasks

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """The reader of one frame, pickled as it was made: ``read`` knows nothing that ``partitions`` found out."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @shown_in_one_line
    def partitions(self) -> list[InputPartition]:
        """Return what to read, cut into tasks.

        Raises:
            OptionError, DataLoss, SourceUnavailable: as ``plan_batch_tasks``.
        """
        return input_partitions(plan_batch_tasks(self._options, self._columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, in a worker."""
        return read_partition(partition)
