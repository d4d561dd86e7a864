"""A network without sockets: what one broker sends another is handed to the other's handlers, over links that fail.

A request takes a fifth of what it takes over a simulated socket, which is what lets many seeds run. What the sockets
and the Processor do with it is not tried here. Links are those of ``SimulatedNetwork``; whatever is under way on them
arrives late, when they heal, or never, when the connection breaks before.
"""

from __future__ import annotations

import errno
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from kafka_wire.headers import read_request_header
from tests.simulation.simulated_world import answered
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener
from trio_broker.network.errors import CloseConnection
from trio_broker.network.handler_pool import Handle
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest, RequestChannel
from trio_broker.network.request_memory_pool import RequestMemoryPool
from trio_broker.runtime.simulated_network import Link, SimulatedHost, SimulatedNetwork
from trio_broker.runtime.timeouts import CONNECT_SECONDS

SIZE = struct.Struct(">i")


class DirectNetwork(SimulatedNetwork):
    """The hosts and the links between them."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.random = self._random
        # Called after each answer.
        self.look: Callable[[], object] = lambda: None
        self._direct_hosts: dict[str, DirectHost] = {}
        self._direct: list[DirectStream] = []

    def host(self, name: str) -> DirectHost:
        """Return the host of a name, the same each time."""
        return self._direct_hosts.setdefault(name, DirectHost(self, name, ""))

    def break_connections(self, one: str, other: str) -> None:
        """End all connections between two hosts; what is under way is lost."""
        for stream in [each for each in self._direct if each.ends == {one, other}]:
            stream.break_now()

    async def connect(self, source: str, target: str, port: int) -> DirectStream:
        """See ``Network``; ``source`` is the host that connects."""
        there, back = self.links(source, target)
        with trio.move_on_after(CONNECT_SECONDS) as scope:
            await there.passed()
            await back.passed()
        if scope.cancelled_caught:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {CONNECT_SECONDS:g} s")
        server = self.host(target).server
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        stream = DirectStream(self, source, target, there, back)
        self._direct.append(stream)
        server.accept(stream)
        return stream

    def reset(self, name: str) -> None:
        """End all connections of a host."""
        for stream in [each for each in self._direct if name in each.ends]:
            stream.break_now()

    def forget(self, stream: DirectStream) -> None:
        """Know a connection no longer, which has ended."""
        if stream in self._direct:
            self._direct.remove(stream)


class DirectHost(SimulatedHost):
    """The network of one host, see ``Network``. ``server`` is what listens there."""

    server: DirectServer | None = None

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        return await self.network.connect(self.name, host, port)

    def reset(self) -> None:
        """Do what the kernel does when a process ends."""
        self.server = None
        assert isinstance(self.network, DirectNetwork), "it was made by one"
        self.network.reset(self.name)


@attrs.define(eq=False)
class DirectStream(trio.abc.Stream):
    """A connection between two hosts, as the one that made it has it."""

    network: DirectNetwork
    source: str
    target: str
    there: Link
    back: Link
    is_broken: bool = False
    is_at_end: bool = False
    """The other side has closed it: what it had sent comes first."""
    requests: deque[bytes] = attrs.field(factory=deque)
    answers: deque[bytes] = attrs.field(factory=deque)
    changed: trio.Event = attrs.field(factory=trio.Event)

    @property
    def ends(self) -> set[str]:
        return {self.source, self.target}

    def break_now(self) -> None:
        """End it for both sides."""
        self.is_broken = True
        self.network.forget(self)
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    # ---- the side that asks

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._require_whole()
        view = memoryview(data)
        while view:
            (size,) = SIZE.unpack_from(view)
            self.requests.append(bytes(view[4 : 4 + size]))
            view = view[4 + size :]
        self.wake()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while not self.answers:
            self._require_whole()
            if self.is_at_end:
                return b""
            await self.changed.wait()
        await self.back.passed()
        self._require_whole()
        return self.answers.popleft()

    def _require_whole(self) -> None:
        if self.is_broken:
            raise trio.BrokenResourceError("the connection broke")

    async def aclose(self) -> None:
        self.break_now()
        await trio.lowlevel.checkpoint()

    # ---- the side that answers

    async def next_request(self) -> bytes | None:
        """Return the next request when it has arrived; None at the end."""
        while not self.requests and not self.is_broken:
            await self.changed.wait()
        if self.is_broken:
            return None
        await self.there.passed()
        return None if self.is_broken else self.requests.popleft()

    def answer(self, response: bytes) -> None:
        self.answers.append(SIZE.pack(len(response)) + response)
        self.wake()


class DirectServer:
    """What a broker has in the place of ``SocketServer``: one task for each connection, which answers one request after
    the other."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        handle: Handle,
        config: SocketServerConfig,
        network: DirectHost,
        **_: Any,
    ) -> None:
        self.config = attrs.evolve(config)
        self.channel = RequestChannel(config.queued_max_requests)
        self.memory_pool = RequestMemoryPool(self.config)
        self.handlers = self
        self.handle = handle
        self._host = network
        self._listener = listeners[0]
        self._nursery: trio.Nursery | None = None
        self._streams: dict[DirectStream, None] = {}
        self._in_flight = 0
        self._answered = trio.Event()

    def bind(self) -> Mapping[str, tuple[str, int]]:
        return self.bound_addresses

    @property
    def bound_addresses(self) -> Mapping[str, tuple[str, int]]:
        return {self._listener.name: ("127.0.0.1", self._listener.port)}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            self._host.server = self
            task_status.started()
            await trio.sleep_forever()

    def accept(self, stream: DirectStream) -> None:
        assert self._nursery is not None, "it runs"
        self._streams[stream] = None
        self._nursery.start_soon(self._serve, stream, name=f"connection from {stream.source}")

    async def _serve(self, stream: DirectStream) -> None:
        info = ConnectionInfo(1, self._listener.name, "10.0.0.2", 50_000, "127.0.0.1", self._listener.port)
        try:
            while (wire := await stream.next_request()) is not None:
                self._in_flight += 1
                try:
                    header, position = read_request_header(wire)
                    request = QueuedRequest(header, memoryview(wire)[position:], info)
                    stream.answer(await answered(self.handle(request)))
                    stream.network.look()
                finally:
                    self._in_flight -= 1
                    self._answered.set()
        except CloseConnection:
            pass
        finally:
            del self._streams[stream]
            stream.is_at_end = True
            stream.network.forget(stream)
            stream.wake()

    def stop_accepting(self) -> None:
        if self._host.server is self:
            self._host.server = None

    async def drain(self, deadline: float) -> None:
        """Let every request in flight be answered, close all connections, and end ``run``."""
        with trio.move_on_at(deadline):
            while self._in_flight:
                self._answered = trio.Event()
                await self._answered.wait()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def reconfigure(self, config: SocketServerConfig) -> None:
        """Nothing of it has an effect here."""
