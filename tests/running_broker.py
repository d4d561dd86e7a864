"""A broker in the test's own event loop, and a client that speaks to it over a real socket."""

from __future__ import annotations

import gc
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio
from trio.testing import MockClock

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.record import NewRecord
from tests.handlers.handler_client import joined
from tests.waits import fail_after, scaled
from trio_broker.broker import Broker, serve_until_signalled
from trio_broker.broker_view.live import LiveBrokerView
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.handlers.support.registry import served_apis
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.real import real_runtime

WAIT_SECONDS = 20.0
"""Far longer than anything here takes, far shorter than the polls and graces that tests ask for."""

PAUSE_SECONDS = 0.001
"""Between two looks at what nobody tells."""

BROKER_RESOURCE = 4
SET, DELETE = 0, 1


def make_broker(directory: Path, clock: Clock | None = None, **settings: str) -> Broker:
    """A broker on ``directory`` and any port, without an admin page; settings with ``_`` for the dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    defaults = {"listeners": "PLAINTEXT://127.0.0.1:0", "admin.listener": "", "log.durability": "page-cache"}
    return Broker(BrokerConfig({**defaults, "log.dirs": str(directory), **given}), runtime=real_runtime(clock))


@asynccontextmanager
async def running(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker that serves inside the block, and is stopped cleanly at its end."""
    broker = make_broker(directory, **settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        yield broker
        broker.stop()


async def serve_as_process(broker: Broker, announce: Callable[[str], object]) -> None:
    """Run ``broker`` as its process does, and give this process its own garbage collection back: a property test behind
    it fails where what refers to Hypothesis's random numbers is hidden from the collector."""
    thresholds, callbacks = gc.get_threshold(), gc.callbacks.copy()
    try:
        await serve_until_signalled(broker, announce)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = callbacks
        gc.unfreeze()


@asynccontextmanager
async def crashing(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker that serves inside the block, and is cancelled at its end, with nothing finished or closed."""
    async with trio.open_nursery() as nursery:
        broker = make_broker(directory, **settings)
        await nursery.start(broker.run)
        yield broker
        nursery.cancel_scope.cancel()


def view_of(broker: Broker) -> LiveBrokerView:
    """A view of a running broker, as its admin server gets one."""
    return LiveBrokerView(broker.services, broker.server, lambda: broker.is_stopping)


@attrs.define
class Connection:
    """A client's connection: ``ask`` for one request at a time, ``send`` and ``receive`` for several under way.

    Requests are numbered. ``sent`` is the correlation id of the last request, ``answered`` that of the last answer.
    """

    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]
    client_id: str = "test"
    sent: int = 0
    answered: int = 0

    async def ask(self, request: Any, version: int) -> Any:
        """The broker's response.

        Raises:
            EOFError: the connection ended instead.
        """
        await self.send(request, version)
        return await self.receive(request, version)

    async def send(self, request: Any, version: int) -> None:
        self.sent += 1
        header = request_header(RequestHeader(request.API_KEY, version, self.sent, self.client_id))
        frame = header + joined(encode(request, version))
        await self.stream.send_all(struct.pack(">i", len(frame)) + frame)

    async def receive(self, request: Any, version: int) -> Any:
        (size,) = struct.unpack(">i", await self._exactly(4))
        answer = await self._exactly(size)
        self.answered, position = read_response_header(request.API_KEY, version, answer)
        response, _ = decode(type(request).RESPONSE, version, answer, position)
        return response

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                chunk = await self.stream.receive_some(count - len(data))
            except trio.BrokenResourceError:
                chunk = b""
            if not chunk:
                raise EOFError("the broker closed the connection")
            data += chunk
        return data

    # ---- what tests ask most

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        assert await self.try_create_topic(name, partitions) == 0

    async def try_create_topic(self, name: str, partitions: int = 1) -> int:
        """Create a topic; returns the error code."""
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        response = await self.ask(CreateTopicsRequest(topics=[wanted]), 7)
        code: int = response.topics[0].error_code
        return code

    async def create_placed_topic(self, name: str, *replicas: Sequence[int]) -> None:
        """Create a topic with a partition for each of ``replicas``, which are the brokers that have it."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(each))
            for index, each in enumerate(replicas)
        ]
        wanted = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
        )
        response = await self.ask(CreateTopicsRequest(topics=[wanted]), 7)
        assert response.topics[0].error_code == 0, response

    async def produce(self, topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> int:
        """Append one batch to a partition; returns its error code."""
        response = await self.ask(produce_request(topic, *values, acks=acks, partition=partition), 9)
        code: int = response.responses[0].partition_responses[0].error_code
        return code

    async def values(self, topic: str, offset: int = 0) -> list[bytes | None]:
        """Every value in partition 0 from ``offset`` on."""
        response = await self.ask(fetch_request(topic, offset=offset), 12)
        partition = response.responses[0].partitions[0]
        assert partition.error_code == 0, partition
        return [record.value for batch in read_batches(partition.records) for record in batch.records()]

    async def alter_broker_config(self, broker: str, **changes: str | None) -> int:
        """Set settings of a broker, or reset those that are None; returns the error code."""
        return (await self.alter_broker_configs(broker, changes))[0]

    async def alter_broker_configs(self, broker: str, changes: Mapping[str, str | None]) -> tuple[int, str]:
        """As ``alter_broker_config``; returns the text of the error as well."""
        configs = [
            AlterableConfig(name=name.replace("_", "."), config_operation=DELETE if value is None else SET, value=value)
            for name, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=broker, configs=configs)
        response = await self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        return response.responses[0].error_code, response.responses[0].error_message or ""


def produce_request(topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> ProduceRequest:
    records = build_batch([NewRecord(timestamp=1_700_000_000_000, key=None, value=value) for value in values])
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(topic: str, *, offset: int = 0, max_wait_ms: int = 0, min_bytes: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


@asynccontextmanager
async def connected(broker: Broker, client_id: str = "test") -> AsyncIterator[Connection]:
    """A connection to the broker's first listener."""
    endpoint = broker.bound_endpoints[0]
    async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        yield Connection(stream, client_id)


def replace_handler(broker: Broker, api_key: ApiKey, handler: Callable[..., Any]) -> None:
    """Let ``handler`` answer the requests of one API."""
    broker.dispatcher.apis = {**served_apis(), api_key: attrs.evolve(served_apis()[api_key], handler=handler)}


async def hold_in_flight(broker: Broker, client: Connection, request: Any, version: int) -> trio.Event:
    """Send a request that stays in flight until the event is set that is returned, and fails then."""
    finish = trio.Event()

    async def held(request: Any, context: Any) -> None:
        await finish.wait()
        raise LookupError("it is over")

    replace_handler(broker, request.API_KEY, held)
    await client.send(request, version)
    await until(lambda: broker.server.handlers.statistics().in_flight)
    return finish


def admin_client(broker: Broker) -> httpx.AsyncClient:
    """A client of the broker's admin app.

    It reads none of the certificates of the system: that takes longer than most requests, and plain HTTP needs none.
    """
    no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(base_url=broker.admin_url or "", timeout=scaled(WAIT_SECONDS), verify=no_certificates)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go round until ``condition`` holds, for what nobody tells.

    On the clock of the machine it rests between two looks: threads and sockets that it waits for need the processor.
    """
    pause = 0 if isinstance(trio.lowlevel.current_clock(), MockClock) else PAUSE_SECONDS
    with fail_after(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(pause)
