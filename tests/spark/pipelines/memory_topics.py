"""Topics in memory that a job reads as it would read a cluster's, and what should be in its table then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import Header, NewRecord
from tests.spark.offset_sources import FakeLogs
from tests.spark.pipelines.memory_log import InMemory, StoredBatch
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import read_options
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.planning.offset_planning import split
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask

DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
"""Noon of 2023-11-14, UTC."""

RECORDS_PER_BATCH = 4


@attrs.define
class Topics:
    """Partitions and their records, of which a job reads ``topics``."""

    records: dict[TopicPartition, list[NewRecord]] = attrs.field(factory=dict)
    ids: dict[str, str] = attrs.field(factory=dict)
    first_offsets: dict[TopicPartition, int] = attrs.field(factory=dict)

    def add(self, topic: str, records: Iterable[NewRecord], partition: int = 0) -> None:
        """Let a partition have more records; it need not exist before."""
        self.records.setdefault(TopicPartition(topic, partition), []).extend(records)

    def source(self, *, tasks: int = 2, **options: str) -> MemorySource:
        """What a job reads that subscribes all topics there are."""
        subscribed = ",".join(sorted({each.topic for each in self.records}))
        given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": subscribed, **options}
        bounds = {
            partition: (self.first_offsets.get(partition, 0), len(records))
            for partition, records in self.records.items()
        }
        source = FakeLogs(bounds, topic_ids=self.ids)
        transports = {partition: InMemory(tuple(stored(records))) for partition, records in self.records.items()}
        return MemorySource(read_options(given, Mode.BATCH), source, transports, tasks)

    def rows(self) -> set[tuple[str, int, int, bytes | None]]:
        """Topic, partition, offset and value of every record."""
        return {
            (partition.topic, partition.partition, offset, record.value)
            for partition, records in self.records.items()
            for offset, record in enumerate(records)
        }


@attrs.frozen
class MemorySource(JobSource):
    """Reads from memory in place of the network."""

    transports: Mapping[TopicPartition, InMemory]
    task_count: int

    def tasks(
        self, ranges: Sequence[OffsetRange], columns: tuple[str, ...], parallelism: int, topic_ids: Mapping[str, str]
    ) -> list[ReadTask]:
        parts = split(ranges, min_partitions=self.task_count)
        return [ReadTask(part, self.transports[part.partition], self.options.decoding(columns)) for part in parts]


def stored(records: Sequence[NewRecord]) -> Iterable[StoredBatch]:
    """Batches of these records, from offset 0 on, of all codecs in turn."""
    codecs = list(Codec)
    for number, start in enumerate(range(0, len(records), RECORDS_PER_BATCH)):
        codec = codecs[number % len(codecs)]
        data = build_batch(records[start : start + RECORDS_PER_BATCH], base_offset=start, codec=codec)
        yield StoredBatch(start, data)


def numbered(start: int, end: int, *, day: int = 0, key: bytes | None = None) -> list[NewRecord]:
    """Records with a number as their value, on a day counted from 2023-11-14."""
    headers: tuple[Header, ...] = (("n", b"1"), ("empty", None))
    return [
        NewRecord(
            timestamp=NOON_MS + day * DAY_MS + number,
            key=key,
            value=b"%d" % number,
            headers=headers if number % 3 == 0 else (),
        )
        for number in range(start, end)
    ]


def two_topics() -> Topics:
    """Two topics with three partitions between them, records of two days."""
    topics = Topics(ids={"clicks": "id-of-clicks", "orders": "id-of-orders"})
    topics.add("orders", [*numbered(0, 13), *numbered(13, 17, day=1)])
    topics.add("orders", numbered(100, 105), partition=1)
    topics.add("clicks", numbered(0, 9, day=1, key=b"k"))
    return topics
