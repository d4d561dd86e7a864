"""A partition behind a scripted Kafka: batches that are served as a broker serves them, and what goes wrong first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from kafka_wire.messages.fetch import AbortedTransaction as WireTransaction
from kafka_wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    SpecialTimestamp,
)
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.client.scripted_client import Pauses
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from trio_broker.client.address import parse_addresses
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import Chunk
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.wire.transport import WireReader, WireTransport

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
ORDERS_0 = TopicPartition(TOPIC, 0)
RECORDS_PER_BATCH = 10
POLL_TIMEOUT_MS = 20_000


def batch(base_offset: int, count: int = RECORDS_PER_BATCH, value: bytes = b"v", **options: Any) -> bytes:
    """``count`` records from ``base_offset`` on."""
    return build_batch([NewRecord(1000, b"k", value)] * count, base_offset=base_offset, **options)


def batches(start: int, end: int, **options: Any) -> list[bytes]:
    """Batches of ten records each."""
    return [batch(base_offset, **options) for base_offset in range(start, end, RECORDS_PER_BATCH)]


def last_offset(data: bytes) -> int:
    """The last offset of a batch that may be damaged."""
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


@attrs.frozen
class Transaction:
    """An aborted one; the last offset is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@attrs.define(eq=False, slots=False)
class ScriptedPartition:
    """What a leader has of ``orders-0``. ``troubles`` are answered first, one each: an error code, or any answer."""

    batches: list[bytes]
    log_start_offset: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    aborted: list[Transaction] = attrs.field(factory=list)
    troubles: list[Any] = attrs.field(factory=list)
    topic_id: bytes = TOPIC_ID
    leader_epoch: int = 3
    names_early: bool = False
    fetched: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))

    def __attrs_post_init__(self) -> None:
        end = last_offset(self.batches[-1]) + 1 if self.batches else self.log_start_offset
        if self.high_watermark < 0:
            self.high_watermark = end
        if self.last_stable_offset < 0:
            self.last_stable_offset = self.high_watermark

    def on(self, server: ScriptedKafka, cluster: Cluster) -> None:
        """Let ``server`` answer for this partition, and tell of it."""
        server.answers[FetchRequest] = self.fetch
        server.answers[ListOffsetsRequest] = self.list_offsets
        tell_topic_ids(server, cluster, self)

    def fetch(self, request: FetchRequest, version: int) -> Any:
        self.fetched.release()
        [topic] = request.topics
        [wanted] = topic.partitions
        if self.troubles:
            trouble = self.troubles.pop(0)
            if not isinstance(trouble, int):
                return trouble(request, version) if callable(trouble) else trouble
            return self.answer(
                topic,
                PartitionData(
                    partition_index=0, error_code=trouble, high_watermark=-1, aborted_transactions=None, records=b""
                ),
            )
        records, upper_bound = self.read(wanted.fetch_offset, min(wanted.partition_max_bytes, request.max_bytes))
        return self.answer(
            topic,
            PartitionData(
                partition_index=0,
                high_watermark=self.high_watermark,
                last_stable_offset=self.last_stable_offset,
                log_start_offset=self.log_start_offset,
                aborted_transactions=[
                    WireTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                    for each in self.aborted
                    if each.last_offset >= wanted.fetch_offset and (each.first_offset < upper_bound or self.names_early)
                ],
                records=records,
            ),
        )

    def nothing(self, request: FetchRequest, version: int) -> FetchResponse:
        """An answer without records, as a trouble."""
        data = PartitionData(
            partition_index=0,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            aborted_transactions=None,
            records=b"",
        )
        return self.answer(request.topics[0], data)

    def answer(self, topic: Any, data: PartitionData) -> FetchResponse:
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])]
        )

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """Whole batches from the one with ``offset`` on, one at least, and the offset behind them."""
        found, next_offset = b"", offset
        for each in self.batches:
            if last_offset(each) < offset:
                continue
            if found and len(found) + len(each) > max_bytes:
                break
            found += each
            next_offset = last_offset(each) + 1
        return found, next_offset

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        [topic] = request.topics
        [wanted] = topic.partitions
        offset = self.log_start_offset if wanted.timestamp == SpecialTimestamp.EARLIEST else self.high_watermark
        found = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[found])])


def tell_topic_ids(server: ScriptedKafka, cluster: Cluster, partition: ScriptedPartition) -> None:
    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        response = cluster.metadata(request, version)
        for topic in response.topics:
            topic.topic_id = partition.topic_id
            for each in topic.partitions:
                each.leader_epoch = partition.leader_epoch
        return response

    server.answers[MetadataRequest] = metadata


@attrs.define
class Reading:
    """A reader of a range, its server and the pauses it made."""

    server: ScriptedKafka
    partition: ScriptedPartition
    transport: WireTransport
    cluster: Cluster
    pauses: Pauses = attrs.field(factory=Pauses)

    def reader(self, start: int, end: int, *, ask_ahead: bool = False, **changes: Any) -> WireReader:
        return WireReader(
            attrs.evolve(self.transport, **changes),
            OffsetRange(ORDERS_0, start, end),
            ask_ahead=ask_ahead,
            now=lambda: sum(self.pauses.made),
            sleep=self.pauses.made.append,
        )

    @contextmanager
    def opened(self, start: int, end: int, **changes: Any) -> Iterator[Iterator[Chunk]]:
        """The chunks of a range one by one."""
        reader = self.reader(start, end, **changes)
        try:
            yield reader.chunks()
        finally:
            reader.close()

    def chunks(self, start: int, end: int, **changes: Any) -> list[Chunk]:
        """All chunks of a range, with bytes of their own."""
        with self.opened(start, end, **changes) as chunks:
            return [attrs.evolve(chunk, data=memoryview(bytes(chunk.data))) for chunk in chunks]

    def with_settings(self, **changes: Any) -> Any:
        return attrs.evolve(self.transport.kafka, **changes)

    @property
    def fetches(self) -> list[FetchRequest]:
        return self.server.requests(FetchRequest)

    @property
    def wanted_offsets(self) -> list[int]:
        return [request.topics[0].partitions[0].fetch_offset for request in self.fetches]

    @property
    def wanted_bytes(self) -> list[int]:
        return [request.topics[0].partitions[0].partition_max_bytes for request in self.fetches]


@contextmanager
def reading(partition: ScriptedPartition, **options: Any) -> Iterator[Reading]:
    """One broker that leads ``orders-0``; ``options`` are those of ``ScriptedKafka``."""
    with ScriptedKafka(**options) as server:
        cluster = Cluster([server], topics={TOPIC: [server.node_id]})
        partition.on(server, cluster)
        kafka = KafkaSettings(parse_addresses(server.address))
        transport = WireTransport(kafka=kafka, poll_timeout_ms=POLL_TIMEOUT_MS)
        yield Reading(server, partition, transport, cluster)


def base_offsets(chunks: list[Chunk]) -> list[int]:
    """Where the batches of chunks begin."""
    return [int(offset) for chunk in chunks for offset in chunk.table.base_offsets]
