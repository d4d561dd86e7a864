"""Gathers single records into batches, which a ``BatchProducer`` delivers.

A record goes to the partition that it names, otherwise to the partition of its key, by the hash of Kafka's Java
clients. Records with neither go to one partition until its batch is full and then to the next one, which makes full
batches (the sticky partitioner of KIP-480; Kafka's picks the next one at random). Gathered records are sent when full
batches make a request worthwhile, or by ``flush``.

Source: Kafka's KafkaProducer, RecordAccumulator and BuiltInPartitioner.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import attrs

from kafka_wire.records.batch import BATCH_HEADER_BYTES
from kafka_wire.records.compression import Codec, compress
from kafka_wire.records.record import Header, NewRecord, append_record
from trio_broker.client.errors import WriteFailed
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.producer_batch import MOST_RECORDS, UnsequencedBatch
from trio_broker.common.murmur2 import partition_of
from trio_broker.common.topic_partition import TopicPartition

DELIVERED_BYTES: Final = 1024 * 1024
"""Full batches are delivered when they have this many bytes together: the costs of a request are then small beside
those of its records."""

RECORD_OVERHEAD_BYTES: Final = 32
"""Estimates the lengths and deltas in an encoded record, and the lengths in each header. They rarely take more than 20
bytes, so a batch is closed a little early rather than too late."""


@attrs.frozen
class ProducerRecord:
    """A record to be written. Without ``partition`` its key decides; without ``timestamp`` (ms) it gets the present."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def system_now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class OpenBatch:
    """The records of one partition that were gathered since its last batch, already encoded."""

    base_timestamp: int
    max_timestamp: int
    record_count: int = 0
    data: bytearray = attrs.field(factory=bytearray)

    def append(self, record: NewRecord) -> None:
        """Encode a record and add it."""
        # May be negative: records need not be in the order of their timestamps.
        timestamp_delta = record.timestamp - self.base_timestamp
        append_record(self.data, timestamp_delta, self.record_count, record.key, record.value, record.headers)
        self.record_count += 1
        self.max_timestamp = max(self.max_timestamp, record.timestamp)

    def closed(self, partition: TopicPartition, codec: Codec, level: int | None) -> UnsequencedBatch:
        """Return the batch, compressed."""
        return UnsequencedBatch(
            partition=partition,
            record_count=self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            codec=codec,
            blocks=(self.data if codec is Codec.NONE else compress(codec, self.data, level),),
        )


class RecordProducer:
    """Gathers records for ``producer``, which the caller closes.

    ``record_counts`` has the number of acknowledged records of each partition. Records without key and partition go to
    ``first_partition`` first. Tests replace ``now_ms``.
    """

    def __init__(
        self, producer: BatchProducer, *, first_partition: int = 0, now_ms: Callable[[], int] = system_now_ms
    ) -> None:
        self.record_counts: dict[TopicPartition, int] = {}
        self._producer = producer
        self._settings = producer.settings
        self._now_ms = now_ms
        self._sticky_partition = first_partition
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._full: list[UnsequencedBatch] = []
        self._full_bytes = 0

    def send(self, topic: str, record: ProducerRecord) -> None:
        """Add a record to the batch of its partition, and deliver the full batches if they are worthwhile.

        Raises:
            WriteFailed: the topic does not exist or has no such partition, or records could not be written.
        """
        partition = self._partition(topic, record)
        timestamp = self._now_ms() if record.timestamp is None else record.timestamp
        # A loop, because the next sticky partition may have a full batch too: of records that name it or have keys.
        while (batch := self._open.get(partition)) is not None and self._is_full(batch, record):
            self._close(partition)
            if record.key is None and record.partition is None:
                self._sticky_partition += 1
                partition = self._partition(topic, record)
        if batch is None:
            batch = self._open[partition] = OpenBatch(timestamp, timestamp)
        batch.append(NewRecord(timestamp, record.key, record.value, record.headers))
        if self._full_bytes >= DELIVERED_BYTES:
            self._deliver()

    def require_partition(self, topic: str, partition: int) -> None:
        """Refuse a partition that the topic does not have.

        Raises:
            WriteFailed: the topic does not exist or has no such partition.
        """
        count = self._producer.partition_count(topic)
        if partition >= count:
            raise WriteFailed(f"topic {topic!r} has no partition {partition}; it has {count}, from 0 on")

    def flush(self) -> None:
        """Deliver all gathered records; return when they are acknowledged.

        Raises:
            WriteFailed: a record could not be written.
        """
        for partition in list(self._open):
            self._close(partition)
        self._deliver()

    def _partition(self, topic: str, record: ProducerRecord) -> TopicPartition:
        if record.partition is not None:
            self.require_partition(topic, record.partition)
            return TopicPartition(topic, record.partition)
        count = self._producer.partition_count(topic)
        if record.key is not None:
            return TopicPartition(topic, partition_of(record.key, count))
        return TopicPartition(topic, self._sticky_partition % count)

    def _is_full(self, batch: OpenBatch, record: ProducerRecord) -> bool:
        """Whether a batch has no room for another record, whose encoded size is estimated."""
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        size += sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in record.headers)
        too_large = BATCH_HEADER_BYTES + len(batch.data) + size > self._settings.batch_size
        return too_large or batch.record_count == MOST_RECORDS

    def _close(self, partition: TopicPartition) -> None:
        batch = self._open.pop(partition).closed(partition, self._settings.codec, self._settings.compression_level)
        self._full.append(batch)
        self._full_bytes += batch.size_bytes

    def _deliver(self) -> None:
        # Emptied before the delivery, because a batch whose delivery failed may be in the log and must not be sent
        # again.
        batches, self._full, self._full_bytes = self._full, [], 0
        self._producer.deliver(batches)
        for batch in batches:
            self.record_counts[batch.partition] = self.record_counts.get(batch.partition, 0) + batch.record_count
