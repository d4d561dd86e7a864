"""Connections with many small requests on their way, whose answers must come in their order and be right.

Each connection owns one partition and nobody else writes to it. So it knows what every answer must say: which base
offset a Produce gets, which record a Fetch finds, where the log ends, and that a Fetch at the end finds nothing.

Source: Kafka's protocol guide: "the server guarantees that on a single TCP connection, requests will be processed in
the order they are sent and responses will return in that order as well".
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from types import TracebackType
from typing import Any

import attrs
import trio

from kafka_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.record import NewRecord
from tests.checking.history import Event, Op, Outcome, Record
from tests.compat.wire_members import connection_to
from tests.running_broker import Connection
from tests.waits import fail_after, within

MOST_ON_THEIR_WAY = 16

ANSWER_SECONDS = 60.0
"""How long one answer may take; the longest poll asks for a twentieth of a second."""

LONGEST_POLL_MS = 50
LATEST = -1
ALL = -1
TIMEOUT_MS = 30_000

Check = Callable[[Any], None]

Prepared = tuple[Any, int, Check | None]
"""A request, its version, and the check of its answer; None where it has no answer."""


@attrs.frozen
class Expected:
    """The answer to one request."""

    correlation_id: int
    request: Any
    version: int
    check: Check


@attrs.define(eq=False)
class Pipeline:
    """One connection. ``end`` is the offset after the last record sent, ``acknowledged`` after the last with acks=all.

    Requests of one connection are handled one after the other, so both count for every request that is sent later.
    """

    connection: Connection
    topic: str
    partition: int
    pipelines: int
    random: Random
    end: int = 0
    acknowledged: int = 0
    answered: Counter[str] = attrs.field(factory=Counter)
    expected: deque[Expected] = attrs.field(factory=deque)

    async def turn(self) -> None:
        """Send until a random number of requests are on their way, and receive one answer."""
        for _ in range(self.random.randint(1, MOST_ON_THEIR_WAY) - len(self.expected)):
            await self._send(self.random.choice(REQUESTS)(self))
        if self.expected:
            await self.receive()

    async def receive(self) -> None:
        """Receive the next answer.

        Raises:
            AssertionError: it belongs to another request, or says something else.
            EOFError: the broker closed the connection.
            trio.TooSlowError: it does not come.
        """
        expected = self.expected.popleft()
        with fail_after(ANSWER_SECONDS):
            response = await self.connection.receive(expected.request, expected.version)
        assert self.connection.answered == expected.correlation_id, (
            f"answer {self.connection.answered} came where {expected.correlation_id} belongs"
        )
        expected.check(response)
        self.answered[type(expected.request).__name__.removesuffix("Request")] += 1

    async def end_all(self) -> None:
        """Receive what is on its way, and have the last record acknowledged."""
        await self._send(self.produce(acks=ALL))
        while self.expected:
            await self.receive()

    async def _send(self, prepared: Prepared) -> None:
        request, version, check = prepared
        await self.connection.send(request, version)
        if check is not None:
            self.expected.append(Expected(self.connection.sent, request, version, check))

    def value_at(self, offset: int) -> int:
        """The value of a record, which no other one has."""
        return offset * self.pipelines + self.partition

    # ---- the requests, with their versions and what their answers must say

    def produce(self, acks: int | None = None) -> Prepared:
        if acks is None:
            acks = self.random.choice((ALL, ALL, 1, 0))
        records = build_batch([NewRecord(timestamp=1_700_000_000_000, value=b"%d" % self.value_at(self.end))])
        data = PartitionProduceData(index=self.partition, records=records)
        topic = TopicProduceData(name=self.topic, partition_data=[data])
        check = partial(check_produced, self.end) if acks else None
        self.end += 1
        if acks == ALL:
            self.acknowledged = self.end
        return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[topic]), 9, check

    def fetch(self) -> Prepared:
        """Any record that is acknowledged by then."""
        if not self.acknowledged:
            return self.long_poll()
        offset = self.random.randrange(self.acknowledged)
        return self._fetch_from(offset, 0), 12, partial(check_fetched, offset, b"%d" % self.value_at(offset))

    def long_poll(self) -> Prepared:
        """Wait at the end of the log; the next record cannot be handled before this is answered."""
        return self._fetch_from(self.end, self.random.randint(1, LONGEST_POLL_MS)), 12, check_nothing_fetched

    def _fetch_from(self, offset: int, max_wait_ms: int) -> FetchRequest:
        partition = FetchPartition(partition=self.partition, fetch_offset=offset, partition_max_bytes=1)
        topics = [FetchTopic(topic=self.topic, partitions=[partition])]
        return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)

    def list_offsets(self) -> Prepared:
        place = ListOffsetsPartition(partition_index=self.partition, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=[place])])
        return request, 6, partial(check_end, self.acknowledged, self.end)

    def metadata(self) -> Prepared:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        return request, 9, partial(check_metadata, self.pipelines)

    def api_versions(self) -> Prepared:
        return ApiVersionsRequest(client_software_name="pipeline", client_software_version="1"), 3, check_versions


REQUESTS = (
    *(Pipeline.produce, Pipeline.produce, Pipeline.produce, Pipeline.fetch, Pipeline.fetch),
    *(Pipeline.long_poll, Pipeline.list_offsets, Pipeline.metadata, Pipeline.api_versions),
)


def check_produced(offset: int, response: ProduceResponse) -> None:
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, offset), f"{answer} where offset {offset} belongs"


def fetched(response: FetchResponse) -> list[tuple[int, bytes | None]]:
    answer = response.responses[0].partitions[0]
    assert (response.error_code, answer.error_code) == (0, 0), answer
    batches = read_batches(answer.records or b"")
    return [(batch.header.base_offset, record.value) for batch in batches for record in batch.records()]


def check_fetched(offset: int, value: bytes, response: FetchResponse) -> None:
    records = fetched(response)
    assert records == [(offset, value)], f"{records} where {value!r} belongs at {offset}"


def check_nothing_fetched(response: FetchResponse) -> None:
    records = fetched(response)
    assert not records, f"{records} at the end of the log"


def check_end(least: int, most: int, response: ListOffsetsResponse) -> None:
    answer = response.topics[0].partitions[0]
    assert answer.error_code == 0, answer
    assert least <= answer.offset <= most, f"the log ends at {answer.offset}, not between {least} and {most}"


def check_metadata(partitions: int, response: MetadataResponse) -> None:
    answer = response.topics[0]
    assert (answer.error_code, len(answer.partitions)) == (0, partitions), answer


def check_versions(response: ApiVersionsResponse) -> None:
    assert response.error_code == 0, response
    assert response.api_keys, response


class PipelinedLoad:
    """Runs a pipeline for each partition of a topic inside the block, in a thread of its own.

    ``failures`` says what went wrong; ``failed`` is set with the first of them.
    """

    def __init__(self, servers: str, topic: str, partitions: int, seed: int) -> None:
        self.servers, self.topic, self.partitions, self.seed = servers, topic, partitions, seed
        self.pipelines: list[Pipeline] = []
        self.failures: list[str] = []
        self.failed = threading.Event()
        self._connected = threading.Event()
        self._enough = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="pipelined requests")

    def __enter__(self) -> PipelinedLoad:
        """Return when all pipelines are connected."""
        self._thread.start()
        assert within(self._connected.wait, ANSWER_SECONDS), f"not every pipeline is connected: {self.failures}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._enough.set()
        self._thread.join()

    @property
    def answered(self) -> Counter[str]:
        """The answers that came, by API."""
        return sum((pipeline.answered for pipeline in self.pipelines), Counter())

    def sent(self) -> list[Event]:
        """What was sent, as a history; all of it is acknowledged by now."""
        return [
            Event(f"pipeline-{pipeline.partition}", Op.SEND, 0.0, 0.0, Outcome.OK, records=tuple(records))
            for pipeline in self.pipelines
            for records in ([Record(pipeline.partition, at, pipeline.value_at(at)) for at in range(pipeline.end)],)
        ]

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            for partition in range(self.partitions):
                nursery.start_soon(self._live, partition)

    async def _live(self, partition: int) -> None:
        try:
            async with connection_to(self.servers) as connection:
                random = Random(f"{self.seed} {partition}")
                pipeline = Pipeline(connection, self.topic, partition, self.partitions, random)
                self.pipelines.append(pipeline)
                if len(self.pipelines) == self.partitions:
                    self._connected.set()
                while not self._enough.is_set():
                    await pipeline.turn()
                await pipeline.end_all()
        except (AssertionError, EOFError, OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            self.failures.append(f"pipeline {partition}: {error!r}")
            self.failed.set()
