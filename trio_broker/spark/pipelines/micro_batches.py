"""Fills tables from topics, micro-batch by micro-batch, each record exactly once, whenever the job is killed.

    plan a batch → tasks write files → commit log: "batch 7 is these files, read up to here" → tables add them → "done"
                                      ^ from here on the batch counts

Killed before the commit log has the batch, no commit names the files: the next run removes them and reads the same
records again. Killed after that, the next run gives the tables the files that the commit log names; a table does
nothing for a batch that it has. With several tables the same holds for each, so that all of them end with the same
batches.

Only the results of the tasks that succeeded in Spark's eyes name files. Another attempt of the same task may have
written the same rows; its files have other names and are removed with the rest.
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
from trio_broker.spark.pipelines.positions import Offsets, behind, check_topics, find_target, next_batch
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.task_runner import Result, TaskFunction, TaskRunner, TasksDone
from trio_broker.spark.pipelines.trigger import Trigger
from trio_broker.spark.planning.offset_planning import initial_offsets
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tables.table import DataFile, Table, TableFiles

log = logging.getLogger(__name__)

TABLE: Final = "table"
"""In a task's result: the name of the table that a file is for."""


@attrs.frozen
class JobReport:
    """What one run did. ``offsets`` counts what was read, ``rows`` and ``files`` what each table got."""

    job_id: str
    batches: int
    offsets: int
    rows: Mapping[str, int]
    files: Mapping[str, int]
    size_bytes: int
    seconds: float


@attrs.frozen
class TableJob:
    """A job that fills tables.

    ``kind`` and ``settings`` are what must stay the same for a checkpoint. ``function`` makes, from what each table
    needs, the function that a task runs; its results are those of ``file_result``. ``columns`` are what tasks read.
    """

    kind: str
    settings: Mapping[str, Any]
    checkpoint: Path
    tables: Mapping[str, Table]
    columns: tuple[str, ...]
    function: Callable[[Mapping[str, TableFiles]], TaskFunction]


def file_result(table: str, file: DataFile) -> Result:
    """Return what a task tells of a file that it wrote for a table."""
    return {TABLE: table, **file.document()}


def run_job(
    job: TableJob,
    source: JobSource,
    runner: Callable[[], TaskRunner],
    trigger: Trigger | None = None,
    *,
    progress: Progress | None = None,
) -> JobReport:
    """Run ``job`` from where it ended last, and return what this run did. ``runner`` is not asked for without need.

    Raises:
        SparkJobError: the job cannot go on; what was committed before stays.
    """
    with CommitLog(job.checkpoint).open(job.kind, job.settings) as commits, ExitStack() as stack:
        run = JobRun(
            job, source, runner, commits, trigger or Trigger(), stack.enter_context(progress or Progress(job.kind))
        )
        run.recover()
        run.begin()
        started = monotonic()
        while True:
            looked = monotonic()
            run.read_what_is_there()
            if run.trigger.interval_seconds is None:
                run.clean()
                return run.report(monotonic() - started)
            sleep(max(0.0, looked + run.trigger.interval_seconds - monotonic()))


@attrs.define
class JobRun:
    """One run of a job, while it lasts."""

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
        """Open the tables, finish the last commit of an earlier run, and remove the files that it did not commit."""
        for table in self.job.tables.values():
            table.open(self.commits.job_id, self.run_id)
        if not self.commits.last_is_finished and self.commits.last is not None:
            log.info("batch %d was committed by an earlier run and is finished now", self.commits.last.batch)
            self._apply(self.commits.last)
        self._first_batch = self.commits.next_batch
        self.clean()

    def clean(self) -> None:
        """Remove files that no commit names; at the end once more, for tasks of an earlier run that ended meanwhile."""
        for table in self.job.tables.values():
            table.clean(self._first_batch)

    def begin(self) -> None:
        """At the first start of a job, note where it begins, in a commit without files."""
        if self.commits.last is None:
            options, offset_source = self.source.options, self.source.offset_source
            offsets = initial_offsets(options, offset_source)
            self.commits.prepare(
                offsets, self._facts([], offset_source.topic_ids(sorted({each.topic for each in offsets})))
            )
            self.commits.finish()

    def read_what_is_there(self) -> None:
        """Read up to where the logs end now, batch by batch.

        Raises:
            DataLoss: under ``failOnDataLoss``, something between is gone.
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
        ids = {**known, **offset_source.topic_ids(sorted({each.topic for each in target.ends}))}
        left = list(target.ranges)
        self.progress.grow(target.offset_count)
        while left:
            ranges = next_batch(left, self.trigger.batch_records)
            self._run_batch(ranges, position, ids)
            left = behind(left, ranges)

    def report(self, seconds: float) -> JobReport:
        """Return what this run did so far."""
        return JobReport(
            self.commits.job_id, self.batches, self.offsets, self.rows, self.files, self.size_bytes, seconds
        )

    def _run_batch(self, ranges: Sequence[OffsetRange], position: Offsets, topic_ids: Mapping[str, str]) -> None:
        count = sum(each.offset_count for each in ranges)
        self._runner = self._runner or self.start_runner()
        tasks = self.source.tasks(ranges, self.job.columns, self._runner.parallelism(), topic_ids)
        needs = {name: table.files(self.commits.next_batch) for name, table in self.job.tables.items()}
        results = self._runner.run(tasks, self.job.function(needs), self._teller(count, len(tasks)))
        found = [result for of_task in results for result in of_task]
        ends = {each.partition: each.end_offset for each in ranges}
        position.update(ends)
        self._apply(self.commits.prepare(position, self._facts(found, topic_ids)))
        self._count(found, count)

    def _teller(self, offsets: int, tasks: int) -> TasksDone | None:
        """Return what is told how many tasks are done; Spark is not asked for that where nobody looks."""
        if not self.progress.is_shown:
            return None
        return lambda done: self.progress.set_running(offsets * done // tasks)

    def _apply(self, commit: Commit) -> None:
        """Let the tables add the files of a commit, and note that they have."""
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
