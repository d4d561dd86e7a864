"""The sink: rows of a frame or a stream become records.

Each task writes its rows with an idempotent producer and ends when all of them are acknowledged. A task that failed has
written some of its rows, and Spark runs it again: so a row may be written more than once, never less. Kafka cannot take
records back outside a transaction, and the sink has no transactions yet; so ``commit`` and ``abort`` do nothing. A
stream adds row ids to its records instead, by which consumers recognise repeated ones (``producer.row_ids``).

Options and columns are checked in the driver, before any task starts.

Source: docs/spark-sink.md; KafkaWriter of Spark's connector; pyspark.sql.datasource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.write_options import TOPIC, WriteOptions, write_options
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.row_ids import NO_BATCH, TaskId
from trio_broker.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
"""The local property that Spark sets for each task of a micro-batch."""

COLUMN_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, DoubleType),
    "headers": (ArrayType,),
}

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


@attrs.frozen
class TaskReport(WriterCommitMessage):
    """The result of one task: the number of rows, and the last offset in each partition, -1 where it is not known."""

    record_count: int
    last_offsets: Mapping[TopicPartition, int]


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame. Row ids, if any, are of this one run of the job: another run makes others."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job_id = uuid4()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of one task.

        Raises:
            SparkJobError: a row cannot be written, or was not acknowledged in time.
        """
        task = _task_context().partitionId()
        return _write(iterator, self.options, TaskId(self.job_id, NO_BATCH, task), first_partition=task)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of one task of a micro-batch; errors are those of ``BatchWriter.write``."""
        task_id = stream_task_id(_task_context())
        # Otherwise every micro-batch would begin at the same partition, and small ones would all go to it.
        return _write(iterator, self.options, task_id, first_partition=task_id.batch_id + task_id.task)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a frame.

    Raises:
        OptionError: an option is wrong.
        UnwritableRow: a column is missing or has a wrong type.
        SparkJobError: the mode asks for more than appending.
    """
    if overwrite:
        raise SparkJobError("a topic is only ever appended to: write with mode('append'); 'overwrite' is not possible")
    return BatchWriter(_checked(write_options(options, Mode.BATCH), schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream; errors are those of ``batch_writer``.

    In output mode ``complete`` each micro-batch appends the whole result again, as with Spark's own Kafka sink.
    """
    return StreamWriter(_checked(write_options(options, Mode.STREAM), schema))


def _checked(options: WriteOptions, schema: StructType) -> WriteOptions:
    check_columns(schema, options)
    return options


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Compare the columns of a frame with those of a record; other columns are ignored.

    Raises:
        UnwritableRow: one is missing or has a wrong type.
    """
    found: dict[str, DataType] = {}
    for field in schema.fields:
        found.setdefault(field.name, field.dataType)
    if "value" not in found:
        raise UnwritableRow("there is no column 'value', which becomes the records' value")
    if options.topic is None and "topic" not in found:
        raise UnwritableRow(f"no topic is named: there is neither an option {TOPIC.name!r} nor a column 'topic'")
    for name, kinds in COLUMN_TYPES.items():
        if name not in found or (name == "topic" and options.topic is not None):
            continue
        kind = found[name]
        if not isinstance(kind, kinds) or (name == "headers" and not _is_headers(kind)):
            expected = HEADERS_TYPE if name == "headers" else " or ".join(each().simpleString() for each in kinds)
            raise UnwritableRow(f"column {name!r} is of type {kind.simpleString()}; it must be {expected}")


def _is_headers(kind: DataType) -> bool:
    return kind.simpleString().lower() == HEADERS_TYPE


def stream_task_id(context: TaskContext) -> TaskId:
    """Return the id of the running task, the same for every attempt.

    Raises:
        SparkJobError: it belongs to no streaming query.
    """
    query_id, batch_id = context.getLocalProperty(QUERY_ID_PROPERTY), context.getLocalProperty(BATCH_ID_PROPERTY)
    if query_id is None or batch_id is None:
        raise SparkJobError("the task does not know its query and micro-batch: Spark set no such properties")
    return TaskId(UUID(query_id), int(batch_id), context.partitionId())


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SparkJobError("rows are written by tasks of Spark, and this is none")
    return context


def _write(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, task_id: TaskId, *, first_partition: int
) -> TaskReport:
    from trio_broker.spark.producer.producer_pool import PRODUCERS
    from trio_broker.spark.producer.record_writer import RecordWriter

    producer = PRODUCERS.acquire(options.producer)
    try:
        with RecordWriter(
            options.producer,
            topic=options.topic,
            include_headers=options.include_headers,
            task_id=task_id if options.deduplication_header else None,
            first_partition=first_partition,
            producer=producer,
        ) as writer:
            for batch in batches:
                writer.write(batch)
    finally:
        PRODUCERS.release(producer)
    return TaskReport(writer.written.record_count, writer.written.last_offsets)
