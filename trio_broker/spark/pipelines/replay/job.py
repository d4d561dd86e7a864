"""Replay: a range of offsets or of time of some topics, written again to a topic of the same or another cluster.

Keys, values, headers and timestamps are kept, and partitions unless keys choose them. The range is fixed when the job
starts, and copied in rounds (``round_job``), which have slices of its partitions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.security_options import without_security
from trio_broker.spark.pipelines.commit_log import CommitLog, offsets_document, read_offsets_document
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.rounds.round_job import RoundJob, WriteSettings
from trio_broker.spark.pipelines.rounds.target_topics import Partitions, is_same_cluster, prepare_topics
from trio_broker.spark.pipelines.task_runner import TaskRunner
from trio_broker.spark.planning.offset_planning import plan_batch
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.task_planning import plan_tasks
from trio_broker.spark.tasks import ReadTask, read_task

if TYPE_CHECKING:
    import pyarrow as pa

KIND: Final = "replay"

GOAL: Final = "goal"
"""The key, in a commit's facts, of the job's range."""


@attrs.frozen
class ReplaySettings(WriteSettings):
    """Where and how records are written. Without ``topic`` they keep their topics' names, on another cluster only."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        wanted = ["key", "value", "headers", "timestamp"]
        if self.topic is None:
            wanted.append("topic")
        if self.partitions is Partitions.KEEP:
            wanted.append("partition")
        return tuple(wanted)


@attrs.frozen
class ReplayReport:
    """What one run did; ``offsets_before`` were copied by earlier runs of the same job."""

    records: int
    rounds: int
    seconds: float
    offsets_before: int


@attrs.frozen
class ReplayPlan:
    """What a replay would read."""

    ranges: tuple[OffsetRange, ...]

    @property
    def offset_count(self) -> int:
        """How many offsets the ranges have; there may be fewer records."""
        return sum(each.offset_count for each in self.ranges)


def plan_replay(source: JobSource, settings: ReplaySettings) -> ReplayPlan:
    """Return what a new replay would read, and check the topics it would write. Nothing is written.

    Raises:
        SparkJobError, ClientError: as ``replay``.
    """
    ranges = tuple(plan_batch(source.options, source.offset_source))
    needed = needed_partitions(ranges, settings)
    refuse_topics_to_themselves(source, settings, {each.partition.topic for each in ranges} & needed.keys())
    prepare_topics(settings.target.connection, needed)
    return ReplayPlan(ranges)


def replay(
    source: JobSource,
    settings: ReplaySettings,
    source_options: Mapping[str, str],
    runner: Callable[[], TaskRunner],
    progress: Progress | None = None,
) -> ReplayReport:
    """Write the records again, or what an interrupted run of the same job left; return what was done.

    ``runner`` is called only if something is left.

    Raises:
        SparkJobError: it cannot go on; another call goes on from the last finished round.
        ClientError: the cluster that is written to does not answer.
    """
    identity = {"source": dict(sorted(without_security(source_options).items())), **settings.identity()}
    with CommitLog(settings.checkpoint).open(KIND, identity) as log:
        known = None if log.last is None else ReplayRange.read(log.last.facts[GOAL])
        chosen = known or range_of(plan_replay(source, settings), source)
        return Replay(log, runner, progress or Progress(KIND), settings, source, chosen).run()


def range_of(plan: ReplayPlan, source: JobSource) -> ReplayRange:
    """Return the range of a new job."""
    return ReplayRange(
        {each.partition: each.start_offset for each in plan.ranges},
        {each.partition: each.end_offset for each in plan.ranges},
        source.offset_source.topic_ids({each.partition.topic for each in plan.ranges}),
    )


def refuse_topics_to_themselves(source: JobSource, settings: ReplaySettings, topics: Set[str]) -> None:
    """Refuse a job that reads and writes ``topics``, unless they are those of two clusters, or of a directory that no
    broker has open.

    Raises:
        OptionError: the cluster is the same.
        ClientError: a cluster does not answer.
    """
    read, written = source.options.kafka.connection, settings.target.connection
    if topics and not source.options.is_offline and is_same_cluster(read, written):
        names = ", ".join(sorted(topics))
        raise OptionError("to-topic", f"name another one: {names} would be appended to itself")


def needed_partitions(ranges: tuple[OffsetRange, ...], settings: ReplaySettings) -> dict[str, int]:
    """Return how many partitions each target topic must have; 0 for any number."""
    needed: dict[str, int] = {}
    for each in ranges:
        name = settings.topic or each.partition.topic
        kept = each.partition.partition + 1 if settings.partitions is Partitions.KEEP else 0
        needed[name] = max(kept, needed.get(name, 0))
    return needed


@attrs.frozen
class ReplayRange:
    """The range of a job, fixed at its first start, and the topics' ids then: a topic may be created again later."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    @property
    def offset_count(self) -> int:
        """How many offsets it has in all."""
        return sum(self.ends.values()) - sum(self.starts.values())

    def document(self) -> dict[str, Any]:
        """Return it as it is stored in commits."""
        return {
            "starts": offsets_document(self.starts),
            "ends": offsets_document(self.ends),
            "topic_ids": dict(self.topic_ids),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ReplayRange:
        """Parse what ``document`` returned."""
        return cls(
            read_offsets_document(document["starts"]), read_offsets_document(document["ends"]), document["topic_ids"]
        )


@attrs.define
class Replay(RoundJob):
    """One run of a job, whose positions are offsets of the partitions that it reads."""

    kind = KIND
    namespace = uuid.UUID("8f0d1c1e-5a3b-4b0e-9c7e-3f6f0a2f6a55")

    settings: ReplaySettings
    source: JobSource
    range: ReplayRange

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        return self.range.ends

    def size(self, positions: OffsetRange) -> int:
        return positions.offset_count

    def slice_end(self, positions: OffsetRange, records: int) -> int:
        return min(positions.end_offset, positions.start_offset + records)

    def rows(self, slices: Sequence[OffsetRange]) -> list[ReplayRows]:
        options = attrs.evolve(self.source.options, min_partitions=None, max_records_per_partition=None)
        tasks = plan_tasks(
            options,
            self.source.offset_source,
            slices,
            columns=self.settings.columns,
            topic_ids=self.range.topic_ids,
        )
        return [ReplayRows(self.settings.topic, task) for task in tasks]

    def facts(self) -> Mapping[str, Any]:
        return {GOAL: self.range.document()}

    def run(self) -> ReplayReport:
        """Copy the remaining records."""
        began = time.monotonic()
        if self.log.last is None:
            self.begin(self.range.starts)
        offsets_before = self.range.offset_count - round(self.remaining_records())
        self.progress.grow(self.range.offset_count)
        self.progress.advance(offsets_before)
        rounds = list(self.rounds())
        return ReplayReport(sum(rounds), len(rounds), time.monotonic() - began, offsets_before)


@attrs.frozen
class ReplayRows:
    """The records of a slice."""

    topic: str | None
    task: ReadTask

    def batches(self) -> Iterator[pa.RecordBatch]:
        return read_task(self.task)
