"""The sink: rows of a frame or a stream become records.

Each task writes its rows with an idempotent producer and ends when all of them are acknowledged. A task that failed has
written some of its rows, and Spark runs it again. With ``exactly-once`` each attempt writes in a transaction, which it
leaves open: ``commit``, in the driver, commits those of the attempts that count (``exactly_once``). Otherwise
``commit`` and ``abort`` do nothing, and a stream adds row ids to its records, by which consumers recognise repeated
ones (``producer.row_ids``).

Options and columns are checked in the driver, before any task starts. What only tasks or commits need is imported
there: Spark plans each query, and commits each micro-batch, in a process of its own.

Source: docs/spark-sink.md; KafkaWriter of Spark's connector; pyspark.sql.datasource.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
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

from trio_broker.client.errors import ClientError
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.job_errors import without_traceback
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.write_options import TOPIC, WriteOptions, write_options
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.row_ids import NO_BATCH, TaskId
from trio_broker.spark.workarounds.worker_memory import keeping_loaded

if TYPE_CHECKING:
    import pyarrow as pa

    from trio_broker.spark.exactly_once.committer import Committer
    from trio_broker.spark.exactly_once.decision import TaskTransaction

log = logging.getLogger(__name__)

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
"""The local property that Spark sets for each task of a micro-batch."""

ONLY_BATCH: Final = 0
"""The number of the batch in decisions about a job that has one."""

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
    """The result of one task: the number of rows, and the last offset in each partition, -1 where it is not known.

    ``job`` is that of a task that writes in transactions, and ``transaction`` its own, which is still open; None if it
    wrote no rows.
    """

    record_count: int
    last_offsets: Mapping[TopicPartition, int]
    job: str = ""
    transaction: TaskTransaction | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame. Row ids, if any, are of this one run of the job: another run makes others."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job_id = uuid4()

    def require_topic(self) -> None:
        """Make sure, in the driver, that the topic of the options exists; topics of a column are looked up by tasks.

        Raises:
            TargetError, ClientError: as ``target_topic.partition_count``.
        """
        if self.options.topic is not None:
            from trio_broker.spark.producer.target_topic import require_topic

            require_topic(self.options.producer, self.options.topic, create=self.options.create_topics)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of one task.

        Raises:
            SparkJobError: a row cannot be written, or was not acknowledged in time.
        """
        task = _task_context().partitionId()
        return _write(iterator, self.options, TaskId(self.job_id, NO_BATCH, task), self._job, first_partition=task)

    @property
    def _job(self) -> str:
        return f"batch-{self.options.write_id or self.job_id.hex}"

    @property
    def _is_repeatable(self) -> bool:
        return self.options.write_id is not None

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote, unless it was written under this name before.

        Raises:
            SparkJobError, ClientError: as ``Committer.commit``.
        """
        _commit(self.options, self._job, messages, ONLY_BATCH, is_repeatable=self._is_repeatable)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what the tasks wrote."""
        _abort(self.options, self._job, messages, is_repeatable=self._is_repeatable)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of one task of a micro-batch; errors are those of ``BatchWriter.write``."""
        task_id = stream_task_id(_task_context())
        # Otherwise every micro-batch would begin at the same partition, and small ones would all go to it.
        job = f"stream-{task_id.query_id}"
        return _write(iterator, self.options, task_id, job, first_partition=task_id.batch_id + task_id.task)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit what the tasks of a micro-batch wrote, or what an earlier run of it decided to commit.

        Raises:
            SparkJobError, ClientError: as ``Committer.commit``.
        """
        _commit(self.options, _job_of(messages), messages, batchId, is_repeatable=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort what the tasks of a micro-batch wrote."""
        _abort(self.options, _job_of(messages), messages, is_repeatable=True)


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
    ignored = {"topic": options.topic is not None, "timestamp": not options.include_timestamp}
    for name, kinds in COLUMN_TYPES.items():
        if name not in found or ignored.get(name, False):
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


@keeping_loaded("sink")
def _write(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, task_id: TaskId, job: str, *, first_partition: int
) -> TaskReport:
    from trio_broker.spark.exactly_once.task_transactions import in_transaction, written_in
    from trio_broker.spark.producer.producer_pool import PRODUCERS
    from trio_broker.spark.producer.record_writer import RecordWriter

    producer = PRODUCERS.acquire(options.producer)
    try:
        with in_transaction(producer, job if options.is_exactly_once else None, task_id.batch_id) as begun:
            with RecordWriter(
                options.producer,
                topic=options.topic,
                include_headers=options.include_headers,
                include_timestamp=options.include_timestamp,
                task_id=task_id if options.deduplication_header else None,
                first_partition=first_partition,
                create_topics=options.create_topics,
                producer=producer,
            ) as writer:
                for batch in batches:
                    writer.write(batch)
            written = written_in(producer, begun, task_id.task, writer.written.record_count)
    finally:
        producer.leave_transaction()
        PRODUCERS.release(producer)
    job_of_report = job if options.is_exactly_once else ""
    return TaskReport(writer.written.record_count, writer.written.last_offsets, job_of_report, written)


def _commit(
    options: WriteOptions, job: str, messages: Sequence[WriterCommitMessage | None], batch: int, *, is_repeatable: bool
) -> None:
    # Without a job no task has run at all, so there is no transaction of this run.
    if options.is_exactly_once and job:
        _committer(options, job, is_repeatable=is_repeatable).commit(batch, _transactions(messages))


def _abort(
    options: WriteOptions, job: str, messages: Sequence[WriterCommitMessage | None], *, is_repeatable: bool
) -> None:
    if not (options.is_exactly_once and job):
        return
    try:
        _committer(options, job, is_repeatable=is_repeatable).abort(_transactions(messages))
    # The job has failed already, and its own error is what the user must see.
    except (ClientError, SparkJobError) as error:
        log.warning("what %s wrote could not be aborted, and ends when it times out: %s", job, error)


def _committer(options: WriteOptions, job: str, *, is_repeatable: bool) -> Committer:
    # Here, since Spark starts a process for each commit, which without transactions has nothing to do.
    from trio_broker.spark.exactly_once.committer import Committer

    return Committer(options.producer, options.commit_topic, job, is_repeatable, options.lost_transactions)


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    """Return the reports of the tasks that ended well."""
    return [each for each in messages if isinstance(each, TaskReport)]


def _job_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return the job, of which only the tasks of a stream know; "" if none of them has ended well."""
    return next((each.job for each in _reports(messages)), "")


def _transactions(messages: Sequence[WriterCommitMessage | None]) -> list[TaskTransaction]:
    return [each.transaction for each in _reports(messages) if each.transaction is not None]
