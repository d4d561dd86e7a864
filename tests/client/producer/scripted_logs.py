"""Logs behind a scripted broker: appends what producers send, by the rules of idempotence, and lets things go wrong.

``troubles`` says what happens to each Produce request in turn; after the last one nothing does. A trouble is an error
code for every partition, or one of the two ways to lose an answer.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from kafka_wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import RecordBatch, read_batches
from kafka_wire.records.record import Record
from tests.fakes.scripted_kafka import CLOSED, SILENCE, Cluster, ScriptedKafka
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.batch_producer import Timer
from trio_broker.client.producer.settings import ProducerSettings

PRODUCER_ID = 4_000_000_000
TOPIC_ID = bytes(range(16))


class Lost(enum.Enum):
    """An answer that does not come: after the request was carried out, or before."""

    AFTER_APPENDING = "after"
    BEFORE_APPENDING = "before"


Trouble = Lost | ErrorCode | None


@attrs.define
class TurnedTime:
    """A clock that moves when somebody sleeps, and adds up how long."""

    seconds: float = 1000.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.seconds += seconds

    @property
    def timer(self) -> Timer:
        return Timer(now=lambda: self.seconds, sleep=self.sleep)


@attrs.define
class Log:
    """One partition. ``raw`` are the batches as they came, each once; ``largest_bytes`` is what it takes."""

    raw: list[bytes] = attrs.field(factory=list)
    largest_bytes: int = 1 << 30
    next_offset: int = 0
    _offsets: dict[tuple[int, int, int], int] = attrs.field(factory=dict)
    _next_sequences: dict[int, int] = attrs.field(factory=dict)

    @property
    def batches(self) -> list[RecordBatch]:
        return [next(read_batches(data)) for data in self.raw]

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records()]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def append(self, data: bytes) -> tuple[int, int]:
        """Return an error code and the base offset."""
        [batch] = read_batches(data)
        batch.verify_crc()
        batch.validate_records()
        header = batch.header
        if len(data) > self.largest_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if not header.has_producer_id:
            self.raw.append(bytes(data))
            self.next_offset += header.record_count
            return 0, self.next_offset - header.record_count
        place = (header.producer_id, header.base_sequence, header.last_sequence)
        if place in self._offsets:
            return 0, self._offsets[place]
        if header.base_sequence != self._next_sequences.get(header.producer_id, 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self._offsets[place], self._next_sequences[header.producer_id] = self.next_offset, header.last_sequence + 1
        self.raw.append(bytes(data))
        self.next_offset += header.record_count
        return 0, self._offsets[place]


@attrs.define(eq=False)
class ScriptedLogs:
    """Topics and their logs, for one or more scripted brokers."""

    cluster: Cluster
    troubles: list[Trouble] = attrs.field(factory=list)
    topic_id: bytes = NO_UUID
    logs: dict[tuple[str, int], Log] = attrs.field(factory=lambda: defaultdict(Log))
    on_produce: Callable[[], None] = lambda: None

    def __attrs_post_init__(self) -> None:
        for server in self.cluster.servers:
            server.answers[MetadataRequest] = self.metadata
            server.answers[InitProducerIdRequest] = InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0)
            server.answers[ProduceRequest] = self.produce

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        response = self.cluster.metadata(request, version)
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_id = self.topic_id
        return response

    def produce(self, request: ProduceRequest, version: int) -> Any:
        self.on_produce()
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble is Lost.BEFORE_APPENDING:
            return CLOSED
        responses = []
        for topic in request.topic_data:
            name = topic.name or next(iter(self.cluster.topics))
            answers = []
            for partition in topic.partition_data:
                code, offset = -1, -1
                if isinstance(trouble, ErrorCode):
                    code = trouble
                else:
                    code, offset = self.logs[name, partition.index].append(bytes(partition.records or b""))
                answers.append(PartitionProduceResponse(index=partition.index, error_code=code, base_offset=offset))
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        if request.acks == 0:
            return SILENCE
        return CLOSED if trouble is Lost.AFTER_APPENDING else ProduceResponse(responses=responses)


def settings_for(server: ScriptedKafka, **changes: Any) -> ProducerSettings:
    return attrs.evolve(ProducerSettings(parse_addresses(server.address)), **changes)
