"""Restore: Parquet files, an export's or any others with a column ``value``, written to a topic.

Columns are those of ``producer.row_columns``: ``key``, ``headers`` and ``timestamp`` where there are any, and
partitions are kept where there is a column ``partition``, unless keys choose them. Rows that have a partition and an
offset are written in that order, whichever files they are in (``parquet_rows``); the broker assigns new offsets.

Rows whose order counts are a group: those of one partition, or those of one file where there are no offsets. As in
``replay`` groups are written in rounds: a round is committed with its slices before it begins, and finished when every
in-sync replica has all of it. A job that was interrupted repeats exactly its last round, in which each row gets the
same row id as before (``producer.row_ids``), made of the job's id, the round, the number of the group and the row's
place in the slice. For that the files must be those of the beginning (``restore_inputs``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import attrs

from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.commit_log import CommitLog, read_last_commit
from trio_broker.spark.pipelines.parquet_parts import RowGroupPart, find_files, group_parts, parts_of
from trio_broker.spark.pipelines.parquet_rows import rows_in_order, written_columns
from trio_broker.spark.pipelines.progress import COMMITTING, WRITING, Progress
from trio_broker.spark.pipelines.restore_inputs import Inputs, digest_of, sizes_of
from trio_broker.spark.pipelines.restore_slices import GroupPositions, RestoreSlice, next_slices, read_slice
from trio_broker.spark.pipelines.round_end import end_round
from trio_broker.spark.pipelines.slice_schedule import slice_records_at
from trio_broker.spark.pipelines.target_topics import CREATE_TOPIC_OPTION, NewTopics, Partitions, prepare_topics
from trio_broker.spark.pipelines.task_runner import Result, TaskRunner
from trio_broker.spark.pipelines.token_bucket import RateLimit, Throttle
from trio_broker.spark.tasks import ReadTask

KIND: Final = "restore"

NAMESPACE: Final = uuid.UUID("3c8a3f0e-1d0b-4f7e-a7a5-6b1f0c9d2e48")
"""The namespace of the job ids in headers, which are made of the ids in commit logs."""

GROUP: Final = "group"
"""A commit log stores the position in a group as an offset of this topic, in the partition of the group's number."""

WRITTEN_ROWS: Final = 16_384
"""Rows that the writer takes at once."""


@attrs.frozen
class RestoreSettings:
    """Where rows go; without ``topic``, to their own topics. ``new`` is how missing topics are created."""

    target: ProducerSettings
    checkpoint: Path
    topic: str | None = None
    partitions: Partitions = Partitions.KEEP
    new: NewTopics | None = None
    limit: RateLimit = attrs.field(factory=RateLimit)
    with_row_ids: bool = True
    is_exactly_once: bool = False

    def identity(self) -> dict[str, Any]:
        """Return the settings that must not change between two runs of one job; nor must the files."""
        return {
            "target": ",".join(map(str, self.target.bootstrap_servers)),
            "topic": self.topic,
            "partitions": self.partitions.value,
            "exactly_once": self.is_exactly_once,
        }


@attrs.frozen
class RestorePlan:
    """What is written, by groups, and the topics that are created for it."""

    groups: tuple[tuple[RowGroupPart, ...], ...]
    new_topics: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows the groups have."""
        return sum(part.rows for group in self.groups for part in group)


@attrs.frozen
class RestoreReport:
    """What one run did; ``files`` is the number of files of the whole job."""

    records: int
    rounds: int
    files: int
    new_topics: tuple[str, ...]
    seconds: float


def plan_restore(paths: Sequence[Path], settings: RestoreSettings, *, dry_run: bool = True) -> RestorePlan:
    """Return what a new job would write, and check all files and the topics. A dry run creates no topic.

    Raises:
        RestoreError: the files cannot be restored.
        TargetError: a topic is missing, or has too few partitions.
        OptionError: neither the settings nor the files name a topic.
        ClientError: the cluster does not answer, or refuses.
    """
    return plan_groups(groups_in(find_files(paths)), settings, dry_run=dry_run)


def groups_in(files: Sequence[Path]) -> tuple[tuple[RowGroupPart, ...], ...]:
    """Return the parts of ``files`` by groups.

    Raises:
        RestoreError: one of them cannot be restored.
    """
    return tuple(group_parts(part for path in files for part in parts_of(path)))


def plan_groups(
    groups: tuple[tuple[RowGroupPart, ...], ...], settings: RestoreSettings, *, dry_run: bool
) -> RestorePlan:
    """Check or create the topics that the rows of ``groups`` go to. Errors are those of ``plan_restore``."""
    needed: dict[str, int] = {}
    for group in groups:
        origin = group[0].origin
        topic = settings.topic or origin.topic
        if not topic:
            raise OptionError("to-topic", f"name one: {group[0].path} says no topic, by a column or a directory")
        kept = origin.partition + 1 if settings.partitions is Partitions.KEEP else 0
        needed[topic] = max(kept, needed.get(topic, 0))
    made = prepare_topics(
        settings.target.bootstrap_servers, needed, new=settings.new, dry_run=dry_run, remedy=CREATE_TOPIC_OPTION
    )
    return RestorePlan(groups, tuple(made))


def restore(
    paths: Sequence[Path],
    settings: RestoreSettings,
    runner: Callable[[], TaskRunner],
    progress: Progress | None = None,
) -> RestoreReport:
    """Write all rows of the files in ``paths``, files or directories, or what an interrupted run of the same job left.

    ``runner`` is called only if something is left.

    Raises:
        SparkJobError, ClientError: as ``plan_restore``, the files have changed since the beginning, or a row could not
            be written. Another call goes on from the last finished round.
    """
    files = find_files(paths)
    groups = None
    if read_last_commit(settings.checkpoint) is None:
        # A first run checks everything before it takes the directory: after an error the directory can still be used
        # for a job with other settings.
        groups = groups_in(files)
        plan_groups(groups, settings, dry_run=True)
    with CommitLog(settings.checkpoint).open(KIND, settings.identity()) as log:
        return _RestoreRun(files, groups, settings, log, runner, progress or Progress(KIND)).run()


@attrs.define
class _RestoreRun:
    """One run of a job. ``groups`` are those in ``files``, None if they have not been read yet."""

    files: Sequence[Path]
    groups: tuple[tuple[RowGroupPart, ...], ...] | None
    settings: RestoreSettings
    log: CommitLog
    runner: Callable[[], TaskRunner]
    progress: Progress

    def run(self) -> RestoreReport:
        """Write what is left."""
        began = time.monotonic()
        plan = self._plan()
        groups = [GroupPositions(number, parts) for number, parts in enumerate(plan.groups)]
        unfinished = self._unfinished(groups)
        self.progress.grow(plan.rows)
        left = self._rows_left(groups, unfinished)
        self.progress.advance(plan.rows - left)
        records = rounds = 0
        if left:
            for written in self._rounds(groups, unfinished, self.runner()):
                records += written
                rounds += 1
        return RestoreReport(records, rounds, len(self.files), plan.new_topics, time.monotonic() - began)

    def _plan(self) -> RestorePlan:
        """Return what the whole job writes. Its first run creates topics, and stores which files there are."""
        sizes = sizes_of(self.files)
        if self.log.last is not None:
            known = Inputs.read(self.log.directory)
            known.require_sizes(sizes)
            groups = groups_in(self.files)
            known.require_digest(digest_of(groups))
            return RestorePlan(groups, ())
        groups = self.groups if self.groups is not None else groups_in(self.files)
        plan = plan_groups(groups, self.settings, dry_run=False)
        # The inputs before the first commit: a later run takes a job with a commit to have them.
        Inputs(sizes, digest_of(groups)).write(self.log.directory)
        starts = {TopicPartition(GROUP, number): group[0].first for number, group in enumerate(groups)}
        self.log.prepare(starts, {"slices": []})
        self.log.finish()
        return plan

    def _unfinished(self, groups: Sequence[GroupPositions]) -> tuple[RestoreSlice, ...]:
        """Return the slices of a round that was begun and not finished."""
        assert self.log.last is not None
        slices = () if self.log.last_is_finished else self.log.last.facts["slices"]
        if not slices and not self.log.last_is_finished:
            # The first commit, which has the starts, and for which nothing has to be done.
            self.log.finish()
        return tuple(read_slice(groups, document) for document in slices)

    def _rows_left(self, groups: Sequence[GroupPositions], unfinished: tuple[RestoreSlice, ...]) -> int:
        """Return an estimate of the rows that finished rounds have left; 0 only if there are none."""
        position = self._positions()
        ahead = sum(each.expected_rows(position[each.group], each.end) for each in groups)
        is_done = not unfinished and all(position[each.group] >= each.end for each in groups)
        return 0 if is_done else max(1, round(ahead) + sum(each.expected_rows for each in unfinished))

    def _positions(self) -> Mapping[int, int]:
        return {each.partition: position for each, position in self.log.offsets.items()}

    def _rounds(
        self, groups: Sequence[GroupPositions], unfinished: tuple[RestoreSlice, ...], runner: TaskRunner
    ) -> Iterator[int]:
        """Write round after round, an unfinished one first; yield how many rows each wrote."""
        most_slices = runner.parallelism()
        slice_rows = slice_records_at(self.settings.limit, most_slices)
        slices = unfinished
        while True:
            if slices:
                records = self._write(slices, runner)
                self.log.finish()
                self.progress.advance(records)
                yield records
            slices = next_slices(groups, self._positions(), most_slices=most_slices, slice_rows=slice_rows)
            if not slices:
                return
            positions = {TopicPartition(GROUP, each.group): each.end for each in slices}
            self.log.prepare(positions, {"slices": [each.document for each in slices]})

    def _write(self, slices: tuple[RestoreSlice, ...], runner: TaskRunner) -> int:
        """Write the rows of a round; return their number."""
        assert self.log.last is not None
        rows = sum(each.expected_rows for each in slices)
        function = WriteSlice(
            settings=self.settings,
            job_id=uuid.uuid5(NAMESPACE, self.log.job_id) if self.settings.with_row_ids else None,
            batch=self.log.last.batch,
            job=f"{KIND}-{self.log.job_id}" if self.settings.is_exactly_once else None,
            limits=tuple(self.settings.limit.share(each.expected_rows, rows) for each in slices),
        )

        def on_done(tasks: int) -> None:
            self.progress.set_running(rows * tasks // len(slices))

        # A runner passes its tasks to the function and reads nothing of them, so that they need not be ReadTasks.
        self.progress.phase(WRITING)
        results = runner.run(cast(Sequence[ReadTask], slices), cast(Any, function), on_done)
        self.progress.phase(COMMITTING)
        return end_round(self.settings.target, function.job, function.batch, results)


@attrs.frozen
class WriteSlice:
    """The function of a restore's tasks: writes the rows of a slice, in their order, at its share of the rate.

    ``limits`` has an item for each slice of the round. ``job_id`` is None where records get no row ids, ``job`` where
    they are written without transactions.
    """

    settings: RestoreSettings
    job_id: uuid.UUID | None
    batch: int
    job: str | None
    limits: tuple[RateLimit, ...]

    def __call__(self, number: int, slice_: RestoreSlice) -> list[Result]:
        from trio_broker.client.producer.batch_producer import BatchProducer
        from trio_broker.spark.exactly_once.task_transactions import in_transaction, written_in
        from trio_broker.spark.producer.record_writer import RecordWriter
        from trio_broker.spark.producer.row_ids import TaskId

        task_id = None if self.job_id is None else TaskId(self.job_id, self.batch, slice_.group)
        throttle = Throttle(self.limits[number])
        keeps_partitions = self.settings.partitions is Partitions.KEEP
        with BatchProducer(self.settings.target) as producer, in_transaction(producer, self.job, self.batch) as begun:
            with RecordWriter(
                self.settings.target,
                topic=self.settings.topic or slice_.parts[0].origin.topic,
                task_id=task_id,
                first_partition=slice_.group,
                producer=producer,
            ) as writer:
                for table in rows_in_order(slice_.parts, slice_.start, slice_.end):
                    for batch in written_columns(table, keeps_partitions).to_batches(WRITTEN_ROWS):
                        for piece in throttle.pieces(batch):
                            writer.write(piece)
            written = written_in(producer, begun, slice_.group, writer.written.record_count)
        return [{"records": writer.written.record_count, "transaction": written}]
