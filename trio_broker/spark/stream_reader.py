"""Reads a stream: one micro-batch after the other, each between two sets of offsets that Spark keeps in its checkpoint.

Those two alone decide which records a micro-batch holds, so a query that is killed and started again reads the very
same records. The one offset that Spark does not keep is the beginning of the stream: as long as the first micro-batch
is not done it calls ``initialOffset`` again, twice in one process and again after a restart, when the options and the
logs may be others. So ``initialOffset`` returns a placeholder (``BEGINNING``), and the end of the first micro-batch
says where it begins (``stream_offsets``). Spark runs a first micro-batch even if nothing is in it, so that the place
where a stream begins at the latest offset is in the checkpoint as well.

What the cluster names now is not all that there is: metadata may say less for a moment. A partition that is not named
keeps its offset, so that it is not read from its first record again when it comes back.

All methods but ``read`` are called in one process that lives as long as the query does, one after the other. Its state
only saves requests, with three exceptions: the ids of topics, which reveal a topic that was deleted and created again
under the same name; which partitions are missing, so that they are not reported at each trigger; and whether the
cluster ever answered. A cluster that did is retried for as long as a task would wait for it, so that a query survives a
broker's restart. ``commit`` has nothing to do.

Source: pyspark.sql.datasource.DataSourceStreamReader; KafkaMicroBatchStream of Spark's connector.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from trio_broker.client.deadline import Deadline, retry
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.job_errors import without_traceback
from trio_broker.spark.options.offset_specs import OffsetSource, listed
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_option_table import COLUMNS
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.planning.admission import (
    UNLIMITED,
    Limits,
    check_available_now,
    limits_of,
    new_partitions,
    next_offsets,
    shorter_logs,
)
from trio_broker.spark.planning.offset_planning import (
    Offsets,
    check_topics,
    initial_offsets,
    known_topic_ids,
    partition_is_gone,
    plan_stream,
    raise_or_log_losses,
)
from trio_broker.spark.planning.stream_offsets import BEGINNING, JsonOffsets, begins_of, from_json, to_json
from trio_broker.spark.schema import columns_of
from trio_broker.spark.task_partition import input_partitions, read_partition
from trio_broker.spark.task_planning import open_offset_source, plan_tasks
from trio_broker.spark.tasks import ReadTask
from trio_broker.spark.workarounds.column_hint import ColumnHint
from trio_broker.spark.workarounds.early_end import end_with_the_query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

T = TypeVar("T")

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query. Pickled before it is used; connections are opened on first use.

    Tests replace ``open_source``, ``now`` and ``sleep`` (seconds).
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[str, ...],
        *,
        columns_are_chosen: bool = True,
        open_source: Callable[[ReadOptions], OffsetSource] = open_offset_source,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._columns = columns
        self._hint = ColumnHint(columns, columns_are_chosen)
        self._open_source = open_source
        self._now = now
        self._sleep = sleep
        self._source: OffsetSource | None = None
        self._topic_ids: dict[str, str] = {}
        self._latest: Offsets = {}
        self._missing: set[TopicPartition] = set()
        self._is_waiting = False
        self._last_trigger_ms: int | None = None
        self._is_available_now = False
        self._frozen: Offsets | None = None
        self._was_answered = False

    # --- How far to read ---

    def initialOffset(self) -> JsonOffsets:
        """Return the placeholder for the beginning of the stream."""
        return BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch, unless its trigger reads everything.

        PySpark has no limit that combines a minimum and a maximum, so with both only the maximum is returned here;
        ``latestOffset`` applies the minimum as well.
        """
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the offsets that are there when the first micro-batch is planned."""
        self._is_available_now = True

    @without_traceback
    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Return the end of the micro-batch that begins at ``start``; ``start`` itself if it has to wait.

        Raises:
            OptionError: as ``initial_offsets``, before the first micro-batch.
            DataLoss: under ``failOnDataLoss``, a topic was deleted and created again, or a partition is gone.
            SourceUnavailable: no broker answers.
        """
        return self._retrying(lambda: self._latest_offset(start, limit))

    def _latest_offset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        is_first = start == BEGINNING
        begins = initial_offsets(self._options, self._offset_source) if is_first else from_json(start)
        if self._frozen is None and (checked := self._check_topics(begins)) != begins:
            # A micro-batch with nothing in it, so that the checkpoint says where the new topic begins.
            return to_json(checked)
        self._latest = self._latest_offsets(begins)
        new = new_partitions(begins, self._latest)
        admission = next_offsets(
            begins,
            self._latest,
            self._offset_source.earliest(new) if new else {},
            self._limits(limit),
            last_trigger_ms=self._last_trigger_ms,
            now_ms=round(self._now() * 1000),
        )
        self._last_trigger_ms = admission.last_trigger_ms
        if is_first:
            return to_json(admission.offsets, begins)
        # Spark compares texts, so where nothing is new this is the start itself, which may have a beginning.
        return start if admission.offsets == begins else to_json(admission.offsets)

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return the last known ends of the partitions, for the progress of the query."""
        return to_json(self._latest) or None

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return UNLIMITED
        limits = limits_of(self._options, available_now=self._is_available_now)
        return attrs.evolve(limits, max_offsets=limit.max_rows) if isinstance(limit, ReadMaxRows) else limits

    def _latest_offsets(self, begins: Offsets) -> Offsets:
        """Return the ends of all partitions: now, or for a query that is to end, when it was started.

        A partition that the cluster does not name keeps its place in ``begins``. It is gone if the cluster names
        others, also when asked again; if it names none at all, the query waits.

        Raises:
            DataLoss: under ``failOnDataLoss``, a partition is gone.
        """
        if self._frozen is not None:
            return self._frozen
        latest = self._asked_again(self._ends, lambda ends: not self._is_doubtful(begins, ends))
        missing = begins.keys() - latest.keys()
        if latest:
            losses = [partition_is_gone(partition, begins[partition]) for partition in missing - self._missing]
            raise_or_log_losses(losses, self._options.fail_on_data_loss)
            self._missing = missing
        elif missing and not self._is_waiting:
            log.warning("waiting for partitions, of which the cluster names none now: %s", listed(missing))
        self._is_waiting = not latest
        latest = {**begins, **latest}
        if self._is_available_now:
            self._frozen = latest
        return latest

    def _ends(self) -> Offsets:
        return self._offset_source.latest(self._offset_source.partitions(self._options.selection))

    def _is_doubtful(self, begins: Offsets, latest: Offsets) -> bool:
        """Whether to ask again before a loss is reported.

        A log that is shorter than before may have a new leader whose high watermark is not up to date yet, and a
        partition that is not named any more a broker that does not know it yet.
        """
        missing = begins.keys() - latest.keys() - self._missing
        return bool(latest) and bool(missing or shorter_logs(begins, latest))

    def _check_topics(self, position: Offsets) -> Offsets:
        """Return ``position`` with the partitions of topics that were deleted and created again set to 0.

        Raises:
            DataLoss: under ``failOnDataLoss``, there is such a topic.
        """
        found = self._offset_source.topic_ids({partition.topic for partition in position})
        checked = check_topics(self._topic_ids, found, position, fail_on_data_loss=self._options.fail_on_data_loss)
        self._topic_ids = known_topic_ids(self._topic_ids, found)
        return checked

    # --- What to read ---

    @without_traceback
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Return the tasks of the micro-batch from ``start`` to ``end``.

        Raises:
            DataLoss: under ``failOnDataLoss``, part of that is gone.
            SparkJobError: the checkpoint does not say where the micro-batch begins; or that of a query that is to end
                reaches too far, see ``check_available_now``.
            SourceUnavailable: no broker answers.
        """
        if start == end:
            return []
        tasks = self._retrying(lambda: self._tasks(start, end))
        self._hint.count(sum(task.offsets.offset_count for task in tasks))
        return input_partitions(tasks)

    def _tasks(self, start: JsonOffsets, end: JsonOffsets) -> list[ReadTask]:
        ends = from_json(end)
        begins = begins_of(start, end)
        read = {partition for partition, offset in ends.items() if offset != begins.get(partition, 0)}
        earliest = self._asked_again(lambda: self._offset_source.earliest(read), lambda found: found.keys() >= read)
        if self._frozen is not None:
            check_available_now(self._frozen, ends, read - earliest.keys())
        if unknown := {partition.topic for partition in read} - self._topic_ids.keys():
            self._topic_ids = known_topic_ids(self._topic_ids, self._offset_source.topic_ids(unknown))
        ranges = plan_stream(begins, ends, earliest=earliest, fail_on_data_loss=self._options.fail_on_data_loss)
        return plan_tasks(self._options, self._offset_source, ranges, columns=self._columns, topic_ids=self._topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, in a worker."""
        return read_partition(partition)

    # --- Requests ---

    @property
    def _offset_source(self) -> OffsetSource:
        """The offsets of the cluster or the directories; connected on first use, and kept until ``stop``."""
        if self._source is None:
            self._source = self._open_source(self._options)
        return self._source

    def _asked_again(self, ask: Callable[[], Offsets], is_enough: Callable[[Offsets], bool]) -> Offsets:
        """Return what ``ask`` returns, asked again up to ``fetchOffset.numRetries`` times if that is not enough."""
        answer = ask()
        for _ in range(self._options.fetch_offset_retries):
            if is_enough(answer):
                break
            self._sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            answer = ask()
        return answer

    def _retrying(self, ask: Callable[[], T]) -> T:
        """Return the result of ``ask``, retried for ``kafkaConsumer.pollTimeoutMs`` if the cluster answered before.

        Raises:
            SourceUnavailable: it never did, or does not any more.
        """
        answer = retry(
            ask,
            Deadline(self._options.poll_timeout_ms / 1000, self._now, self._sleep),
            lambda error: isinstance(error, SourceUnavailable) and self._was_answered,
            lambda error: log.warning("asking again: %s", error),
            repeat(self._options.fetch_offset_retry_interval_ms / 1000),
        )
        self._was_answered = True
        return answer

    def stop(self) -> None:
        """Close the connections; the process goes with them if the query has ended."""
        if self._source is not None:
            self._source.close()
            self._source = None
        end_with_the_query()


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader of a stream of the columns in ``schema``.

    Raises:
        OptionError: an option is wrong, or a column.
    """
    return StreamReader(
        read_options(options, Mode.STREAM), columns_of(schema), columns_are_chosen=COLUMNS.name in options
    )
