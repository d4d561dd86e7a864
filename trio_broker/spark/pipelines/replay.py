"""Replay: a range of offsets or of time of some topics, written again to a topic of the same or another cluster.

Keys, values, headers and timestamps are kept, and partitions unless keys choose them. The range is fixed when the job
starts, and copied in rounds (``slice_schedule``): a round is committed with its slices before it begins, and finished
when every in-sync replica has all of it. A job that was interrupted therefore repeats exactly its last round, with the
same slices under the same numbers.

Within a task the producer is idempotent, so that its own retries write no record twice. The records that a repeated
task or round writes again are new ones to the broker, but a consumer can recognise them: each record gets a header
(``producer.row_ids``) made of the job's id, the round, its partition and its place in the slice, and
``row_ids.Deduplicator`` drops the second record.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, Final

import attrs

from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.commit_log import CommitLog, offsets_document, read_offsets_document
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.progress import COMMITTING, WRITING, Progress
from trio_broker.spark.pipelines.round_end import end_round
from trio_broker.spark.pipelines.slice_schedule import next_slices, slice_records_at
from trio_broker.spark.pipelines.target_topics import Partitions, is_same_cluster, prepare_topics
from trio_broker.spark.pipelines.task_runner import Result, TaskRunner
from trio_broker.spark.pipelines.token_bucket import RateLimit, Throttle
from trio_broker.spark.planning.offset_planning import plan_batch
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.task_planning import plan_tasks
from trio_broker.spark.tasks import ReadTask, read_task

KIND: Final = "replay"

NAMESPACE: Final = uuid.UUID("8f0d1c1e-5a3b-4b0e-9c7e-3f6f0a2f6a55")
"""The namespace of the job ids in headers, which are made of the ids in commit logs."""


@attrs.frozen
class ReplaySettings:
    """Where and how records are written. Without ``topic`` they keep their topics' names, on another cluster only."""

    target: ProducerSettings
    checkpoint: Path
    topic: str | None = None
    partitions: Partitions = Partitions.KEEP
    limit: RateLimit = attrs.field(factory=RateLimit)
    with_row_ids: bool = True
    is_exactly_once: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        wanted = ["key", "value", "headers", "timestamp"]
        if self.topic is None:
            wanted.append("topic")
        if self.partitions is Partitions.KEEP:
            wanted.append("partition")
        return tuple(wanted)

    def identity(self, source_options: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings that must not change between two runs of one job."""
        return {
            "source": dict(sorted(source_options.items())),
            "target": ",".join(map(str, self.target.bootstrap_servers)),
            "topic": self.topic,
            "partitions": self.partitions.value,
            "exactly_once": self.is_exactly_once,
        }


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
    prepare_topics(settings.target.bootstrap_servers, needed)
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
    with CommitLog(settings.checkpoint).open(KIND, settings.identity(source_options)) as log:
        return _ReplayRun(source, settings, log, runner, progress or Progress(KIND)).run()


def refuse_topics_to_themselves(source: JobSource, settings: ReplaySettings, topics: Set[str]) -> None:
    """Refuse a job that reads and writes ``topics``, unless they are those of two clusters, or of a directory that no
    broker has open.

    Raises:
        OptionError: the cluster is the same.
        ClientError: a cluster does not answer.
    """
    read, written = source.options.kafka.bootstrap_servers, settings.target.bootstrap_servers
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
    """The whole range of a job, fixed at its first start, and the topics' ids then: a topic may be created again
    later."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

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

    def task_number(self, partition: TopicPartition) -> int:
        """Return the number of a partition, which is the same in all rounds."""
        return sorted(self.ends).index(partition)


@attrs.define
class _ReplayRun:
    """One run of a job."""

    source: JobSource
    settings: ReplaySettings
    log: CommitLog
    runner: Callable[[], TaskRunner]
    progress: Progress

    def run(self) -> ReplayReport:
        """Copy what is left."""
        began = time.monotonic()
        whole = self._replay_range()
        unfinished = self._unfinished()
        before = self._offsets_done(whole, unfinished)
        total = sum(whole.ends.values()) - sum(whole.starts.values())
        self.progress.grow(total)
        self.progress.advance(before)
        records = rounds = 0
        if before < total:
            for slices_records in self._rounds(whole, unfinished, self.runner()):
                records += slices_records
                rounds += 1
        return ReplayReport(records, rounds, time.monotonic() - began, before)

    def _rounds(self, whole: ReplayRange, unfinished: tuple[OffsetRange, ...], runner: TaskRunner) -> Iterator[int]:
        """Copy round after round, an unfinished one first; yield how many records each wrote."""
        most_slices = runner.parallelism()
        slice_records = slice_records_at(self.settings.limit, most_slices)
        slices = unfinished
        while True:
            if slices:
                yield self._copy(whole, slices, runner)
                self.log.finish()
                self.progress.advance(sum(each.offset_count for each in slices))
            slices = next_slices(self.log.offsets, whole.ends, most_slices=most_slices, slice_records=slice_records)
            if not slices:
                return
            self._begin(whole, slices)

    def _begin(self, whole: ReplayRange, slices: tuple[OffsetRange, ...]) -> None:
        """Commit a round before it begins.

        The commit has the offsets behind the round: an interrupted round is known by its missing ``.done``, and its
        slices are in the commit.
        """
        facts = {"goal": whole.document(), "slices": [slice_document(each) for each in slices]}
        self.log.prepare({each.partition: each.end_offset for each in slices}, facts)

    def _copy(self, whole: ReplayRange, slices: tuple[OffsetRange, ...], runner: TaskRunner) -> int:
        """Write the records of a round; return their number."""
        assert self.log.last is not None
        offsets = sum(each.offset_count for each in slices)
        job_id = uuid.uuid5(NAMESPACE, self.log.job_id) if self.settings.with_row_ids else None
        function = CopySlice(
            settings=self.settings,
            job_id=job_id,
            batch=self.log.last.batch,
            job=f"{KIND}-{self.log.job_id}" if self.settings.is_exactly_once else None,
            numbers=tuple(whole.task_number(each.partition) for each in slices),
            limits=tuple(self.settings.limit.share(each.offset_count, offsets) for each in slices),
        )

        def on_done(tasks: int) -> None:
            self.progress.set_running(offsets * tasks // len(slices))

        self.progress.phase(WRITING)
        results = runner.run(self._tasks(whole, slices), function, on_done)
        self.progress.phase(COMMITTING)
        return end_round(self.settings.target, function.job, function.batch, results)

    def _tasks(self, whole: ReplayRange, slices: tuple[OffsetRange, ...]) -> list[ReadTask]:
        """Return one task for each slice."""
        options = attrs.evolve(self.source.options, min_partitions=None, max_records_per_partition=None)
        columns = self.settings.columns
        return plan_tasks(options, self.source.offset_source, slices, columns=columns, topic_ids=whole.topic_ids)

    def _replay_range(self) -> ReplayRange:
        """Return the range of the job, which its first run decides and commits."""
        if self.log.last is not None:
            if not self.log.last.facts["slices"] and not self.log.last_is_finished:
                # The commit of the range itself, for which nothing has to be done.
                self.log.finish()
            return ReplayRange.read(self.log.last.facts["goal"])
        ranges = plan_replay(self.source, self.settings).ranges
        whole = ReplayRange(
            {each.partition: each.start_offset for each in ranges},
            {each.partition: each.end_offset for each in ranges},
            self.source.offset_source.topic_ids({each.partition.topic for each in ranges}),
        )
        self.log.prepare(whole.starts, {"goal": whole.document(), "slices": []})
        self.log.finish()
        return whole

    def _offsets_done(self, whole: ReplayRange, unfinished: tuple[OffsetRange, ...]) -> int:
        """Return how many offsets finished rounds have copied."""
        noted = sum(self.log.offsets[partition] - start for partition, start in whole.starts.items())
        return noted - sum(each.offset_count for each in unfinished)

    def _unfinished(self) -> tuple[OffsetRange, ...]:
        """Return the slices of a round that was begun and not finished."""
        if self.log.last is None or self.log.last_is_finished:
            return ()
        return tuple(
            OffsetRange(TopicPartition(topic, partition), start, end)
            for topic, partition, start, end in self.log.last.facts["slices"]
        )


def slice_document(offsets: OffsetRange) -> list[str | int]:
    """Return a slice as it is stored in commits."""
    return [offsets.partition.topic, offsets.partition.partition, offsets.start_offset, offsets.end_offset]


@attrs.frozen
class CopySlice:
    """The function of a replay's tasks: writes the records of a slice at its share of the rate.

    ``numbers`` and ``limits`` have an item for each slice of the round: the number of its partition in row ids, and its
    share. ``job_id`` is None where records get no row ids, ``job`` where they are written without transactions.
    """

    settings: ReplaySettings
    job_id: uuid.UUID | None
    batch: int
    job: str | None
    numbers: tuple[int, ...]
    limits: tuple[RateLimit, ...]

    def __call__(self, number: int, task: ReadTask) -> list[Result]:
        from trio_broker.client.producer.batch_producer import BatchProducer
        from trio_broker.spark.exactly_once.task_transactions import in_transaction, written_in
        from trio_broker.spark.producer.record_writer import RecordWriter
        from trio_broker.spark.producer.row_ids import TaskId

        task_id = None if self.job_id is None else TaskId(self.job_id, self.batch, self.numbers[number])
        throttle = Throttle(self.limits[number])
        with BatchProducer(self.settings.target) as producer, in_transaction(producer, self.job, self.batch) as begun:
            with RecordWriter(
                self.settings.target,
                topic=self.settings.topic,
                task_id=task_id,
                first_partition=self.numbers[number],
                producer=producer,
            ) as writer:
                for batch in read_task(task):
                    for piece in throttle.pieces(batch):
                        writer.write(piece)
            written = written_in(producer, begun, self.numbers[number], writer.written.record_count)
        return [{"records": writer.written.record_count, "transaction": written}]
