"""Arrow batches to the logs of a cluster: the writer of a task of the sink, or of a pipeline.

    with RecordWriter(settings, topic="orders") as writer:
        for batch in batches:
            writer.write(batch)
        writer.flush()

Records are encoded while those before them are sent: one thread makes batches of rows, another delivers them. Rows of
one partition are written in their order. After ``flush`` every in-sync replica has every row; before it, any may be
missing. An error ends the writer; records written by then stay, as Kafka cannot take them back without a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import attrs
import numpy as np
import pyarrow as pa

from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.producer_batch import UnsequencedBatch
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.partitioner import Hashing, StickyPartitioner, assign_partitions, ignore_keys
from trio_broker.spark.producer.record_encoder import ReadyEngine, RecordAccumulator, RecordEngine, RowIds
from trio_broker.spark.producer.row_columns import Int64Array, RowColumns, read_columns
from trio_broker.spark.producer.row_ids import TaskId
from trio_broker.spark.producer.target_topic import partition_count


def system_now_ms() -> int:
    """Return the timestamp of records that have none, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@attrs.define
class DeliveryReport:
    """The acknowledged records: their number, and the offset of the last one in each partition.

    An offset is -1 where only a repeated attempt was acknowledged, by a broker that does not return the offset.
    """

    record_count: int = 0
    last_offsets: dict[TopicPartition, int] = attrs.field(factory=dict)


class RecordWriter:
    """Writes Arrow batches with the columns of ``row_columns``. Use it as a context manager, or call ``close``.

    ``topic`` beats the column. ``task_id`` turns on row ids: rows are numbered from 0 in the order they are written.
    ``first_partition`` is the first partition of rows without key and partition; tasks of one job should have different
    ones. With ``create_topics`` a topic that does not exist is created. A ``producer`` that is passed in is not closed
    here.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        topic: str | None = None,
        include_headers: bool = True,
        include_timestamp: bool = True,
        task_id: TaskId | None = None,
        first_partition: int = 0,
        create_topics: bool = False,
        producer: BatchProducer | None = None,
        engine: RecordEngine | None = None,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        self.settings = settings
        self.written = DeliveryReport()
        self._topic = topic
        self._include_headers = include_headers
        self._include_timestamp = include_timestamp
        self._first_partition = first_partition
        self._create_topics = create_topics
        self._now_ms = now_ms
        self._owns_producer = producer is None
        self._producer = producer or BatchProducer(settings)
        self._producer.begin()
        self._engine = engine or ReadyEngine()
        self._hashing: Hashing = ignore_keys if settings.ignore_keys else self._engine.hash_keys
        self._row_ids = None if task_id is None else RowIds(task_id)
        self._accumulator = RecordAccumulator(
            engine=self._engine,
            batch_size=settings.batch_size,
            codec=settings.codec,
            compression_level=settings.compression_level,
            row_ids=self._row_ids,
        )
        self._rows = 0
        self._partition_counts: dict[str, int] = {}
        self._spreading: dict[str, StickyPartitioner] = {}
        self._full: list[UnsequencedBatch] = []
        self._full_bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deliver")
        self._delivering: Future[None] | None = None
        self._delivering_bytes = 0

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Drop the records that were not flushed, and close the connections; calling again does nothing."""
        if self._delivering is not None or self._full or self._accumulator.open_bytes:
            # It must not be used again: batches that it has sent without an acknowledgement would conflict with new
            # sequences.
            self._producer.is_usable = False
        self._thread.shutdown()
        if self._owns_producer:
            self._producer.close()

    # --- Writing ---

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of ``batch``. They are sent when there are enough of them; see ``flush``.

        Raises:
            UnwritableRow: a column or a row cannot become part of a record; nothing of this batch is sent.
            TargetError: a topic does not exist.
            WriteFailed: a record, of this batch or an earlier one, could not be written.
        """
        columns = read_columns(
            batch,
            topic=self._topic,
            now_ms=self._now_ms(),
            first_row=self._rows,
            include_headers=self._include_headers,
            include_timestamp=self._include_timestamp,
            with_row_ids=self._row_ids is not None,
        )
        for partition, rows in self._by_partition(columns):
            self._add_full(self._accumulator.add(partition, columns, rows, self._rows))
        self._rows += len(columns)
        self._deliver_some()

    def flush(self) -> None:
        """Return when everything is acknowledged by all in-sync replicas.

        Raises:
            WriteFailed: a record could not be written.
        """
        self._add_full(self._accumulator.close_all())
        self._wait()
        self._start_delivery()
        self._wait()

    def _by_partition(self, columns: RowColumns) -> list[tuple[TopicPartition, Int64Array]]:
        """Return the rows of each partition, in their order."""
        grouped: list[tuple[TopicPartition, Int64Array]] = []
        if not len(columns):
            return grouped
        for index, topic in enumerate(columns.topic_names):
            rows = np.flatnonzero(columns.topics == index) if len(columns.topic_names) > 1 else np.arange(len(columns))
            partitions = assign_partitions(
                columns,
                rows,
                self._partition_count(topic),
                self._spreading.setdefault(topic, StickyPartitioner(self._first_partition)),
                self.settings.batch_size,
                self._hashing,
            )
            self._require_partitions(topic, rows, partitions)
            grouped += [(TopicPartition(topic, number), rows[where]) for number, where in group(partitions)]
        return grouped

    def _partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has: the same for all rows of a task, so that equal keys stay together."""
        count = self._partition_counts.get(topic)
        if count is None:
            count = partition_count(self._producer, topic, create=self._create_topics)
            self._partition_counts[topic] = count
        return count

    def _require_partitions(self, topic: str, rows: Int64Array, partitions: Int64Array) -> None:
        count = self._partition_counts[topic]
        unknown = partitions >= count
        if unknown.any():
            index = int(unknown.argmax())
            raise UnwritableRow(
                f"column 'partition' of row {self._rows + int(rows[index])} of the task is {partitions[index]};"
                f" topic {topic!r} has {count} partitions, from 0 on"
            )

    # --- Delivery ---

    def _add_full(self, batches: Sequence[UnsequencedBatch]) -> None:
        self._full += batches
        self._full_bytes += sum(batch.size_bytes for batch in batches)

    def _deliver_some(self) -> None:
        """Send full batches, unless a delivery is going on; wait for that one only if the memory limit requires it."""
        if self._delivering is not None and self._delivering.done():
            self._wait()
        if self._delivering is None:
            self._start_delivery()
        if self._full_bytes + self._delivering_bytes + self._accumulator.open_bytes <= self.settings.buffer_memory:
            return
        if self._accumulator.open_bytes > self.settings.buffer_memory // 2:
            self._add_full(self._accumulator.close_all())
        self._wait()
        self._start_delivery()

    def _start_delivery(self) -> None:
        if self._full:
            batches, self._full = self._full, []
            self._delivering_bytes, self._full_bytes = self._full_bytes, 0
            self._delivering = self._thread.submit(self._deliver, batches)

    def _deliver(self, batches: list[UnsequencedBatch]) -> None:
        last_offsets = self._producer.deliver(batches)
        self.written.last_offsets |= last_offsets
        self.written.record_count += sum(batch.record_count for batch in batches)

    def _wait(self) -> None:
        if self._delivering is not None:
            self._delivering.result()
            self._delivering, self._delivering_bytes = None, 0


def group(numbers: Int64Array) -> list[tuple[int, Int64Array]]:
    """Return each number that occurs, with its positions, both in increasing order."""
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return [(int(numbers[0]), np.arange(len(numbers)))]
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1))
    return list(zip(ordered[starts].tolist(), np.split(order, starts[1:]), strict=True))
