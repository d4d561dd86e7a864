"""The format ``trio_broker``: the class that PySpark asks for a schema, a reader or a writer.

PySpark makes an object of this class many times, in short-lived processes of its own: when a frame is loaded, when it
is planned, when a stream starts. Hence nothing here asks a cluster for anything but the writer of a frame, and nothing
heavy is imported before rows are read. Objects travel between those processes as pickles, and classes by their names,
so the package has to be installed where the tasks run.

There is deliberately no ``pushFilters``. In PySpark up to 4.3 a filter that one query pushes to a reader stays with it
when another query of the same frame is planned, and rows go missing; and while the feature is off, which is the
default, a reader that merely has the method cannot be used.

Source: pyspark.sql.datasource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from trio_broker.spark.job_errors import without_traceback
from trio_broker.spark.workarounds.worker_memory import keeping_loaded

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trio_broker.spark.batch_reader import BatchReader
    from trio_broker.spark.sink import BatchWriter, StreamWriter
    from trio_broker.spark.stream_reader import StreamReader

FORMAT: Final = "trio_broker"
"""The name in ``format(...)``; without a hyphen, so that SQL needs no quotes around it."""

PLANNING: Final = "planning"
"""A kind of task for ``keeping_loaded``. PySpark makes a writer to plan each micro-batch, and another to commit it."""


class TrioBrokerDataSource(DataSource):
    """Topics as frames. Methods have PySpark's names and are called by it, by keyword."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @without_traceback
    @keeping_loaded(PLANNING)
    def schema(self) -> str:
        """Return the columns of a frame without a schema of the user's.

        Raises:
            OptionError: an option is wrong for batches and streams alike. Whether the frame is a batch or a stream is
            not
                known yet; what is wrong for one of them only is reported by its reader.
        """
        from trio_broker.spark.options.read_options import schema_of

        return schema_of(self.options)

    @without_traceback
    @keeping_loaded(PLANNING)
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch of the columns in ``schema``."""
        from trio_broker.spark.batch_reader import batch_reader

        return batch_reader(self.options, schema)

    @without_traceback
    @keeping_loaded(PLANNING)
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a stream of the columns in ``schema``."""
        from trio_broker.spark.stream_reader import stream_reader

        return stream_reader(self.options, schema)

    @without_traceback
    @keeping_loaded(PLANNING)
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a frame with the columns in ``schema``. The topic of the options is looked up, so that a
        misspelt one ends the job before it begins.

        Raises:
            TargetError: it does not exist, and is not to be created.
        """
        from trio_broker.spark.sink import batch_writer

        writer = batch_writer(self.options, schema, overwrite)
        writer.require_topic()
        return writer

    @without_traceback
    @keeping_loaded(PLANNING)
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a stream with the columns in ``schema``."""
        from trio_broker.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
