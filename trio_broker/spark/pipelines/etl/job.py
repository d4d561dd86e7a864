"""ETL: topics of JSON to a table with typed columns, and a second table of dead letters.

A record that does not fit the columns goes to the dead letters, unchanged, with the reason; no record is lost, and none
stops the job. Both tables are written by one commit (``micro_batches``), so that each record is in exactly one of them,
once, also when the job is killed.

The JSON is parsed inside the tasks (``typed_json``); Spark's ``from_json`` would take rows through the JVM, and does
not report which field was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.etl.column_types import StructType
from trio_broker.spark.pipelines.etl.ddl import parse_ddl
from trio_broker.spark.pipelines.export.job import checkpoint_of, read_job_options
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.table_jobs.micro_batches import JobReport, TableJob, file_result, run_job
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, TaskRunner
from trio_broker.spark.schema import arrow_schema
from trio_broker.spark.tables.table import TableFiles, TableShape
from trio_broker.spark.tables.table_writer import FileSettings, TableWriter
from trio_broker.spark.tables.target import Target, parse_target
from trio_broker.spark.tasks import ReadTask, read_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

KIND: Final = "etl"

ROWS: Final = "rows"
DEAD_LETTERS: Final = "dead_letters"
"""The names of the two tables in commits and reports."""

READ_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
"""The columns of a record that a dead letter keeps."""

ORIGIN_COLUMNS: Final = {
    "kafka_topic": "topic",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    "kafka_timestamp": "timestamp",
}
"""The columns of a record that its row has with ``with_origin``, by their names in the table."""

ERROR: Final = "error"


@attrs.frozen
class EtlSettings:
    """The settings of an ETL, except for the source. ``with_origin`` adds a record's place and time to its row."""

    columns: StructType
    target: Target
    dead_letters: Target
    with_origin: bool = False
    files: FileSettings = attrs.field(factory=FileSettings)
    trigger: Trigger = attrs.field(factory=Trigger)
    checkpoint: Path | None = None

    @property
    def checkpoint_directory(self) -> Path:
        """The directory of the job's commit log.

        Raises:
            OptionError: as ``checkpoint_of``.
        """
        return checkpoint_of(self.target, self.checkpoint, KIND)

    def row_shape(self) -> TableShape:
        """Return the shape of the table of rows."""
        schema = self.columns.arrow_schema()
        if self.with_origin:
            records = arrow_schema(ORIGIN_COLUMNS.values())
            for name, column in ORIGIN_COLUMNS.items():
                schema = schema.append(records.field(column).with_name(name))
        return TableShape(schema)


def dead_letter_shape() -> TableShape:
    """Return the shape of the table of dead letters."""
    import pyarrow as pa

    schema = arrow_schema(READ_COLUMNS).append(pa.field(ERROR, pa.string()))
    return TableShape(schema, opaque=frozenset({"key", "value"}))


@attrs.frozen
class WriteTypedRows:
    """The function of an ETL's tasks: writes each record of a range to one of the two tables."""

    rows: TableFiles
    dead_letters: TableFiles
    columns: StructType
    with_origin: bool
    settings: FileSettings

    def __call__(self, number: int, task: ReadTask) -> list[Result]:
        with (
            TableWriter(self.rows, self.settings, number) as rows,
            TableWriter(self.dead_letters, self.settings, number) as dead_letters,
        ):
            for typed, dead in self._separate(task):
                rows.write(typed)
                dead_letters.write(dead)
            return [
                *(file_result(ROWS, file) for file in rows.finish()),
                *(file_result(DEAD_LETTERS, file) for file in dead_letters.finish()),
            ]

    def _separate(self, task: ReadTask) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield the rows and the dead letters of each batch."""
        import pyarrow as pa

        from trio_broker.spark.pipelines.etl.typed_json import RowReader

        reader = RowReader(self.columns)
        for batch in read_task(task):
            found = reader.read(batch.column("value").to_pylist())
            typed = found.batch
            if self.with_origin:
                origins = batch.take(pa.array(found.valid, pa.int64()))
                for name, column in ORIGIN_COLUMNS.items():
                    typed = typed.append_column(name, origins.column(column))
            dead = batch.select(READ_COLUMNS).take(pa.array(found.invalid, pa.int64()))
            yield typed, dead.append_column(ERROR, pa.array(found.reasons, pa.string()))


def etl_settings(
    schema: str,
    target: Target,
    *,
    dead_letters: Target | None = None,
    with_origin: bool = False,
    files: FileSettings | None = None,
    trigger: Trigger | None = None,
    checkpoint: Path | None = None,
) -> EtlSettings:
    """Return the checked settings of an ETL.

    Raises:
        OptionError: the schema cannot be parsed or has a column of the origin, or both tables are the same.
    """
    try:
        columns = parse_ddl(schema)
    except ValueError as error:
        raise OptionError("schema", str(error)) from None
    names = {each.name.lower() for each in columns.fields}
    if with_origin and (taken := sorted(names & ORIGIN_COLUMNS.keys())):
        raise OptionError("schema", f"{', '.join(taken)}: so the columns are called that say where a row is from")
    beside = target.dead_letters if dead_letters is None else dead_letters
    if beside == target:
        raise OptionError("dead-letters", f"{beside} is the table of the rows as well")
    return EtlSettings(columns, target, beside, with_origin, files or FileSettings(), trigger or Trigger(), checkpoint)


def etl(
    spark: SparkSession,
    options: Mapping[str, str],
    schema: str,
    to: str | Target,
    *,
    dead_letters: str | Target | None = None,
    with_origin: bool = False,
    files: FileSettings | None = None,
    trigger: Trigger | None = None,
    checkpoint: Path | str | None = None,
    progress: Progress | None = None,
) -> JobReport:
    """Copy the new records of topics of JSON to a table with the columns of ``schema``, and return what was done.

    Raises:
        SparkJobError: it cannot go on; committed batches stay, and another call goes on from there.
    """
    settings = etl_settings(
        schema,
        parse_target(to) if isinstance(to, str) else to,
        dead_letters=parse_target(dead_letters) if isinstance(dead_letters, str) else dead_letters,
        with_origin=with_origin,
        files=files,
        trigger=trigger,
        checkpoint=None if checkpoint is None else Path(checkpoint),
    )
    with JobSource.of(read_job_options(options, settings.trigger)) as source:
        return run_etl(source, settings, lambda: SparkTaskRunner(spark), progress=progress)


def run_etl(
    source: JobSource, settings: EtlSettings, runner: Callable[[], TaskRunner], *, progress: Progress | None = None
) -> JobReport:
    """As ``etl``; ``runner`` is called only if there is something to read.

    Raises:
        SparkJobError: as ``etl``.
    """
    job = TableJob(
        kind=KIND,
        settings={
            "table": str(settings.target),
            "dead letters": str(settings.dead_letters),
            "schema": settings.columns.columns_ddl(),
            "origin": settings.with_origin,
        },
        checkpoint=settings.checkpoint_directory,
        tables={
            ROWS: settings.target.table(settings.row_shape()),
            DEAD_LETTERS: settings.dead_letters.table(dead_letter_shape()),
        },
        columns=READ_COLUMNS,
        function=lambda needs: WriteTypedRows(
            needs[ROWS], needs[DEAD_LETTERS], settings.columns, settings.with_origin, settings.files
        ),
    )
    return run_job(job, source, runner, settings.trigger, progress=progress)
