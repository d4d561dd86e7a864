"""Reads a batch: everything between two offsets of each partition, which are fixed when the frame is planned.

PySpark asks for the partitions once for each frame, not for each query of it: a frame stands for the records that were
in the topics when it was first used. Loading it again reads what has been appended since.

Source: pyspark.sql.datasource.DataSourceReader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from trio_broker.spark.job_errors import without_traceback
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_option_table import COLUMNS
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.schema import columns_of
from trio_broker.spark.task_partition import input_partitions, read_partition
from trio_broker.spark.task_planning import plan_batch_tasks
from trio_broker.spark.workarounds.column_hint import ColumnHint

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """The reader of one frame. PySpark pickles it before ``partitions`` is called, so ``read`` cannot use any state
    of it."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], *, columns_are_chosen: bool = True) -> None:
        self._options = options
        self._columns = columns
        self._hint = ColumnHint(columns, columns_are_chosen)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the frame.

        Raises:
            OptionError, DataLoss, SourceUnavailable: as ``plan_batch_tasks``.
        """
        tasks = plan_batch_tasks(self._options, self._columns)
        self._hint.count(sum(task.offsets.offset_count for task in tasks))
        return input_partitions(tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, in a worker."""
        return read_partition(partition)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch of the columns in ``schema``.

    Raises:
        OptionError: an option is wrong, or a column.
    """
    return BatchReader(
        read_options(options, Mode.BATCH), columns_of(schema), columns_are_chosen=COLUMNS.name in options
    )
