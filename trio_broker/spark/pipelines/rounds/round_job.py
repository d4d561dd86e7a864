"""Jobs that write topics in rounds: the part that ``replay`` and ``restore`` have in common.

What a job writes lies in sequences whose order counts: the partitions that a replay reads, the groups of rows that a
restore reads. The commit log has a position in each, and a round has slices of several (``slice_schedule``). A round is
committed with its slices before it begins, and finished when every in-sync replica has all of it. A job that was
interrupted therefore repeats exactly its last round, with the same slices under the same numbers.

Within a task the producer is idempotent, so that its own retries write no record twice. The records that a repeated
task or round writes again are new ones to the broker, but a consumer can recognise them: each record gets a header
(``producer.row_ids``) made of the job's id, the round, the number of its sequence and its place in the slice, and
``row_ids.Deduplicator`` drops the second record. In transactions the repeated ones are not committed.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import attrs

from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.exactly_once.committer import Committer
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions
from trio_broker.spark.options.write_options import COMMIT_TOPIC
from trio_broker.spark.pipelines.commit_log import CommitLog
from trio_broker.spark.pipelines.progress import COMMITTING, WRITING, Progress
from trio_broker.spark.pipelines.rounds.slice_schedule import next_slices, slice_records_at
from trio_broker.spark.pipelines.rounds.target_topics import Partitions
from trio_broker.spark.pipelines.rounds.token_bucket import RateLimit, Throttle
from trio_broker.spark.pipelines.task_runner import Result, TaskRunner
from trio_broker.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

SLICES: Final = "slices"
"""The key, in a commit's facts, of the slices of its round."""


@attrs.frozen
class WriteSettings:
    """Where and how records are written; without ``topic``, to their own topics."""

    target: ProducerSettings
    checkpoint: Path
    topic: str | None = None
    partitions: Partitions = Partitions.KEEP
    limit: RateLimit = attrs.field(factory=RateLimit)
    with_row_ids: bool = True
    is_exactly_once: bool = False

    def identity(self) -> dict[str, Any]:
        """Return the settings that must not change between two runs of one job."""
        return {
            "target": ",".join(map(str, self.target.bootstrap_servers)),
            "topic": self.topic,
            "partitions": self.partitions.value,
            "exactly_once": self.is_exactly_once,
        }


class SliceRows(Protocol):
    """The rows of a slice, as they are sent to a worker. Reading them again yields the same rows in the same order."""

    @property
    def topic(self) -> str | None:
        """The topic they are written to; None where a column names it."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns of ``producer.row_columns``."""
        ...


@attrs.define
class RoundJob(ABC):
    """One run of a job. A slice is a range of positions, by the ``TopicPartition`` that the commit log has them under.

    ``begin`` is called by the first run of a job; ``ends`` are known from then on.
    """

    kind: ClassVar[str]
    namespace: ClassVar[uuid.UUID]
    """The namespace of the job ids in headers, which are made of the ids in commit logs."""

    log: CommitLog
    runner: Callable[[], TaskRunner]
    progress: Progress
    settings: WriteSettings

    @property
    @abstractmethod
    def ends(self) -> Mapping[TopicPartition, int]:
        """The position behind the last record of each sequence."""

    @abstractmethod
    def size(self, positions: OffsetRange) -> float:
        """Return how many records lie at some positions, or an estimate."""

    @abstractmethod
    def slice_end(self, positions: OffsetRange, records: int) -> int:
        """Return the end of a slice of about ``records`` at the beginning of ``positions``."""

    @abstractmethod
    def rows(self, slices: Sequence[OffsetRange]) -> Sequence[SliceRows]:
        """Return the rows of each slice."""

    def facts(self) -> Mapping[str, Any]:
        """Return what each commit has besides positions and slices."""
        return {}

    def begin(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit where a new job begins, as a round without slices."""
        self.log.prepare(starts, {**self.facts(), SLICES: []})
        self.log.finish()

    def remaining_records(self) -> float:
        """Return how many records finished rounds have left to write, or an estimate."""
        ahead = (
            self.size(OffsetRange(each, self.log.offsets[each], end))
            for each, end in self.ends.items()
            if self.log.offsets[each] < end
        )
        return sum(ahead) + sum(map(self.size, self._unfinished()))

    def rounds(self) -> Iterator[int]:
        """Write round after round, an unfinished one first; yield how many records each wrote.

        Raises:
            SparkJobError, ClientError: a round cannot be finished.
        """
        slices = self._unfinished()
        if not slices and not self.log.last_is_finished:
            # The commit of ``begin``, for which nothing has to be done.
            self.log.finish()
        if not slices and not self._next(1, 1):
            return
        runner = self.runner()
        most_slices = runner.parallelism()
        slice_records = slice_records_at(self.settings.limit, most_slices)
        while True:
            if slices:
                yield self._write(slices, runner)
            if not (slices := self._next(most_slices, slice_records)):
                return
            # The commit has the positions behind the round: an interrupted round is known by its missing ``.done``.
            facts = {**self.facts(), SLICES: [slice_document(each) for each in slices]}
            self.log.prepare({each.partition: each.end_offset for each in slices}, facts)

    def _next(self, most_slices: int, slice_records: int) -> tuple[OffsetRange, ...]:
        """Return the slices of the next round; none when everything is done."""
        return next_slices(
            self.log.offsets,
            self.ends,
            most_slices=most_slices,
            size=self.size,
            slice_end=lambda positions: self.slice_end(positions, slice_records),
        )

    def _unfinished(self) -> tuple[OffsetRange, ...]:
        """Return the slices of a round that was begun and not finished."""
        if self.log.last is None or self.log.last_is_finished:
            return ()
        return tuple(read_slice(each) for each in self.log.last.facts[SLICES])

    def _write(self, slices: tuple[OffsetRange, ...], runner: TaskRunner) -> int:
        """Write the records of a round; return their number."""
        assert self.log.last is not None
        numbers = {partition: number for number, partition in enumerate(sorted(self.ends))}
        # An estimate may be less than one record, of which no rate can be made.
        sizes = [max(1, round(self.size(each))) for each in slices]
        function = WriteSlice(
            settings=self.settings,
            job_id=uuid.uuid5(self.namespace, self.log.job_id) if self.settings.with_row_ids else None,
            batch=self.log.last.batch,
            job=f"{self.kind}-{self.log.job_id}" if self.settings.is_exactly_once else None,
            numbers=tuple(numbers[each.partition] for each in slices),
            limits=tuple(self.settings.limit.share(size, sum(sizes)) for size in sizes),
        )

        def on_done(tasks: int) -> None:
            self.progress.set_running(sum(sizes) * tasks // len(slices))

        self.progress.phase(WRITING)
        results = runner.run(self.rows(slices), function, on_done)
        self.progress.phase(COMMITTING)
        records = function.commit(results)
        self.log.finish()
        self.progress.advance(sum(sizes))
        return records


def slice_document(positions: OffsetRange) -> list[str | int]:
    """Return a slice as it is stored in commits."""
    return [positions.partition.topic, positions.partition.partition, positions.start_offset, positions.end_offset]


def read_slice(document: Sequence[Any]) -> OffsetRange:
    """Return what ``slice_document`` wrote."""
    topic, partition, start, end = document
    return OffsetRange(TopicPartition(topic, partition), start, end)


@attrs.frozen
class WriteSlice:
    """The function of a round's tasks: writes the rows of a slice, in their order, at its share of the rate.

    ``numbers`` and ``limits`` have an item for each slice: the number of its sequence in row ids, which is the same in
    all rounds, and its share. ``job_id`` is None where records get no row ids, ``job`` where they are written without
    transactions.
    """

    settings: WriteSettings
    job_id: uuid.UUID | None
    batch: int
    job: str | None
    numbers: tuple[int, ...]
    limits: tuple[RateLimit, ...]

    def __call__(self, number: int, rows: SliceRows) -> list[Result]:
        from trio_broker.client.producer.batch_producer import BatchProducer
        from trio_broker.spark.exactly_once.task_transactions import in_transaction, written_in
        from trio_broker.spark.producer.record_writer import RecordWriter
        from trio_broker.spark.producer.row_ids import TaskId

        task_id = None if self.job_id is None else TaskId(self.job_id, self.batch, self.numbers[number])
        throttle = Throttle(self.limits[number])
        with BatchProducer(self.settings.target) as producer, in_transaction(producer, self.job, self.batch) as begun:
            with RecordWriter(
                self.settings.target,
                topic=rows.topic,
                task_id=task_id,
                first_partition=self.numbers[number],
                producer=producer,
            ) as writer:
                for batch in rows.batches():
                    for piece in throttle.pieces(batch):
                        writer.write(piece)
            written = written_in(producer, begun, self.numbers[number], writer.written.record_count)
        return [{"records": writer.written.record_count, "transaction": written}]

    def commit(self, results: Sequence[Sequence[Result]]) -> int:
        """Commit what each task wrote in a transaction; return the records of all.

        A round that is repeated has the same slices, so what was lost of it may be written again.

        Raises:
            SparkJobError, ClientError: as ``Committer.commit``.
        """
        if self.job is not None:
            written = [result["transaction"] for [result] in results if result["transaction"] is not None]
            topic = COMMIT_TOPIC.required_default
            committer = Committer(self.settings.target, topic, self.job, lost_transactions=LostTransactions.REWRITE)
            committer.commit(self.batch, written)
        return sum(int(result["records"]) for [result] in results)
