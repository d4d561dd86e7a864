"""Export: topics to a table, all columns unchanged; a directory of Parquet files, Iceberg or Delta.

Files are written inside the tasks, so that no row crosses into the JVM; that takes a quarter to two thirds of the time
of ``df.write.parquet`` from the same source. A table is partitioned by topic and day, and holds each record exactly
once (``micro_batches``). Running an export again goes on where the last run ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.table_jobs.micro_batches import JobReport, TableJob, file_result, run_job
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, TaskRunner
from trio_broker.spark.schema import COLUMNS, arrow_schema
from trio_broker.spark.tables.local_files import HIDDEN
from trio_broker.spark.tables.table import Partitioning, TableFiles, TableShape
from trio_broker.spark.tables.table_writer import FileSettings, TableWriter
from trio_broker.spark.tables.target import Target, parse_target
from trio_broker.spark.tasks import ReadTask, read_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND: Final = "export"

ROWS: Final = "rows"
"""The name of an export's only table in commits and reports."""

OPAQUE: Final = frozenset({"key", "value", "headers"})
"""Columns that are not interpreted: files keep no smallest and largest value of them."""


@attrs.frozen
class WriteRows:
    """The function of an export's tasks: writes the rows of a range to files."""

    files: TableFiles
    settings: FileSettings

    def __call__(self, number: int, task: ReadTask) -> list[Result]:
        with TableWriter(self.files, self.settings, number, task.offsets.partition.topic) as writer:
            for batch in read_task(task):
                writer.write(batch)
            return [file_result(ROWS, file) for file in writer.finish()]


@attrs.frozen
class ExportSettings:
    """The settings of an export, except for the source.

    Without ``checkpoint`` the commit log is in the table's directory; the directory of an Iceberg table is known to its
    catalog only, so an export to Iceberg needs ``checkpoint``.
    """

    target: Target
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


def checkpoint_of(target: Target, checkpoint: Path | None, kind: str) -> Path:
    """Return the directory of the commit log of a job that writes ``target``.

    Raises:
        OptionError: the table is not a directory, and ``checkpoint`` is None.
    """
    if checkpoint is not None:
        return checkpoint
    if target.directory is None:
        raise OptionError("checkpoint", f"say where the job is to note what it did: {target} is not a directory")
    return target.directory / HIDDEN / kind


def export(
    spark: SparkSession,
    options: Mapping[str, str],
    to: str | Target,
    *,
    files: FileSettings | None = None,
    trigger: Trigger | None = None,
    checkpoint: Path | str | None = None,
    progress: Progress | None = None,
) -> JobReport:
    """Copy the new records of topics to a table, and return what was done. ``options`` are those of the data source.

    Raises:
        SparkJobError: it cannot go on; committed batches stay, and another call goes on from there.
    """
    settings = ExportSettings(
        to if isinstance(to, Target) else parse_target(to),
        files or FileSettings(),
        trigger or Trigger(),
        None if checkpoint is None else Path(checkpoint),
    )
    with JobSource.of(read_job_options(options, settings.trigger)) as source:
        return run_export(source, settings, lambda: SparkTaskRunner(spark), progress=progress)


def read_job_options(options: Mapping[str, str], trigger: Trigger) -> ReadOptions:
    """Parse the data source's options of a job that writes tables.

    Raises:
        OptionError: one is wrong, or not possible for such a job.
    """
    given = read_options(options, Mode.BATCH)
    for name in options:
        if name.lower() in ("columns", "includeheaders"):
            raise OptionError(name, "which columns are read is the job's own business")
        if name.lower().startswith("ending") and trigger.interval_seconds is not None:
            raise OptionError(name, "a job that waits for more has no end")
    return given


def run_export(
    source: JobSource, settings: ExportSettings, runner: Callable[[], TaskRunner], *, progress: Progress | None = None
) -> JobReport:
    """As ``export``; ``runner`` is called only if there is something to read.

    Raises:
        SparkJobError: as ``export``.
    """
    table = settings.target.table(TableShape(arrow_schema(COLUMNS), Partitioning.TOPIC_AND_DATE, OPAQUE))
    job = TableJob(
        kind=KIND,
        settings={"table": str(settings.target)},
        checkpoint=settings.checkpoint_directory,
        tables={ROWS: table},
        # Some tables do not store the topic in their files; reading it costs little, as it is the same in all rows.
        columns=COLUMNS,
        function=lambda needs: WriteRows(needs[ROWS], settings.files),
    )
    return run_job(job, source, runner, settings.trigger, progress=progress)
