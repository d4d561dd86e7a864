"""Jobs that copy topics to tables in micro-batches, each record exactly once, also when the job is killed.

    plan a batch → tasks write files → commit log: "batch 7 is these files, read up to here" → tables add them → "done"
                                      ^ from here on the batch is committed

A job that is killed before the commit log has the batch leaves files that no commit names: the next run removes them
and reads the same records again. After a later kill the next run gives the tables the files that the commit log names;
a table ignores a batch that it already has. With several tables the same holds for each, so that all of them end with
the same batches.

Only tasks that Spark counts as successful name files. Another attempt of the same task may have written the same rows;
its files have other names and are removed with the files that no commit names.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import attrs

from trio_broker.spark.pipelines.commit_log import Commit, CommitLog
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.progress import COMMITTING, READING, WAITING, Progress
from trio_broker.spark.pipelines.table_jobs.positions import Offsets, find_target, next_batch, remaining_ranges
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.pipelines.task_runner import Result, TaskFunction, TaskRunner
from trio_broker.spark.planning.offset_planning import check_topics, initial_offsets, known_topic_ids
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tables.table import DataFile, Table, TableFiles
from trio_broker.spark.tasks import ReadTask

log = logging.getLogger(__name__)

TABLE: Final = "table"
"""The key, in a task's result, of the table that a file belongs to."""


@attrs.frozen
class JobReport:
    """What one run did: the offsets read in all, and the rows and files written to each table."""

    job_id: str
    batches: int
    offsets: int
    rows: Mapping[str, int]
    files: Mapping[str, int]
    size_bytes: int
    seconds: float


@attrs.frozen
class TableJob:
    """A job that writes tables.

    ``kind`` and ``settings`` must stay the same for a checkpoint. ``function`` takes the files of each table by the
    table's name and returns the function of the tasks, whose results are those of ``file_result``. ``columns`` are the
    columns that tasks read.
    """

    kind: str
    settings: Mapping[str, Any]
    checkpoint: Path
    tables: Mapping[str, Table]
    columns: tuple[str, ...]
    function: Callable[[Mapping[str, TableFiles]], TaskFunction[ReadTask]]


def file_result(table: str, file: DataFile) -> Result:
    """Return a task's result for a file that it wrote for a table."""
    return {TABLE: table, **file.document()}


def run_job(
    job: TableJob,
    source: JobSource,
    runner: Callable[[], TaskRunner],
    trigger: Trigger | None = None,
    *,
    progress: Progress | None = None,
) -> JobReport:
    """Run ``job`` from where its last run ended. ``runner`` is called only if there is something to read.

    ``progress`` is one that its owner has entered; without it the job shows one of its own.

    Raises:
        SparkJobError: the job cannot go on; committed batches stay.
    """
    with CommitLog(job.checkpoint).open(job.kind, job.settings) as commits, ExitStack() as stack:
        if progress is None:
            progress = stack.enter_context(Progress(job.kind))
        run = JobRun(job, source, runner, commits, trigger or Trigger(), progress)
        run.recover()
        run.begin()
        started = monotonic()
        while True:
            looked = monotonic()
            run.read_new_records()
            if run.trigger.interval_seconds is None:
                run.clean()
                return run.report(monotonic() - started)
            run.progress.phase(WAITING, is_counting=False)
            sleep(max(0.0, looked + run.trigger.interval_seconds - monotonic()))


@attrs.define
class JobRun:
    """The state of one run of a job."""

    job: TableJob
    source: JobSource
    start_runner: Callable[[], TaskRunner]
    commits: CommitLog
    trigger: Trigger
    progress: Progress
    batches: int = 0
    offsets: int = 0
    size_bytes: int = 0
    rows: dict[str, int] = attrs.field(factory=dict)
    files: dict[str, int] = attrs.field(factory=dict)
    run_id: str = attrs.field(factory=lambda: secrets.token_hex(4))
    _first_batch: int = 0
    _runner: TaskRunner | None = None

    def recover(self) -> None:
        """Open the tables, finish the last commit of an earlier run, and remove files that no commit names."""
        for table in self.job.tables.values():
            table.open(self.commits.job_id, self.run_id)
        if not self.commits.last_is_finished and self.commits.last is not None:
            log.info("batch %d was committed by an earlier run and is finished now", self.commits.last.batch)
            self._apply(self.commits.last)
        # Only after that: the files of an unfinished commit may still be staged.
        self._first_batch = self.commits.next_batch
        self.clean()

    def clean(self) -> None:
        """Remove the files that no commit names.

        Called at the start, and at the end once more: Spark does not wait for the tasks of a run that failed, so one of
        them may have written a file after this run had started.
        """
        for table in self.job.tables.values():
            table.clean(self._first_batch)

    def begin(self) -> None:
        """At the first start of a job, commit the offsets that it begins at, as a batch without files.

        Otherwise a first run that is killed would leave nothing, and the next one would begin at another "latest".
        """
        if self.commits.last is None:
            options, offset_source = self.source.options, self.source.offset_source
            offsets = initial_offsets(options, offset_source)
            self.commits.prepare(
                offsets, self._facts([], offset_source.topic_ids(sorted({each.topic for each in offsets})))
            )
            self.commits.finish()

    def read_new_records(self) -> None:
        """Read up to the present ends of the logs, batch by batch.

        Raises:
            DataLoss: under ``failOnDataLoss``, records that were not read yet are gone.
        """
        options, offset_source = self.source.options, self.source.offset_source
        assert self.commits.last is not None
        known = self.commits.last.facts.get("topic_ids", {})
        position = check_topics(
            known,
            offset_source.topic_ids(sorted(known)),
            self.commits.offsets,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        target = find_target(options, offset_source, position)
        ids = known_topic_ids(known, offset_source.topic_ids(sorted({each.topic for each in target.ends})))
        remaining = list(target.ranges)
        self.progress.grow(target.offset_count)
        while remaining:
            ranges = next_batch(remaining, self.trigger.batch_records)
            self._run_batch(ranges, position, ids)
            remaining = remaining_ranges(remaining, ranges)

    def report(self, seconds: float) -> JobReport:
        """Return what this run has done so far."""
        return JobReport(
            self.commits.job_id, self.batches, self.offsets, self.rows, self.files, self.size_bytes, seconds
        )

    def _run_batch(self, ranges: Sequence[OffsetRange], position: Offsets, topic_ids: Mapping[str, str]) -> None:
        count = sum(each.offset_count for each in ranges)
        self._runner = self._runner or self.start_runner()
        tasks = self.source.tasks(ranges, self.job.columns, self._runner.parallelism(), topic_ids)
        needs = {name: table.files(self.commits.next_batch) for name, table in self.job.tables.items()}
        self.progress.phase(READING)
        results = self._runner.run(
            tasks, self.job.function(needs), lambda done: self.progress.set_running(count * done // len(tasks))
        )
        found = [result for of_task in results for result in of_task]
        self.progress.phase(COMMITTING)
        ends = {each.partition: each.end_offset for each in ranges}
        position.update(ends)
        # Prepare, then apply: see the module's text for what a kill between the two means.
        self._apply(self.commits.prepare(position, self._facts(found, topic_ids)))
        self._count(found, count)

    def _apply(self, commit: Commit) -> None:
        """Add the files of a commit to the tables, and mark the commit as applied."""
        for name, table in self.job.tables.items():
            table.commit(commit.batch, [DataFile(**document) for document in commit.facts["files"].get(name, ())])
        self.commits.finish()

    def _facts(self, found: Sequence[Result], topic_ids: Mapping[str, str]) -> dict[str, Any]:
        by_table: dict[str, list[Result]] = {name: [] for name in self.job.tables}
        for result in found:
            by_table[result[TABLE]].append({key: value for key, value in result.items() if key != TABLE})
        return {"files": by_table, "topic_ids": dict(topic_ids)}

    def _count(self, found: Sequence[Result], offsets: int) -> None:
        self.batches += 1
        self.offsets += offsets
        for result in found:
            table = result[TABLE]
            self.rows[table] = self.rows.get(table, 0) + result["rows"]
            self.files[table] = self.files.get(table, 0) + 1
            self.size_bytes += result["size_bytes"]
        self.progress.advance(offsets)
