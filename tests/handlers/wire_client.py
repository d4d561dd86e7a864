"""Asking a whole broker but its network: bytes in, through the Dispatcher, bytes out, over parts opened on a disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import CoroutineType
from typing import Any

import attrs
import trio

from kafka_wire.codec import decode, encode
from kafka_wire.headers import RequestHeader, read_request_header, read_response_header, request_header
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.handlers.handler_client import CONNECTION, joined
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.handlers.support.dispatch import Dispatcher
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.handler_pool import DelayedAnswer
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest
from trio_broker.network.request_memory_pool import RequestMemoryPool
from trio_broker.network.request_metrics import RequestChannelMetrics
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.kafka_principal import ANONYMOUS, USER_TYPE, KafkaPrincipal

CORRELATION_ID = 77

CLIENT_ID = "test"

ADVERTISED = {"PLAINTEXT": Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "broker.test", 9092)}


def broker_config(directory: Path, **settings: str) -> BrokerConfig:
    """The settings of a broker on ``directory``; others with ``_`` for the dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"log.dirs": str(directory), "log.durability": "page-cache", **given})


def new_dispatcher(services: BrokerServices) -> Dispatcher:
    """A Dispatcher with counts and memory of its own."""
    return Dispatcher(services, RequestChannelMetrics(), RequestMemoryPool(SocketServerConfig()))


@attrs.define
class WireClient:
    """A client on one connection; ``request`` is what it sent last. ``delayed`` counts given-back handler slots."""

    dispatcher: Dispatcher
    clock: ManualClock
    connection: ConnectionInfo = CONNECTION
    principal: KafkaPrincipal = ANONYMOUS
    request: QueuedRequest | None = None
    delayed: int = 0

    @property
    def services(self) -> BrokerServices:
        return self.dispatcher.services

    def as_user(self, name: str) -> WireClient:
        """A client that has logged in."""
        return attrs.evolve(self, principal=KafkaPrincipal(USER_TYPE, name))

    async def send(self, api_key: int, version: int, body: bytes) -> bytes | None:
        """The answer to a request of these bytes: header and body, or None for silence."""
        sent = RequestHeader(api_key=api_key, api_version=version, correlation_id=CORRELATION_ID, client_id=CLIENT_ID)
        frame = memoryview(bytearray(request_header(sent) + body))
        header, position = read_request_header(frame)
        self.request = QueuedRequest(
            header, frame[position:], self.connection, principal=self.principal, release_slot=self.count_delayed
        )
        answer: Any = self.dispatcher.answer(self.request)
        while isinstance(answer, DelayedAnswer):
            is_complete = trio.Event()
            answer.when_complete(is_complete.set)
            await is_complete.wait()
            answer = answer.resume()
        if isinstance(answer, CoroutineType):
            answer = await answer
        return None if answer is None else joined(list(answer))

    def count_delayed(self) -> None:
        self.delayed += 1

    async def ask(self, request: Any, version: int, *, trailing: bytes = b"") -> Any:
        """The response as a client of ``version`` reads it, to the last byte; None for silence."""
        answer = await self.send(request.API_KEY, version, joined(encode(request, version)) + trailing)
        if answer is None:
            return None
        correlation_id, position = read_response_header(request.API_KEY, version, answer)
        assert correlation_id == CORRELATION_ID
        response, end = decode(type(request).RESPONSE, version, answer, position)
        assert end == len(answer), f"{len(answer) - end} bytes are left over"
        return response

    async def create_topic(self, name: str, partitions: int = 1) -> bytes:
        """Create a topic and return its id."""
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        response = await self.ask(CreateTopicsRequest(topics=[wanted]), 7)
        assert response.topics[0].error_code == 0, response
        topic_id: bytes = response.topics[0].topic_id
        return topic_id


def advertising(addresses: Mapping[str, tuple[str, int]]) -> dict[str, Endpoint]:
    """What listeners of these names tell their clients."""
    return {name: Endpoint(name, SecurityProtocol.PLAINTEXT, host, port) for name, (host, port) in addresses.items()}
