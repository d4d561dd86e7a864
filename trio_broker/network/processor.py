"""A Processor: one of the ``num.network.threads``, and the connections it serves.

One task per connection reads a frame, hands it to the handlers, waits for the answer, writes it, and only then reads
on. Kafka calls the waiting *mute*: a connection has one request in flight, so responses leave in the order of their
requests without any bookkeeping, and TCP slows down a client that sends faster than the broker answers.

Reading tries first and waits only when the socket is empty. All connections of a Processor share one staging buffer,
which is empty again at every await, so an idle connection holds none; a large frame is read directly into a buffer of
its size.

Promises: whatever a client sends or a handler raises ends at most that connection, with one line in the log. A
connection that moves to another Processor loses no byte, and its client does not notice.

Source: Kafka's SocketServer.Processor.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from time import perf_counter_ns
from typing import TypeAlias

import attrs
import trio
from trio.lowlevel import checkpoint, wait_readable

from kafka_wire.apis import ApiKey, api_name
from kafka_wire.errors import WireError
from kafka_wire.framing import frame as framed
from kafka_wire.headers import RequestHeader, read_request_header
from trio_broker.clock import Clock
from trio_broker.network.busy_time import BusyTime, Utilization
from trio_broker.network.client_activity import VERSION_BITS
from trio_broker.network.connection import Connection, ConnectionState, Reassign, frame_deadline
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.http_refusal import http_refusal, is_tls_handshake
from trio_broker.network.request_channel import QueuedRequest, RequestChannel
from trio_broker.network.request_memory_pool import SMALL_FRAME_BYTES, RequestMemoryPool
from trio_broker.network.send import Sender
from trio_broker.network.statistics import ProcessorStatistics

log = logging.getLogger(__name__)

NEW_CONNECTIONS_CAPACITY = 20
"""New connections that may wait for one Processor, Kafka's ConnectionQueueSize."""

STAGING_BYTES = 64 * 1024
"""One read of small requests; larger frames are not staged, so more would only displace cache lines."""

TURN_BYTES = 1024 * 1024
"""Bytes of one frame read between two yields: on a fast network the socket is never empty."""

LINGER_SECONDS = 1.0
"""How long a stopping server waits for a client to close after its last response. Closing first, with bytes unread,
makes the kernel send a reset, which may destroy the response on its way."""

MAX_LOGGED_CHARACTERS = 300
"""Of a reason or a client id in the log: longer than any in use, and far from the 32 KiB that a client id may have."""

IsServed: TypeAlias = Callable[[int, int], bool]


@attrs.define(eq=False)
class ProcessorContext:
    """What every Processor of a server shares.

    ``assign`` takes a connection that moves, and the id of the Processor it should move to; ``closed`` is called for
    each connection that ended. Once ``stopping`` is set, connections that arrive or move are closed with it.
    ``admin_url`` is the address of the admin page, None without one.
    """

    channel: RequestChannel
    is_served: IsServed
    clock: Clock
    memory_pool: RequestMemoryPool
    assign: Callable[[Connection, int | None], None]
    closed: Callable[[Connection, CloseConnection], None]
    stopping: CloseConnection | None = None
    admin_url: str | None = None


@attrs.define(eq=False)
class Processor:
    """Serves the connections that arrive through ``new_connections``."""

    processor_id: int
    context: ProcessorContext
    connections: dict[Connection, None] = attrs.field(factory=dict)
    is_retiring: bool = False
    requests: int = 0
    bytes_in: int = 0
    busy_time: BusyTime = attrs.field(factory=BusyTime)
    idle: Utilization = attrs.field(init=False)
    sender: Sender = attrs.field(init=False)
    new_connections: trio.MemorySendChannel[Connection] = attrs.field(init=False)
    _arrivals: trio.MemoryReceiveChannel[Connection] = attrs.field(init=False)
    _staging: memoryview = attrs.field(init=False)
    _nursery: trio.Nursery | None = None
    _early: list[Connection] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.idle = Utilization(self.busy_time)
        self.sender = Sender(self.busy_time)
        self.new_connections, self._arrivals = trio.open_memory_channel[Connection](NEW_CONNECTIONS_CAPACITY)
        self._staging = memoryview(bytearray(STAGING_BYTES))

    async def run(self) -> None:
        """Serve until cancelled, or, once retired, until the last connection has moved away."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                while self._early:
                    self.accept(self._early.pop())
                async for connection in self._arrivals:
                    self.accept(connection)
        finally:
            self._drop_arrivals()

    def accept(self, connection: Connection) -> None:
        """Serve ``connection`` from its present state on."""
        if self.is_retiring:
            self.context.assign(connection, None)
        elif self._nursery is None:
            self._early.append(connection)
        else:
            connection.command = connection.command or self.context.stopping
            self.connections[connection] = None
            self._nursery.start_soon(self._serve, connection, name="connection")

    def retire(self) -> None:
        """Take no more connections. The server moves the present ones to other Processors; then ``run`` returns."""
        self.is_retiring = True
        self.new_connections.close()

    def statistics(self) -> ProcessorStatistics:
        now_ns = perf_counter_ns()
        return ProcessorStatistics(
            processor_id=self.processor_id,
            is_retiring=self.is_retiring,
            connections=len(self.connections),
            idle_ratio=1.0 - self.idle.ratio,
            busy_ns=self.busy_time.busy_until(now_ns),
            requests=self.requests,
            bytes_in=self.bytes_in,
            bytes_out=self.sender.bytes_out,
            cold_sends=self.sender.cold_sends,
            cold_send_ns=self.sender.thread_busy_time.busy_until(now_ns),
            new_connections_waiting=self.new_connections.statistics().current_buffer_used,
        )

    # ---- the life of a connection

    async def _serve(self, connection: Connection) -> None:
        """Serve ``connection``, then move or close it. Nothing it does or suffers reaches another connection."""
        stopping = CloseConnection("the server is stopping", CloseCause.STOPPING)
        ending: Reassign | CloseConnection = stopping
        self.busy_time.enter()
        try:
            ending = await self._ending(connection)
            if trio.current_effective_deadline() == float("-inf"):
                ending = stopping  # Cancelled: every Processor ends, so there is none to move to.
        finally:
            self.busy_time.exit()
            del self.connections[connection]
            if isinstance(ending, Reassign):
                # Cleared before the move, or the next Processor would take it for a command of its own.
                connection.command = None
                self.context.assign(connection, ending.processor_id)
            else:
                self._close(connection, ending)

    async def _ending(self, connection: Connection) -> Reassign | CloseConnection:
        """Serve ``connection`` until it must end here, and say why."""
        try:
            try:
                await self._converse(connection)
            except WireError as error:
                return await self._refused(connection, error)
        except CloseConnection as reason:
            return reason
        except OSError as error:
            return CloseConnection(f"connection lost: {error}", CloseCause.PEER)
        except trio.ClosedResourceError:
            pass  # Interrupted in mid-response: the command has the reason.
        except Exception:
            log.exception("serving %s failed", connection.info)
            return CloseConnection("serving it failed", CloseCause.FAILURE)
        return connection.command or CloseConnection("closed by the client", CloseCause.PEER)

    async def _refused(self, connection: Connection, error: WireError) -> CloseConnection:
        """Return why a connection with a malformed request ends, after a reply if the request looks like HTTP."""
        protocol = connection.protocol
        size = protocol.frame_bytes_expected if connection.header is None and protocol.is_frame_refused else None
        if size is not None and is_tls_handshake(size):
            return CloseConnection("not Kafka's protocol: a TLS handshake", CloseCause.TLS)
        reply = None if size is None else http_refusal(size, self.context.admin_url)
        if reply is None:
            return CloseConnection(f"not Kafka's protocol: {error}")
        connection.state = ConnectionState.SENDING
        await self.sender.send(connection, [reply])
        await self._linger(connection)
        return CloseConnection("not Kafka's protocol: an HTTP request", CloseCause.HTTP)

    async def _converse(self, connection: Connection) -> None:
        """Receive a request and answer it, one after the other, until the stream ends or a command is given."""
        # Bound once: pipelined requests come without a read between them.
        next_frame = connection.protocol.next_frame
        while connection.command is None:
            if (frame := next_frame()) is not None:
                await self._answer(connection, frame)
            elif not await self._receive(connection):
                if connection.protocol.frame_under_way:
                    raise CloseConnection("closed by the client in the middle of a frame", CloseCause.TRUNCATED)
                return

    async def _receive(self, connection: Connection) -> bool:
        """Read what is available, or wait for bytes or a command; False at the end of the stream."""
        protocol = connection.protocol
        buffer = await self._dedicated_buffer(connection) if protocol.frame_under_way else None
        try:
            count = connection.sock.recv_into(self._staging if buffer is None else buffer)
        except BlockingIOError:
            await self._wait_for_bytes(connection)
            return True
        if buffer is None:
            # ``receive_data`` copies what it keeps: the staging buffer belongs to the next connection as soon as this
            # task waits.
            protocol.receive_data(self._staging[:count])
        else:
            protocol.bytes_received(count)
            # The large frame's own buffer was filled in place, without a copy. Yield each time the connection's count
            # of bytes passes a multiple of ``TURN_BYTES``; no counter of its own is needed.
            if connection.bytes_in // TURN_BYTES != (connection.bytes_in + count) // TURN_BYTES:
                await self.busy_time.turn()
        connection.bytes_in += count
        self.bytes_in += count
        return count > 0

    async def _dedicated_buffer(self, connection: Connection) -> memoryview | None:
        """Return where to read the rest of a large frame, after reserving its size; None for the staging buffer."""
        expected = connection.protocol.frame_bytes_expected
        if expected is not None and expected > SMALL_FRAME_BYTES and not connection.request_bytes:
            connection.state = ConnectionState.WAITING_FOR_MEMORY
            with self.busy_time.waiting:
                connection.request_bytes = await self.context.memory_pool.acquire(expected)
            connection.state = ConnectionState.RECEIVING
        return connection.protocol.receive_buffer()

    async def _wait_for_bytes(self, connection: Connection) -> None:
        """Wait until the socket is readable or the wait is interrupted."""
        protocol = connection.protocol
        if protocol.frame_under_way:
            connection.state = ConnectionState.RECEIVING
            if not connection.frame_deadline:
                now = self.context.clock.monotonic()
                connection.frame_deadline = frame_deadline(now, protocol.frame_bytes_expected or 0)
        with self.busy_time.waiting:
            try:
                await wait_readable(connection.sock)
            except trio.ClosedResourceError:
                return  # Interrupted: the caller's loop looks at the command.

    async def _answer(self, connection: Connection, frame: memoryview) -> None:
        """Pass the request in ``frame`` to a handler, and send its answer."""
        request = self._request(connection, frame)
        connection.state = ConnectionState.IN_FLIGHT
        connection.frame_deadline = 0.0
        connection.request = request
        self.requests += 1
        with self.busy_time.waiting:
            # Both halves avoid a turn of the loop in the common case: a handler waits, and is handed the request here.
            try:
                self.context.channel.send_nowait(request)
            except trio.WouldBlock:
                connection.state = ConnectionState.WAITING_FOR_QUEUE
                await self.context.channel.send(request)
                connection.state = ConnectionState.IN_FLIGHT
            reply = await connection.reply.wait()
        sending_ns = perf_counter_ns()
        # Before sending: the response no longer refers to the request's buffer, and a slow reader must not hold it.
        self._give_back(connection)
        if isinstance(reply, CloseConnection):
            raise reply
        connection.state = ConnectionState.SENDING
        if reply is not None:
            await self.sender.send(connection, framed(reply))
        self.context.channel.metrics.by_api[request.header.api_key].record(request, sending_ns, perf_counter_ns())
        connection.request = None
        if isinstance(connection.command, CloseConnection):
            await self._linger(connection)
        connection.state = ConnectionState.IDLE

    def _request(self, connection: Connection, frame: memoryview) -> QueuedRequest:
        """Read the header of ``frame``.

        Raises:
            WireError: the frame has no valid header.
            CloseConnection: that API is not served in that version; Kafka closes without a reply (KIP-35).
                ApiVersions is passed on in any version, because a newer client learns the served versions from its
                answer (KIP-511).
        """
        header, position = read_request_header(frame)
        connection.header = header
        api_key = header.api_key
        if self.context.is_served(api_key, header.api_version):
            connection.client.requests_by_version[api_key << VERSION_BITS | header.api_version] += 1
        elif api_key != ApiKey.API_VERSIONS:
            reason = f"{api_name(api_key)} version {header.api_version} is not served here"
            raise CloseConnection(reason, CloseCause.UNSUPPORTED_VERSION)
        return QueuedRequest(
            header,
            frame[position:],
            connection.info,
            connection.client,
            connection.reply,
            perf_counter_ns(),
        )

    def _give_back(self, connection: Connection) -> None:
        if connection.request_bytes:
            self.context.memory_pool.release(connection.request_bytes)
            connection.request_bytes = 0

    async def _linger(self, connection: Connection) -> None:
        """Close the sending side, and wait up to ``LINGER_SECONDS`` for the client to close its own."""
        connection.sock.shutdown(socket.SHUT_WR)
        with self.busy_time.waiting, trio.move_on_after(LINGER_SECONDS):
            await self._skip_to_end(connection.sock)

    async def _skip_to_end(self, sock: socket.socket) -> None:
        while True:
            try:
                if not sock.recv_into(self._staging):
                    return
            except BlockingIOError:
                await wait_readable(sock)
            await checkpoint()

    # ---- its end

    def _close(self, connection: Connection, reason: CloseConnection) -> None:
        """Close the socket, give back what the connection held, and say why in one line."""
        self._give_back(connection)
        connection.state = ConnectionState.CLOSED
        connection.reply.abandon(reason)
        connection.interrupt()
        connection.sock.close()
        log.log(
            reason.cause.log_level,
            "closed %s: %s (%s, %s)",
            connection.info,
            one_line(str(reason)),
            describe(connection.header),
            connection.client.software,
        )
        self.context.closed(connection, reason)

    def _drop_arrivals(self) -> None:
        """Close the connections still waiting in ``new_connections`` when the server is cancelled."""
        self.new_connections.close()
        while True:
            try:
                connection = self._arrivals.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            self._close(connection, CloseConnection("the server is stopping", CloseCause.STOPPING))
        self._arrivals.close()


def describe(header: RequestHeader | None) -> str:
    """The latest request of a connection, for the log."""
    if header is None:
        return "no request yet"
    return f"{api_name(header.api_key)} v{header.api_version}, client {one_line(repr(header.client_id))}"


def one_line(text: str) -> str:
    """Return ``text``, which may contain what a client sent, for the log: of bounded length and in one line.

    Reasons contain topic names that were not validated yet; a line break in one would forge a line of the log.
    """
    clipped = text if len(text) <= MAX_LOGGED_CHARACTERS else f"{text[:MAX_LOGGED_CHARACTERS]}…"
    if clipped.isprintable():
        return clipped
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in clipped)
