"""Restore: Parquet files, an export's or any others with a column ``value``, written to a topic.

Columns are those of ``producing.row_columns``: ``key``, ``headers`` and ``timestamp`` where there are any, and
partitions are kept where there is a column ``partition``, unless keys are to choose. Rows that have a partition and an
offset are written in that order, whichever files they are in (``parquet_rows``); offsets themselves are given anew.

Rows whose order counts are a group: those of one partition, or those of one file where there are no offsets. As in
``replay`` groups are worked off in rounds: a round is noted in the commit log with its slices before it begins, and as
finished when every in-sync replica has all of it. A job that was interrupted does exactly its last round again, and
each row gets the same row id again (``producing.row_ids``), made of the job's id, the round, the number of the group
and the row's place in the slice. For that the files must be those of the beginning (``restore_inputs``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import attrs

from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.commit_log import CommitLog, read_last_commit
from trio_broker.spark.pipelines.parquet_parts import Part, find_files, in_groups, parts_of
from trio_broker.spark.pipelines.parquet_rows import rows_in_order, written_columns
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.restore_inputs import Inputs, digest_of, sizes_of
from trio_broker.spark.pipelines.restore_slices import PositionMap, RestoreSlice, next_slices, read_slice
from trio_broker.spark.pipelines.slice_schedule import slice_records_at
from trio_broker.spark.pipelines.target_topics import NewTopics, Partitions, prepare_topics
from trio_broker.spark.pipelines.task_runner import Result, TaskRunner
from trio_broker.spark.pipelines.token_bucket import RateLimit, Throttle
from trio_broker.spark.tasks import ReadTask
from trio_broker.topic_partition import TopicPartition

KIND: Final = "restore"

NAMESPACE: Final = uuid.UUID("3c8a3f0e-1d0b-4f7e-a7a5-6b1f0c9d2e48")
"""Of the ids that restores have in headers, made from those in their commit logs."""

GROUP: Final = "group"
"""In a commit log positions in groups stand as offsets of the partitions of a topic of this name."""

WRITTEN_ROWS: Final = 16_384
"""Rows that are handed to the writer at once."""


@attrs.frozen
class RestoreSettings:
    """Where rows go. Without ``topic`` each goes to the one it is from. ``new`` says how missing topics are made."""

    target: ProducerSettings
    checkpoint: Path
    topic: str | None = None
    partitions: Partitions = Partitions.KEEP
    new: NewTopics | None = None
    limit: RateLimit = attrs.field(factory=RateLimit)
    with_row_ids: bool = True

    def identity(self) -> dict[str, Any]:
        """Return what must not change between two runs of one job, besides the files."""
        return {
            "target": ",".join(map(str, self.target.bootstrap_servers)),
            "topic": self.topic,
            "partitions": self.partitions.value,
        }


@attrs.frozen
class RestorePlan:
    """What is written, by groups, and the topics that are made for it."""

    groups: tuple[tuple[Part, ...], ...]
    new_topics: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows that is."""
        return sum(part.rows for group in self.groups for part in group)


@attrs.frozen
class RestoreReport:
    """What one run did; ``files`` is how many the whole job has."""

    records: int
    rounds: int
    files: int
    new_topics: tuple[str, ...]
    seconds: float


def plan_restore(paths: Sequence[Path], settings: RestoreSettings, *, dry_run: bool = True) -> RestorePlan:
    """Return what a new job would write, after a look at all files and at the topics. A dry run makes no topic.

    Raises:
        RestoreError: the files cannot be restored.
        TargetError: a topic is missing, or has too few partitions.
        OptionError: nothing says which topic rows go to.
        ClientError: the cluster cannot be asked, or refuses.
    """
    return plan_groups(groups_in(find_files(paths)), settings, dry_run=dry_run)


def groups_in(files: Sequence[Path]) -> tuple[tuple[Part, ...], ...]:
    """Return what is in ``files``, by groups.

    Raises:
        RestoreError: one of them cannot be restored.
    """
    return tuple(in_groups(part for path in files for part in parts_of(path)))


def plan_groups(groups: tuple[tuple[Part, ...], ...], settings: RestoreSettings, *, dry_run: bool) -> RestorePlan:
    """See to the topics that the rows of ``groups`` go to. Errors are those of ``plan_restore``."""
    needed: dict[str, int] = {}
    for group in groups:
        origin = group[0].origin
        topic = settings.topic or origin.topic
        if not topic:
            raise OptionError("to-topic", f"name one: {group[0].path} says no topic, by a column or a directory")
        kept = origin.partition + 1 if settings.partitions is Partitions.KEEP else 0
        needed[topic] = max(kept, needed.get(topic, 0))
    made = prepare_topics(settings.target.bootstrap_servers, needed, new=settings.new, dry_run=dry_run)
    return RestorePlan(groups, tuple(made))


def restore(
    paths: Sequence[Path],
    settings: RestoreSettings,
    runner: Callable[[], TaskRunner],
    progress: Progress | None = None,
) -> RestoreReport:
    """Write all rows of the files in ``paths``, files or directories, or what an interrupted run of the same job left.

    ``runner`` is not asked for where nothing is left to do.

    Raises:
        SparkJobError, ClientError: as ``plan_restore``, the files are others than at the beginning, or a row could not
            be written. Another call goes on from the last finished round.
    """
    files = find_files(paths)
    groups = None
    if read_last_commit(settings.checkpoint) is None:
        # What is wrong from the start is told before the checkpoint is that of a job.
        groups = groups_in(files)
        plan_groups(groups, settings, dry_run=True)
    with CommitLog(settings.checkpoint).open(KIND, settings.identity()) as log:
        return _RestoreRun(files, groups, settings, log, runner, progress or Progress(KIND)).run()


@attrs.define
class _RestoreRun:
    """One run of a job. ``groups`` are those in ``files`` where somebody has looked already."""

    files: Sequence[Path]
    groups: tuple[tuple[Part, ...], ...] | None
    settings: RestoreSettings
    log: CommitLog
    runner: Callable[[], TaskRunner]
    progress: Progress

    def run(self) -> RestoreReport:
        """Do what is left."""
        began = time.monotonic()
        plan = self._plan()
        maps = [PositionMap(number, parts) for number, parts in enumerate(plan.groups)]
        unfinished = self._unfinished(maps)
        self.progress.grow(plan.rows)
        left = self._rows_left(maps, unfinished)
        self.progress.advance(plan.rows - left)
        records = rounds = 0
        if left:
            for written in self._rounds(maps, unfinished, self.runner()):
                records += written
                rounds += 1
        return RestoreReport(records, rounds, len(self.files), plan.new_topics, time.monotonic() - began)

    def _plan(self) -> RestorePlan:
        """Return what the whole job writes. Its first run makes topics, and notes which files there are."""
        sizes = sizes_of(self.files)
        if self.log.last is not None:
            known = Inputs.read(self.log.directory)
            known.require_sizes(sizes)
            groups = groups_in(self.files)
            known.require_digest(digest_of(groups))
            return RestorePlan(groups, ())
        groups = self.groups if self.groups is not None else groups_in(self.files)
        plan = plan_groups(groups, self.settings, dry_run=False)
        Inputs(sizes, digest_of(groups)).write(self.log.directory)
        starts = {TopicPartition(GROUP, number): group[0].first for number, group in enumerate(groups)}
        self.log.prepare(starts, {"slices": []})
        self.log.finish()
        return plan

    def _unfinished(self, maps: Sequence[PositionMap]) -> tuple[RestoreSlice, ...]:
        """Return the slices of a round that was begun and is not known to have ended."""
        assert self.log.last is not None
        slices = () if self.log.last_is_finished else self.log.last.facts["slices"]
        if not slices and not self.log.last_is_finished:
            # The commit of the beginning, which asks for nothing to be done.
            self.log.finish()
        return tuple(read_slice(maps, document) for document in slices)

    def _rows_left(self, maps: Sequence[PositionMap], unfinished: tuple[RestoreSlice, ...]) -> int:
        """Return about how many rows finished rounds have left; 0 only if they left nothing."""
        position = self._positions()
        ahead = sum(each.expected_rows(position[each.group], each.end) for each in maps)
        is_done = not unfinished and all(position[each.group] >= each.end for each in maps)
        return 0 if is_done else max(1, round(ahead) + sum(each.expected_rows for each in unfinished))

    def _positions(self) -> Mapping[int, int]:
        return {each.partition: position for each, position in self.log.offsets.items()}

    def _rounds(
        self, maps: Sequence[PositionMap], unfinished: tuple[RestoreSlice, ...], runner: TaskRunner
    ) -> Iterator[int]:
        """Do round after round, beginning with the one that was left unfinished; yield how many rows each wrote."""
        most_slices = runner.parallelism()
        slice_rows = slice_records_at(self.settings.limit, most_slices)
        slices = unfinished
        while True:
            if slices:
                records = self._write(slices, runner)
                self.log.finish()
                self.progress.advance(records)
                yield records
            slices = next_slices(maps, self._positions(), most_slices=most_slices, slice_rows=slice_rows)
            if not slices:
                return
            positions = {TopicPartition(GROUP, each.group): each.end for each in slices}
            self.log.prepare(positions, {"slices": [each.document for each in slices]})

    def _write(self, slices: tuple[RestoreSlice, ...], runner: TaskRunner) -> int:
        """Write the rows of a round; return how many there were."""
        assert self.log.last is not None
        rows = sum(each.expected_rows for each in slices)
        function = WriteSlice(
            settings=self.settings,
            job_id=uuid.uuid5(NAMESPACE, self.log.job_id) if self.settings.with_row_ids else None,
            batch=self.log.last.batch,
            limits=tuple(self.settings.limit.share(each.expected_rows, rows) for each in slices),
        )

        def on_done(tasks: int) -> None:
            self.progress.set_running(rows * tasks // len(slices))

        # The runner hands its tasks to the function and looks at nothing in them.
        results = runner.run(cast(Sequence[ReadTask], slices), cast(Any, function), on_done)
        return sum(int(result["records"]) for [result] in results)


@attrs.frozen
class WriteSlice:
    """What a task does: it writes the rows of a slice, in their order, at its share of the rate.

    ``limits`` has an item for each slice of the round. ``job_id`` is None where records get no row ids.
    """

    settings: RestoreSettings
    job_id: uuid.UUID | None
    batch: int
    limits: tuple[RateLimit, ...]

    def __call__(self, number: int, slice_: RestoreSlice) -> list[Result]:
        from trio_broker.spark.producer.record_writer import RecordWriter
        from trio_broker.spark.producer.row_ids import TaskId

        task_id = None if self.job_id is None else TaskId(self.job_id, self.batch, slice_.group)
        throttle = Throttle(self.limits[number])
        keeps_partitions = self.settings.partitions is Partitions.KEEP
        with RecordWriter(
            self.settings.target,
            topic=self.settings.topic or slice_.parts[0].origin.topic,
            task_id=task_id,
            first_partition=slice_.group,
        ) as writer:
            for table in rows_in_order(slice_.parts, slice_.start, slice_.end):
                for batch in written_columns(table, keeps_partitions).to_batches(WRITTEN_ROWS):
                    for piece in throttle.pieces(batch):
                        writer.write(piece)
        return [{"records": writer.written.record_count}]
