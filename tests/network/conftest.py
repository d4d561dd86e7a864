"""A socket server on loopback with handlers made for the purpose, and a client that speaks in frames."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.headers import RequestHeader, request_header
from tests.waits import fail_after
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener, accept_from
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.socket_server import SocketServer
from trio_broker.runtime.clock import ManualClock

WAIT_SECONDS = 20
"""No test waits this long unless it has failed; the machine may be busy with others."""


async def echo(request: QueuedRequest) -> Answer:
    """Answer with the correlation id and the body, as a response with header 0."""
    return [request.header.correlation_id.to_bytes(4, "big"), bytes(request.body)]


def frame(correlation_id: int, body: bytes = b"", *, api_key: int = ApiKey.METADATA, version: int = 1) -> bytes:
    """A request with its size prefix."""
    content = request_header(RequestHeader(api_key, version, correlation_id, "tests")) + body
    return len(content).to_bytes(4, "big") + content


@attrs.define(eq=False)
class Client:
    """A connection to the server under test."""

    stream: Any
    """Of TCP, or of TLS."""

    async def send(self, correlation_id: int, body: bytes = b"", **header: int) -> None:
        await self.stream.send_all(frame(correlation_id, body, **header))

    async def receive(self) -> tuple[int, bytes]:
        """The correlation id and body of the next response."""
        size = int.from_bytes(await self.exactly(4), "big")
        response = await self.exactly(size)
        return int.from_bytes(response[:4], "big"), response[4:]

    async def exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = await self.stream.receive_some(count - len(data))
            assert more, "the server closed the connection"
            data += more
        return bytes(data)

    async def ask(self, correlation_id: int, body: bytes = b"") -> bytes:
        await self.send(correlation_id, body)
        answered, response = await self.receive()
        assert answered == correlation_id
        return response

    async def is_closed(self) -> bool:
        """Wait for the server to close; False if it sends something instead."""
        try:
            return bool(await self.stream.receive_some(1) == b"")
        except trio.BrokenResourceError:
            return True

    def reset(self) -> None:
        """Vanish without a goodbye."""
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.stream.socket.close()


@attrs.define(eq=False)
class Harness:
    """A running server, its settings, its clock, and the task that runs it."""

    server: SocketServer
    config: SocketServerConfig
    clock: ManualClock
    nursery: trio.Nursery
    ended: trio.Event = attrs.field(factory=trio.Event)
    clients: list[Client] = attrs.field(factory=list)

    @property
    def port(self) -> int:
        return self.server.bound_addresses["PLAINTEXT"][1]

    async def connect(self) -> Client:
        self.clients.append(Client(await trio.open_tcp_stream("127.0.0.1", self.port)))
        return self.clients[-1]

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the server go on until ``condition`` holds."""
        with fail_after(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 (what is waited for is the kernel, which sets no event)
                await trio.sleep(0.001)


class Serving(Protocol):
    """What the ``serving`` fixture gives."""

    def __call__(self, handle: Any = echo, **settings: Any) -> AbstractAsyncContextManager[Harness]: ...


@asynccontextmanager
async def serve(
    handle: Any = echo, *, is_served: Any = None, accept: Any = None, tls: Any = None, **settings: Any
) -> AsyncIterator[Harness]:
    """Run a server with ``settings`` while the block runs."""
    config = SocketServerConfig(**settings)
    clock = ManualClock()
    server = SocketServer(
        [Listener("PLAINTEXT", "127.0.0.1", 0)],
        handle=handle,
        is_served=is_served or (lambda api_key, version: version <= 10),
        config=config,
        clock=clock,
        accept=accept or accept_from,
        tls={} if tls is None else {"PLAINTEXT": tls},
    )
    with fail_after(WAIT_SECONDS):
        async with trio.open_nursery() as nursery:
            harness = Harness(server, config, clock, nursery)

            async def run(task_status: trio.TaskStatus[Any]) -> None:
                await server.run(task_status=task_status)
                harness.ended.set()

            await nursery.start(run)
            try:
                yield harness
            finally:
                for client in harness.clients:
                    getattr(client.stream, "transport_stream", client.stream).socket.close()
            nursery.cancel_scope.cancel()


@pytest.fixture
def serving() -> Serving:
    """Start a server: ``async with serving(handle, num_io_threads=1) as harness``."""
    return serve


@pytest.fixture
def frame_of() -> Callable[..., bytes]:
    """Make the bytes of a request: ``frame_of(correlation_id, body)``."""
    return frame
