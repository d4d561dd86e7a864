"""Restore: Parquet files, an export's or any others with a column ``value``, written to a topic.

Columns are those of ``producer.row_columns``: ``key``, ``headers`` and ``timestamp`` where there are any, and
partitions are kept where there is a column ``partition``, unless keys choose them. Rows that have a partition and an
offset are written in that order, whichever files they are in (``parquet_rows``); the broker assigns new offsets.

Rows whose order counts are a group: those of one partition, or those of one file where there are no offsets. Groups are
written in rounds (``round_job``). For a round to be repeated, the files must be those of the beginning
(``inputs``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.commit_log import CommitLog, read_last_commit
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.restore.group_positions import GroupPositions
from trio_broker.spark.pipelines.restore.inputs import Inputs, digest_of, sizes_of
from trio_broker.spark.pipelines.restore.parquet_parts import RowGroupPart, find_files, group_parts, parts_of
from trio_broker.spark.pipelines.restore.parquet_rows import rows_in_order, written_columns
from trio_broker.spark.pipelines.rounds.round_job import RoundJob, WriteSettings
from trio_broker.spark.pipelines.rounds.target_topics import CREATE_TOPIC_OPTION, NewTopics, Partitions, prepare_topics
from trio_broker.spark.pipelines.task_runner import TaskRunner
from trio_broker.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

KIND: Final = "restore"

GROUP: Final = "group"
"""A commit log stores the position in a group as an offset of this topic, in the partition of the group's number."""

WRITTEN_ROWS: Final = 16_384
"""Rows that the writer takes at once."""


@attrs.frozen
class RestoreSettings(WriteSettings):
    """Where rows go; without ``topic``, to their own topics. ``new`` is how missing topics are created."""

    new: NewTopics | None = None


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
    target = settings.target.connection
    made = prepare_topics(target, needed, new=settings.new, dry_run=dry_run, remedy=CREATE_TOPIC_OPTION)
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
        sizes = sizes_of(files)
        if log.last is not None:
            plan = RestorePlan(known_groups(files, sizes, log.directory), ())
        else:
            plan = plan_groups(groups or groups_in(files), settings, dry_run=False)
            # The inputs before the first commit: a later run takes a job with a commit to have them.
            Inputs(sizes, digest_of(plan.groups)).write(log.directory)
        return Restore(log, runner, progress or Progress(KIND), settings, files, plan).run()


def known_groups(
    files: Sequence[Path], sizes: Mapping[str, int], checkpoint: Path
) -> tuple[tuple[RowGroupPart, ...], ...]:
    """Return the parts of ``files`` by groups, which must be those of the job's first run.

    Raises:
        RestoreError: they have changed.
    """
    known = Inputs.read(checkpoint)
    known.require_sizes(sizes)
    groups = groups_in(files)
    known.require_digest(digest_of(groups))
    return groups


@attrs.define
class Restore(RoundJob):
    """One run of a job, whose positions are those of rows in their groups."""

    kind = KIND
    namespace = uuid.UUID("3c8a3f0e-1d0b-4f7e-a7a5-6b1f0c9d2e48")

    settings: RestoreSettings
    files: Sequence[Path]
    plan: RestorePlan

    @cached_property
    def groups(self) -> Mapping[TopicPartition, GroupPositions]:
        """The positions of each group, by its name in the commit log."""
        return {TopicPartition(GROUP, number): GroupPositions(parts) for number, parts in enumerate(self.plan.groups)}

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        return {name: group.end for name, group in self.groups.items()}

    def size(self, positions: OffsetRange) -> float:
        return self.groups[positions.partition].expected_rows(positions.start_offset, positions.end_offset)

    def slice_end(self, positions: OffsetRange, records: int) -> int:
        return self.groups[positions.partition].slice_end(positions.start_offset, records)

    def rows(self, slices: Sequence[OffsetRange]) -> list[RestoreRows]:
        return [self._rows(each) for each in slices]

    def _rows(self, positions: OffsetRange) -> RestoreRows:
        start, end = positions.start_offset, positions.end_offset
        parts = self.groups[positions.partition].parts_between(start, end)
        topic = self.settings.topic or parts[0].origin.topic
        return RestoreRows(topic, parts, start, end, keeps_partitions=self.settings.partitions is Partitions.KEEP)

    def run(self) -> RestoreReport:
        """Write the remaining rows."""
        began = time.monotonic()
        if self.log.last is None:
            self.begin({name: group.start for name, group in self.groups.items()})
        self.progress.grow(self.plan.rows)
        self.progress.advance(self.plan.rows - round(self.remaining_records()))
        rounds = list(self.rounds())
        return RestoreReport(sum(rounds), len(rounds), len(self.files), self.plan.new_topics, time.monotonic() - began)


@attrs.frozen
class RestoreRows:
    """The rows of a slice: those of ``parts`` at positions from ``start`` to ``end``, exclusive."""

    topic: str
    parts: tuple[RowGroupPart, ...]
    start: int
    end: int
    keeps_partitions: bool

    def batches(self) -> Iterator[pa.RecordBatch]:
        for table in rows_in_order(self.parts, self.start, self.end):
            yield from written_columns(table, self.keeps_partitions).to_batches(WRITTEN_ROWS)
