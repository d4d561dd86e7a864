"""Reads a stream: one micro-batch after the other, each between two sets of offsets that Spark keeps in its checkpoint.

What a micro-batch holds is decided by those two alone, so a query that is killed and started again reads the very same
records. Where a stream begins is the one thing that Spark does not keep: as long as the first micro-batch is not done
it asks ``initialOffset`` anew, twice in one life and again in the next, and a stream that begins at the latest offset
would skip what came in between. So that answer says nothing (``BEGINNING``), and where the stream begins is

* found out when the first micro-batch is planned, if that comes to the same whenever it is done, as with earliest;
* else the end of the first micro-batch, which is empty and there only to be written down. Spark runs a first
  micro-batch even if nothing is in it, so it costs nothing.

All methods but ``read`` are called in one process that lives as long as the query does, one after the other. What it
remembers only saves questions, with two exceptions: the ids of topics, by which one is recognised that was deleted and
created again under the same name; and whether the cluster ever answered. One that did is waited for as long as a task
would wait for it, so that a query survives a broker's restart. There is nothing to do in ``commit``.

Source: pyspark.sql.datasource.DataSourceStreamReader; KafkaMicroBatchStream of Spark's connector.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
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

from trio_broker.spark.errors import DataLoss, SourceUnavailable
from trio_broker.spark.options.offset_specs import OffsetSource
from trio_broker.spark.options.read_options import Assign, ReadOptions
from trio_broker.spark.planner_errors import shown_in_one_line
from trio_broker.spark.planning.admission import (
    UNLIMITED,
    Limits,
    check_available_now,
    limits_of,
    new_partitions,
    next_offsets,
    shorter_logs,
)
from trio_broker.spark.planning.offset_planning import Offsets, initial_offsets, plan_stream, report
from trio_broker.spark.planning.stream_offsets import BEGINNING, JsonOffsets, depends_on_the_moment, from_json, to_json
from trio_broker.spark.task_partition import input_partitions, read_partition
from trio_broker.spark.task_planning import open_offset_source, plan_tasks
from trio_broker.spark.tasks import ReadTask

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query. Pickled before it is used; nothing is opened until then.

    ``open_source``, ``now`` and ``sleep`` (seconds) are replaced by tests.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[str, ...],
        *,
        open_source: Callable[[ReadOptions], OffsetSource] = open_offset_source,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._columns = columns
        self._open_source = open_source
        self._now = now
        self._sleep = sleep
        self._source: OffsetSource | None = None
        self._topic_ids: dict[str, str] = {}
        self._initial: Offsets | None = None
        self._latest: Offsets = {}
        self._last_trigger_ms: int | None = None
        self._is_available_now = False
        self._frozen: Offsets | None = None
        self._was_answered = False

    # --- How far to read ---

    def initialOffset(self) -> JsonOffsets:
        """Return the beginning of a stream, wherever that is."""
        return BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what bounds a micro-batch, unless its trigger wants everything.

        In Python there is no limit of two kinds. So Spark is not told of a minimum beside a maximum; it counts anyway.
        """
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there when the first micro-batch is planned, and end."""
        self._is_available_now = True

    @shown_in_one_line
    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Return where the micro-batch ends that begins at ``start``; ``start`` itself if there is none yet.

        Raises:
            OptionError: as ``initial_offsets``, before the first micro-batch.
            DataLoss: under ``failOnDataLoss``, a topic is not the one that it was.
            SourceUnavailable: nobody answers.
        """
        return self._patiently(lambda: self._latest_offset(start, limit))

    def _latest_offset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        if start == BEGINNING:
            self._initial = initial_offsets(self._options, self._asked)
            if depends_on_the_moment(self._options.starting):
                return to_json(self._initial)
            begins = self._initial
        else:
            begins = from_json(start)
        self._latest = self._latest_offsets(begins)
        new = new_partitions(begins, self._latest)
        admission = next_offsets(
            begins,
            self._latest,
            self._asked.earliest(new) if new else {},
            self._limits(limit),
            last_trigger_ms=self._last_trigger_ms,
            now_ms=round(self._now() * 1000),
        )
        self._last_trigger_ms = admission.last_trigger_ms
        return to_json(admission.offsets)

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return where the partitions ended when that was last asked, for the progress of the query."""
        return to_json(self._latest) or None

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return UNLIMITED
        limits = limits_of(self._options, available_now=self._is_available_now)
        return attrs.evolve(limits, max_offsets=limit.max_rows) if isinstance(limit, ReadMaxRows) else limits

    def _latest_offsets(self, begins: Offsets) -> Offsets:
        """Return where all partitions end: now, or for a query that is to end, when it was started."""
        if self._frozen is not None:
            return self._frozen
        partitions = self._asked.partitions(self._options.selection)
        latest = self._asked.latest(partitions)
        for _ in range(self._options.fetch_offset_retries):
            # Those that end earlier than they did may have a leader that does not know yet how far it may show them.
            if not shorter_logs(begins, latest):
                break
            self._sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            latest = self._asked.latest(partitions)
        self._check_topics(latest, begins)
        if self._is_available_now:
            self._frozen = latest
        return latest

    def _check_topics(self, partitions: Offsets, begins: Offsets) -> None:
        """Remember the ids of topics, and tell those that changed.

        Raises:
            DataLoss: under ``failOnDataLoss``, a topic is another one than it was.
        """
        found = self._asked.topic_ids({partition.topic for partition in partitions})
        made_anew = {topic for topic, topic_id in found.items() if self._topic_ids.get(topic, topic_id) != topic_id}
        self._topic_ids = {**self._topic_ids, **found}
        reason = "the topic was deleted and created again since the last micro-batch"
        losses = [DataLoss(each, begins[each], reason) for each in begins if each.topic in made_anew]
        report(losses, self._options.fail_on_data_loss)

    # --- What to read ---

    @shown_in_one_line
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Return the tasks of the micro-batch from ``start`` to ``end``.

        Raises:
            DataLoss: under ``failOnDataLoss``, not all of that is there any more.
            SparkJobError: a query that is to end would reach too far, see ``check_available_now``.
            SourceUnavailable: nobody answers.
        """
        if start == end or (start == BEGINNING and depends_on_the_moment(self._options.starting)):
            return []
        return input_partitions(self._patiently(lambda: self._tasks(start, end)))

    def _tasks(self, start: JsonOffsets, end: JsonOffsets) -> list[ReadTask]:
        ends = from_json(end)
        begins = self._initial_offsets(ends) if start == BEGINNING else from_json(start)
        earliest = self._asked.earliest(ends)
        if self._frozen is not None:
            check_available_now(self._frozen, ends, earliest)
        if not self._topic_ids.keys() >= {partition.topic for partition in ends}:
            self._check_topics(ends, begins)
        ranges = plan_stream(begins, ends, earliest=earliest, fail_on_data_loss=self._options.fail_on_data_loss)
        return plan_tasks(self._options, self._asked, ranges, columns=self._columns, topic_ids=self._topic_ids)

    def _initial_offsets(self, ends: Offsets) -> Offsets:
        """Return where the first micro-batch begins, which ends at ``ends``.

        If an earlier life of the query planned it, its end is all that is left of that: partitions that came since have
        no part in it, and records that were deleted since are not asked for.
        """
        if self._initial is None:
            only = attrs.evolve(self._options, selection=Assign(tuple(sorted(ends))))
            found = initial_offsets(only, self._asked)
            self._initial = {partition: min(offset, ends[partition]) for partition, offset in found.items()}
        return self._initial

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, in a worker."""
        return read_partition(partition)

    # --- Asking ---

    @property
    def _asked(self) -> OffsetSource:
        """Whom to ask; connected when first needed, and then until the end."""
        if self._source is None:
            self._source = self._open_source(self._options)
        return self._source

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Return what ``ask`` returns, trying again for ``kafkaConsumer.pollTimeoutMs`` if the cluster answered before.

        Raises:
            SourceUnavailable: it never did, or does not any more.
        """
        give_up_at = self._now() + self._options.poll_timeout_ms / 1000
        while True:
            try:
                answer = ask()
            except SourceUnavailable as error:
                if not self._was_answered or self._now() >= give_up_at:
                    raise
                log.warning("asking again: %s", error)
                self._sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            else:
                self._was_answered = True
                return answer

    def stop(self) -> None:
        """Let go of connections."""
        if self._source is not None:
            self._source.close()
            self._source = None
