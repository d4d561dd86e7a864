"""A Processor: one of the ``num.network.threads``, and the connections it serves.

A Processor has a selector (epoll), and a task that waits for it. That takes the connections that have become readable,
reads a frame from each, lets the handlers have the request, and sends what they answer: at once, or in the end of the
turn where it serves several. A connection is read again only when its request is answered. Kafka calls that *mute*: it
keeps requests and responses in order, and TCP slows down a client that sends faster than the broker answers.

A Produce that is appended and waits for the disk or for other replicas unmutes its connection before it is answered
(docs/decisions/0120): the next Produce is then read and appended, up to ``MAX_REQUESTS_IN_FLIGHT`` of them, and one
sync serves them all. Any other request, an error, or the end of the stream is *held* until those before it are
answered. Responses leave in the order of the requests, whichever is there first.

Behind those it serves the connections that have been served and have more: requests that came before the one ahead of
them was answered, the rest of a large frame, the rest of a response. Clients may have any amount of that. What does not
fit into one turn is done by a second task, in turns with all other long work of the loop (``concurrency.turns``), and
without a pass of the loop between two turns until somebody comes (docs/decisions/0057).

Behind a request that came alone it looks for the next one for a moment before it waits (docs/decisions/0117).

The selector reports changes only (``EPOLLET``), so muting a connection costs no system call: what it reports is kept in
the connection until it may be read. A read that does not fill its buffer has emptied the socket.

All connections of a Processor share one staging buffer, which is empty again when a frame was read, so an idle
connection holds none; a large frame is read directly into a buffer of its size. What waits for something else than its
socket, the disk or a client that is to close first, does so in a task of its own.

It is one class, since all of its steps change the same queues of connections, and each request goes through them.

Promises: whatever a client sends or a handler raises ends at most that connection, with one line in the log. A
connection that moves to another Processor loses no byte, and its client does not notice.

Source: Kafka's SocketServer.Processor, and its Selector.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import attrs
import outcome
import trio
from trio.lowlevel import ParkingLot, checkpoint, notify_closing, wait_readable

from kafka_wire.apis import ApiKey, api_name
from kafka_wire.errors import WireError
from kafka_wire.headers import RequestHeader, read_request_header
from trio_broker.common.busy_time import BusyTime, Utilization
from trio_broker.common.escaping import escape_control
from trio_broker.concurrency.barrier import start_once
from trio_broker.concurrency.turns import Turns, turns_of_loop
from trio_broker.network.client_activity import VERSION_BITS
from trio_broker.network.connection import Connection, ConnectionState, Reassign, frame_deadline
from trio_broker.network.errors import STOPPING, CloseCause, CloseConnection, NotTls
from trio_broker.network.handler_pool import HandlerPool
from trio_broker.network.http_refusal import http_refusal, is_tls_handshake
from trio_broker.network.loop_monitor import LoopMonitor
from trio_broker.network.request_channel import QueuedRequest, Reply, RequestChannel
from trio_broker.network.request_memory_pool import SMALL_FRAME_BYTES, RequestMemoryPool
from trio_broker.network.send import Pause, Sender, SendUnderWay
from trio_broker.network.statistics import ProcessorStatistics
from trio_broker.network.throttled_connections import ThrottledConnections
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.measurement import perf_counter_ns
from trio_broker.runtime.workers import Workers
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal
from trio_broker.security.sasl.server_authenticator import SaslServerAuthenticator, SaslStep

log = logging.getLogger(__name__)

NEW_CONNECTIONS_CAPACITY = 20
"""New connections that may wait for one Processor, Kafka's ConnectionQueueSize."""

STAGING_BYTES = 64 * 1024
"""One read of small requests; larger frames are not staged, so more would only displace cache lines."""

TURN_BYTES = 1024 * 1024
"""Bytes of one frame read in one turn: on a fast network the socket is never empty."""

POLL_EVENTS = 64
"""Connections that the selector reports at a time. The next ones wait in the kernel, in their order."""

TURN_SECONDS = 0.00025
"""How long those that have more are served at a time: about what a small request takes, so that one that comes
meanwhile waits as long as for another client's."""

REPORTED_SECONDS = 0.001
"""How long connections are served that have become readable, those included that do so meanwhile, before others of the
loop have their turn: time for some thirty small requests, among which the iteration of the event loop is shared."""

SPINS = 50
"""Looks for the next request after one that was alone, before the Processor waits: about 50 µs. A client on the same
machine sends its next request within that."""

MAX_SPIN_PAUSE = 255
"""Turns between two spins where none finds anything: each turn then pays a fifth of a microsecond for them."""

LINGER_SECONDS = 1.0
"""How long a stopping server waits for a client to close after its last response. Closing first, with bytes unread,
makes the kernel send a reset, which may destroy the response on its way."""

MAX_LOGGED_CHARACTERS = 300
"""Of a reason or a client id in the log: longer than any in use, and far from the 32 KiB that a client id may have."""

MAX_HANDSHAKES = 1000
"""Handshakes that have begun and are not finished, some 50 KB each. One that is done in a second is among them at 1,000
new connections a second; past that the oldest gives way, which is that of a client that does not finish."""

PRODUCE_KEY = ApiKey.PRODUCE.to_bytes(2, "big")
"""The first bytes of a Produce."""

EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""All that a connection may report; registered once."""

READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

HALF_CLOSED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
"""The end of the stream, or an error, comes after what can be read, and is reported only once."""

IsServed: TypeAlias = Callable[[int, int], bool]
AsyncWork: TypeAlias = Callable[[], Awaitable[Any]]
GoOn: TypeAlias = Callable[[Connection, outcome.Outcome[Any]], None]

LoginThrottleSeconds: TypeAlias = Callable[[str, str], float]
"""How long a connection is not read behind the login of a user with a client id."""

RecordRequest: TypeAlias = Callable[[str, str, int], None]
"""Notes for the quota of a user with a client id how many nanoseconds a request has taken."""


@attrs.define(eq=False)
class ProcessorContext:
    """What every Processor of a server shares.

    ``assign`` takes a connection that moves, and the id of the Processor it should move to; ``closed`` is called for
    each connection that ended. Once ``stopping`` is set, connections that arrive or move are closed with it.
    ``admin_url`` is the address of the admin page, None without one. ``selectors`` says whether that of any Processor
    has something to report; ``taking_turns`` are the Processors that have more than fits into one turn. ``handshakes``
    are the connections whose handshake has begun, the oldest first.
    """

    channel: RequestChannel
    handlers: HandlerPool
    is_served: IsServed
    clock: Clock
    workers: Workers
    memory_pool: RequestMemoryPool
    assign: Callable[[Connection, int | None], None]
    closed: Callable[[Connection, CloseConnection], None]
    record_request: RecordRequest
    login_throttle_seconds: LoginThrottleSeconds
    monitor: LoopMonitor
    stopping: CloseConnection | None = None
    admin_url: str | None = None
    selectors: select.poll = attrs.field(factory=select.poll)
    taking_turns: dict[Processor, None] = attrs.field(factory=dict)
    handshakes: dict[Connection, None] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Processor:
    """Serves the connections that arrive through ``new_connections``; ``connections`` has them by descriptor."""

    processor_id: int
    context: ProcessorContext
    connections: dict[int, Connection] = attrs.field(factory=dict)
    is_retiring: bool = False
    requests: int = 0
    bytes_in: int = 0
    cold_sends: int = 0
    busy_time: BusyTime = attrs.field(factory=BusyTime)
    thread_busy_time: BusyTime = attrs.field(factory=BusyTime)
    thread: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    sender: Sender = attrs.field(factory=Sender)
    idle: Utilization = attrs.field(init=False)
    new_connections: trio.MemorySendChannel[Connection] = attrs.field(init=False)
    _arrivals: trio.MemoryReceiveChannel[Connection] = attrs.field(init=False)
    _selector: select.epoll = attrs.field(factory=select.epoll)
    _staging: memoryview = attrs.field(factory=lambda: memoryview(bytearray(STAGING_BYTES)))
    _reported: deque[Connection] = attrs.field(factory=deque)
    """Connections that the selector has reported as readable."""
    _ready: deque[Connection] = attrs.field(factory=deque)
    """Connections that were served and have more to read: they go on without a report of the selector."""
    _in_turns: bool = False
    """Whether ``_take_turns`` serves those, or the task that waits for the selector."""
    _turn_taker: ParkingLot = attrs.field(factory=ParkingLot)
    _keeps_answers: bool = False
    """Whether answers wait for the end of the turn. Each one that is sent wakes a client, if that waits for it alone:
    what a switch of the processor costs is paid once a turn."""
    _kept_answers: list[tuple[Connection, QueuedRequest, Reply]] = attrs.field(factory=list)
    _under_way: dict[Connection, SendUnderWay] = attrs.field(factory=dict)
    """Responses that the socket did not take at once."""
    _throttled: ThrottledConnections = attrs.field(init=False)
    _spin_pause: int = 0
    """Turns from one spin to the next, by what the latest ones have found. ``_spin_pause_left`` are still to come."""
    _spin_pause_left: int = 0
    _nursery: trio.Nursery | None = None
    _is_waiting: bool = False

    def __attrs_post_init__(self) -> None:
        self.idle = Utilization(self.busy_time)
        self._throttled = ThrottledConnections(lambda connection: connection.owner is self, self._read_on)
        self.context.selectors.register(self._selector, select.POLLIN)
        self.new_connections, self._arrivals = trio.open_memory_channel[Connection](NEW_CONNECTIONS_CAPACITY)

    async def run(self) -> None:
        """Serve until cancelled, or, once retired, until the last connection has moved away."""
        self.busy_time.enter()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._take_new_connections, name=f"new connections of processor {self.processor_id}")
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._take_turns, name=f"turns of processor {self.processor_id}")
                    serving.start_soon(self._throttled.run, name=f"throttled clients of processor {self.processor_id}")
                    while self.connections or not self.is_retiring:
                        await self._wait()
                        self._serve_reported()
                        if self._ready and not self._in_turns and not self._serve_ready():
                            self._in_turns = True
                            self._turn_taker.unpark()
                    serving.cancel_scope.cancel()
        finally:
            self._nursery = None
            self.busy_time.exit()
            self._close_all()

    async def _take_new_connections(self) -> None:
        async for connection in self._arrivals:
            self.accept(connection)

    async def _wait(self) -> None:
        """Wait until a connection has something to do, or let the other tasks run."""
        self.busy_time.exit()
        try:
            if self._reported or (self._ready and not self._in_turns):
                await checkpoint()
                return
            self._is_waiting = True
            await wait_readable(self._selector)
        except trio.ClosedResourceError:
            pass  # Woken by ``wake``; nothing is closed.
        finally:
            self._is_waiting = False
            self.busy_time.enter()

    def wake(self) -> None:
        """Let the Processor see what there is to do, if it waits."""
        if self._is_waiting:
            self._is_waiting = False
            # Trio offers this for descriptors about to be closed, but it closes nothing.
            notify_closing(self._selector)

    def _serve_reported(self) -> None:
        """Serve what has become readable, in that order, for ``REPORTED_SECONDS``."""
        clock, reported = self.context.clock, self._reported
        ends = clock.monotonic() + REPORTED_SECONDS
        one_each_time = True
        while True:
            # None was served where a report was of one that waits: what such clients send would not let the turn end.
            connection = None
            if not reported:
                self._poll()
            # While several were served the next have come; after one alone there is seldom another at once.
            is_last = len(reported) <= 1
            one_each_time = one_each_time and is_last
            is_over = False
            self._keeps_answers = not is_last
            while reported and not is_over:
                connection = reported.popleft()
                # Else it has moved away; in one that is closed there is nothing to go on with.
                if connection.owner is self:
                    self._go_on(connection)
                    is_over = clock.monotonic() >= ends
            self._send_kept()
            if is_over or (is_last and not (one_each_time and connection and self._spin(connection))):
                return

    def _spin(self, connection: Connection) -> bool:
        """Look for the next request for a moment; return whether it has come. That pays when ``connection`` was
        answered, if it has paid lately, and no task has anything to do (docs/decisions/0117)."""
        if connection.requests or self._ready or self.context.monitor.tasks_scheduled > 1:
            return False
        if self._spin_pause_left:
            self._spin_pause_left -= 1
            return False
        self.busy_time.exit()
        poll, only_own = self.context.selectors.poll, [(self._selector.fileno(), select.POLLIN)]
        for _ in range(SPINS):
            if reports := poll(0):
                break
        self.busy_time.enter()
        # What another Processor has to do is for its task.
        has_come = reports == only_own
        # A spin in vain costs twice what another one saves.
        self._spin_pause = self._spin_pause // 2 if has_come else min(4 * self._spin_pause + 3, MAX_SPIN_PAUSE)
        self._spin_pause_left = self._spin_pause
        return has_come

    def _poll(self) -> None:
        """Note what the selector reports."""
        for descriptor, event in self._selector.poll(0, POLL_EVENTS):
            # One that was closed may still be in the list.
            if (connection := self.connections.get(descriptor)) is None:
                continue
            if event & READABLE:
                connection.is_readable = True
                if event & HALF_CLOSED:
                    connection.is_half_closed = True
            state = connection.state
            if connection.is_ready:
                continue  # it goes on anyway, and not sooner
            if state is ConnectionState.IDLE or state is ConnectionState.RECEIVING:
                self._reported.append(connection)
            elif connection.is_in_thread:
                connection.was_reported = True
            elif state is ConnectionState.HANDSHAKING and connection.is_readable:
                self._reported.append(connection)
            elif state is ConnectionState.WAITING_FOR_READER:
                connection.state = ConnectionState.SENDING
                self.go_on_soon(connection)
            elif state is ConnectionState.IN_FLIGHT and connection.requests and connection.is_readable:
                connection.requests[-1].followed()

    def _serve_ready(self) -> bool:
        """Serve the connections that have more, each once, for ``TURN_SECONDS``; return whether that was enough."""
        clock = self.context.clock
        ends = clock.monotonic() + TURN_SECONDS
        self._keeps_answers = len(self._ready) > 1
        was_enough = True
        for left in range(len(self._ready), 0, -1):
            connection = self._ready.popleft()
            # Else it has moved away.
            if connection.owner is self:
                connection.is_ready = False
                self._go_on(connection)
                # Looked at after the first, so that each turn serves one at least.
                if left > 1 and clock.monotonic() >= ends:
                    was_enough = False
                    break
        self._send_kept()
        return was_enough

    async def _take_turns(self) -> None:
        """Serve the connections that have more while that is long work, or others have some."""
        turns = turns_of_loop()
        while True:
            # They may be due before this task has begun, and nobody would wake it a second time.
            if not self._in_turns:
                await self._turn_taker.park()
            self.context.taking_turns[self] = None
            while self._in_turns:
                await turns.wait()
                self.busy_time.enter()
                self._in_turns = not self._serve_undisturbed(turns)
                self.busy_time.exit()
            del self.context.taking_turns[self]
            if self._ready:
                self.wake()

    def _serve_undisturbed(self, turns: Turns) -> bool:
        """Serve the connections that have more: this Processor's for a turn, and then those of every Processor, a turn
        each, as long as no client has sent anything, no other long work waits, and ``REPORTED_SECONDS`` are not over.
        Return whether this Processor's fitted into its latest turn.
        """
        context = self.context
        clock, others = context.clock, [each for each in context.taking_turns if each is not self]
        ends = clock.monotonic() + REPORTED_SECONDS
        while True:
            was_enough = self._serve_ready()
            for other in (*others, None):
                # Two passes of the loop lie between two turns, and take as long as several requests.
                if clock.monotonic() >= ends or turns.waiting > len(others) or context.selectors.poll(0):
                    return was_enough
                if other is not None:
                    other.busy_time.enter()
                    other._serve_ready()
                    other.busy_time.exit()
            if was_enough:
                return True

    def accept(self, connection: Connection) -> None:
        """Serve ``connection`` from its present state on."""
        if self.is_retiring:
            self.context.assign(connection, None)
            return
        connection.owner = self
        connection.is_ready = False
        self.connections[connection.sock.fileno()] = connection
        if self.context.stopping is not None:
            self._close(connection, self.context.stopping)
            return
        try:
            # It reports what is there already: nothing that came on the way from another Processor is lost.
            self._selector.register(connection.sock, EVENTS)
        except OSError as error:
            self._close(connection, CloseConnection(f"it cannot be watched: {error}", CloseCause.FAILURE))
            return
        if connection.state is ConnectionState.THROTTLED:
            self._throttled.add(connection)
        elif connection.protocol.frame_under_way or connection.channel.has_pending:
            self.go_on_soon(connection)

    def retire(self) -> None:
        """Take no more connections. The server moves the present ones to other Processors; then ``run`` returns."""
        self.is_retiring = True
        self.new_connections.close()
        self.wake()

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
            cold_sends=self.cold_sends,
            cold_send_ns=self.thread_busy_time.busy_until(now_ns),
            new_connections_waiting=self.new_connections.statistics().current_buffer_used,
        )

    # ---- one connection

    def go_on_soon(self, connection: Connection) -> None:
        """Serve ``connection`` in one of the next turns, without a report of the selector."""
        if not connection.is_ready:
            connection.is_ready = True
            self._ready.append(connection)
            if not self._in_turns:
                self.wake()

    def _go_on(self, connection: Connection) -> None:
        """Do for ``connection`` what can be done now. Nothing it does or suffers reaches another connection."""
        state = connection.state
        try:
            if state is ConnectionState.IDLE or state is ConnectionState.RECEIVING:
                self._receive(connection)
            elif state is ConnectionState.HANDSHAKING and not connection.is_in_thread:
                self._shake_hands(connection)
            elif connection in self._under_way and not connection.is_in_thread:
                self._send_on(connection)
        except Exception as error:
            self._fail(connection, error)

    def _fail(self, connection: Connection, error: Exception) -> None:
        """Close ``connection``, for which ``error`` is the reason or shows it."""
        match error:
            case NotTls():
                self._answer_http(connection, int.from_bytes(error.first_bytes, "big"), error)
            case CloseConnection(cause=CloseCause.HANDSHAKE):
                self._linger(connection, error)
            case CloseConnection():
                self._close(connection, error)
            case WireError():
                self._refuse(connection, error)
            case OSError():
                self._close(connection, CloseConnection(f"connection lost: {error}", CloseCause.PEER))
            case _:
                log.error("serving %s failed", connection.info, exc_info=error)
                self._close(connection, CloseConnection("serving it failed", CloseCause.FAILURE))
        # Its frames refer to it and to the connection: a cycle, which the buffers of TLS would be part of.
        error.__traceback__ = None

    def _receive(self, connection: Connection) -> None:
        """Take the next request from what has come, or read on."""
        protocol = connection.protocol
        try:
            if (frame := connection.held) is not None:
                connection.held = None
            elif protocol.frame_under_way:
                frame = protocol.next_frame()
            turn_end = connection.bytes_in + TURN_BYTES
            while frame is None and connection.is_readable:
                if connection.bytes_in >= turn_end:
                    self.go_on_soon(connection)
                    return
                buffer = None
                if protocol.frame_under_way:
                    if not self._has_memory(connection):
                        return
                    buffer = protocol.receive_buffer()
                frame = self._read(connection, buffer)
            if frame is not None:
                self._begin(connection, frame)
                return
        except (CloseConnection, WireError) as error:
            if not connection.requests:
                raise
            # What came before is answered first, as if this had not been read yet.
            reason = error if isinstance(error, CloseConnection) else not_kafka(error)
            connection.give_command(reason.without_traceback())
            return
        if protocol.frame_under_way:
            connection.state = ConnectionState.RECEIVING
            if not connection.frame_deadline:
                now = self.context.clock.monotonic()
                connection.frame_deadline = frame_deadline(now, protocol.frame_bytes_expected or 0)

    def _read(self, connection: Connection, buffer: memoryview | None) -> memoryview | None:
        """Read once, into ``buffer`` or the staging buffer; returns the next frame if it is whole now.

        Raises:
            CloseConnection: the stream has ended.
            WireError: as ``next_frame``.
        """
        target = self._staging if buffer is None else buffer
        try:
            count = connection.channel.receive_into(target)
        except BlockingIOError:
            connection.is_readable = False
            return None
        if count == 0:
            if connection.protocol.frame_under_way:
                raise CloseConnection("closed by the client in the middle of a frame", CloseCause.TRUNCATED)
            raise CloseConnection("closed by the client", CloseCause.PEER)
        # The end of the stream was reported before, and will not be reported again; what a channel holds never is.
        connection.is_readable = count == len(target) or connection.is_half_closed or connection.channel.has_pending
        connection.bytes_in += count
        self.bytes_in += count
        if buffer is None:
            # It copies what it keeps: the staging buffer belongs to the next connection at once.
            return connection.protocol.receive_frame(target[:count])
        # The large frame's own buffer was filled in place, without a copy.
        connection.protocol.bytes_received(count)
        return connection.protocol.next_frame()

    def _has_memory(self, connection: Connection) -> bool:
        """Whether the frame under way may be read on; a large one waits for its share of the memory."""
        expected = connection.protocol.frame_bytes_expected
        if expected is None or expected <= SMALL_FRAME_BYTES or connection.frame_bytes:
            return True
        if self.context.memory_pool.acquire(connection, expected):
            connection.frame_bytes = expected
            return True
        connection.state = ConnectionState.WAITING_FOR_MEMORY
        return False

    def _begin(self, connection: Connection, frame: memoryview) -> None:
        """Let a handler have the request in ``frame``. Its answer comes by ``respond``, often before this returns.

        Behind others that are in flight only a Produce is begun; anything else is held until they are answered.

        Raises:
            WireError: the frame has no valid header.
            CloseConnection: that API is not served in that version; Kafka closes without a reply (KIP-35).
                ApiVersions is passed on in any version, because a newer client learns the served versions from its
                answer (KIP-511).
        """
        if connection.requests and frame[:2] != PRODUCE_KEY:
            connection.held = frame
            connection.state = ConnectionState.IN_FLIGHT
            return
        if connection.authenticator is not None and self._authenticate(connection, connection.authenticator, frame):
            return
        header, position = read_request_header(frame)
        connection.header = header
        api_key = header.api_key
        requests_by_version = connection.client.requests_by_version
        version_key = api_key << VERSION_BITS | header.api_version
        # What was served on this connection before is so still.
        if version_key in requests_by_version or self.context.is_served(api_key, header.api_version):
            requests_by_version[version_key] += 1
        elif api_key != ApiKey.API_VERSIONS:
            reason = f"{api_name(api_key)} version {header.api_version} is not served here"
            raise CloseConnection(reason, CloseCause.UNSUPPORTED_VERSION)
        request = QueuedRequest(
            header,
            frame[position:],
            connection.info,
            connection.client,
            connection,
            perf_counter_ns(),
            connection.principal,
        )
        self._enter(connection, request)
        self.context.handlers.submit(request)
        if request.answered_ns:
            # It was handled in this turn, by one of the handlers, whose time that was.
            self.busy_time.since_ns += request.answered_ns - request.began_ns

    def _enter(self, connection: Connection, request: QueuedRequest) -> None:
        """``request`` is in flight from now on."""
        if connection.frame_bytes:
            request.memory_bytes, connection.frame_bytes = connection.frame_bytes, 0
        connection.state = ConnectionState.IN_FLIGHT
        connection.frame_deadline = 0.0
        connection.requests.append(request)
        self.requests += 1

    def _authenticate(self, connection: Connection, authenticator: SaslServerAuthenticator, frame: memoryview) -> bool:
        """Let the authenticator have ``frame``; whether it was its own, and no request for a handler."""
        if (step := authenticator.receive(frame)) is None:
            return False
        protocol = connection.protocol
        protocol.min_frame_bytes, protocol.max_frame_bytes = (
            authenticator.min_frame_bytes,
            authenticator.max_frame_bytes,
        )
        connection.header = step.header
        request = QueuedRequest(step.header, frame[:0], connection.info, connection.client, connection)
        request.began_ns = request.answered_ns = request.queued_ns
        self._enter(connection, request)
        if step.failure is not None:
            assert self._nursery is not None, "connections are served while the Processor runs"
            failing = partial(self._end_login, connection, request, authenticator.limits.failure_delay_seconds, step)
            start_once(self._nursery, "failed login", failing)
            return True
        connection.client.requests_by_version[step.header.api_key << VERSION_BITS | step.header.api_version] += 1
        if step.user is not None:
            self._identify(connection, KafkaPrincipal(USER_TYPE, step.user, step.by_token))
        self.respond(connection, request, step.answer)
        return True

    def _identify(self, connection: Connection, principal: KafkaPrincipal) -> None:
        """Note who sends the next request, and when that may be read."""
        connection.principal = principal
        if seconds := self.context.login_throttle_seconds(principal.name, connection.client_id):
            connection.throttled_until = trio.current_time() + seconds

    async def _end_login(self, connection: Connection, request: QueuedRequest, seconds: float, step: SaslStep) -> None:
        """Answer a login that has failed after ``seconds``, so that guessing takes that long, and close its
        connection."""
        await trio.sleep(seconds)
        reason = CloseConnection(f"login failed: {step.failure}", CloseCause.AUTHENTICATION)
        if step.answer is None:
            self._close(connection, reason)
        else:
            connection.command = reason
            self.respond(connection, request, step.answer)

    # ---- its responses

    def respond(self, connection: Connection, request: QueuedRequest, reply: Reply) -> None:
        """Send ``reply`` to ``request`` at once, or with the other answers of this turn, or behind those to the
        requests before it."""
        # Before sending: the response does not refer to the request's buffer, and a slow reader must not hold it.
        if request.memory_bytes:
            self._give_back(request)
        if connection.is_closed:
            return
        if connection.requests[0] is not request:
            request.reply, request.is_replied = reply, True
            self.unmute(connection, request)
        elif self._keeps_answers:
            self._kept_answers.append((connection, request, reply))
        else:
            self._send(connection, request, reply)

    def _send_kept(self) -> None:
        """Send the answers of a turn, one after the other."""
        self._keeps_answers = False
        kept, self._kept_answers = self._kept_answers, []
        for connection, request, reply in kept:
            if not connection.is_closed:
                self._send(connection, request, reply)

    def _send(self, connection: Connection, request: QueuedRequest, reply: Reply) -> None:
        """Send ``reply`` to ``request``, the oldest in flight, as far as the socket takes it."""
        connection.sending_ns = perf_counter_ns()
        try:
            if isinstance(reply, CloseConnection):
                self._close(connection, reply)
            elif reply is None or (under_way := self.sender.send(connection, reply)) is None:
                self._responded(connection, request)
            else:
                self._under_way[connection] = under_way
                self._send_on(connection)
        except Exception as error:
            self._fail(connection, error)

    def _send_on(self, connection: Connection, read: outcome.Outcome[Any] | None = None) -> None:
        """Send more of the response under way; ``read`` is what came from the disk, if it has waited for that."""
        connection.state = ConnectionState.SENDING
        try:
            response = self._under_way[connection]
            pause = next(response) if read is None else read.send(response)
        except StopIteration:
            del self._under_way[connection]
            self._responded(connection, connection.requests[0])
            return
        if pause is Pause.ROOM:
            connection.state = ConnectionState.WAITING_FOR_READER
            # The selector reports when there is some, unless it has done so since the thread found none.
            if read is not None and connection.was_reported:
                self.go_on_soon(connection)
        elif pause is Pause.TURN:
            self.go_on_soon(connection)
        else:
            work = self._read_cold if pause.reads_disk else self._in_thread
            self._hand_to_thread(connection, partial(work, pause.work), self._send_on)

    # ---- what a thread does for it

    def _hand_to_thread(self, connection: Connection, work: AsyncWork, go_on: GoOn) -> None:
        assert self._nursery is not None, "connections are served while the Processor runs"
        connection.is_in_thread, connection.was_reported = True, False
        start_once(self._nursery, "thread work", partial(self._await_thread, connection, work, go_on))

    async def _await_thread(self, connection: Connection, work: AsyncWork, go_on: GoOn) -> None:
        """Have ``work`` done in the one thread, and go on with what came of it."""
        self.busy_time.enter()
        result: outcome.Outcome[Any] = await outcome.acapture(work)
        self.busy_time.exit()
        connection.is_in_thread = False
        if isinstance(result, outcome.Error) and not isinstance(result.error, Exception):
            result.unwrap()  # Cancelled: the Processor ends, and closes every connection.
        elif connection.ending is not None:
            self._close(connection, connection.ending)
        else:
            try:
                go_on(connection, result)
            except Exception as error:
                self._fail(connection, error)

    async def _read_cold(self, read: Callable[[], Any]) -> Any:
        self.cold_sends += 1
        # Others that wait for the thread meanwhile overlap with this one: the thread's busy time counts once.
        self.thread_busy_time.enter()
        try:
            return await self._in_thread(read)
        finally:
            self.thread_busy_time.exit()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await self.context.workers.run(work, limiter=self.thread)

    # ---- its handshake

    def _shake_hands(self, connection: Connection) -> None:
        """Go on with the handshake, whose step with the private key is the work of a thread."""
        connection.is_readable = False
        under_way = self.context.handshakes
        if connection not in under_way and len(under_way) >= MAX_HANDSHAKES:
            oldest = next(iter(under_way))
            del under_way[oldest]
            oldest.close_now(CloseConnection("its TLS handshake gave way to newer ones", CloseCause.HANDSHAKE))
        under_way[connection] = None
        work = partial(self._in_thread, connection.channel.handshake)
        self._hand_to_thread(connection, work, self._shook_hands)

    def _shook_hands(self, connection: Connection, result: outcome.Outcome[Any]) -> None:
        """Wait for more of the handshake, or begin with the requests."""
        try:
            is_done = result.unwrap()
        except BlockingIOError:
            # It goes on at any report, such as that of room.
            is_done, connection.is_readable = False, True
        if is_done:
            self.context.handshakes.pop(connection, None)
            if connection.authenticator is None:
                self._identify(connection, connection.channel.principal())
            connection.state, connection.frame_deadline = ConnectionState.IDLE, 0.0
            connection.is_readable = True
        if connection.command is not None:
            self.execute(connection, connection.command)
        elif is_done:
            self._read_on(connection)
        elif connection.was_reported:
            connection.is_readable = True
            self.go_on_soon(connection)

    def _responded(self, connection: Connection, request: QueuedRequest) -> None:
        """The response to ``request`` has left, or there is none: go on with the next response, the next request, or a
        command."""
        metrics, sent_ns = self.context.channel.metrics.by_api[request.header.api_key], perf_counter_ns()
        metrics.record(request, connection.sending_ns, sent_ns)
        if request.is_measured:
            busy_ns = request.handled_ns + sent_ns - connection.sending_ns
            self.context.record_request(*request.quota_client, busy_ns)
        del connection.requests[0]
        if request.throttle_seconds:
            until = trio.current_time() + request.throttle_seconds
            connection.throttled_until = max(connection.throttled_until, until)
        if connection.requests and (behind := connection.requests[0]).is_replied:
            self._send(connection, behind, behind.reply)
        elif connection.command is None or connection.requests:
            self._read_on(connection)
        elif isinstance(connection.command, CloseConnection):
            self._linger(connection, connection.command)
        else:
            connection.state = ConnectionState.IDLE
            self.execute(connection, connection.command)

    def unmute(self, connection: Connection, request: QueuedRequest) -> None:
        """Read ``connection`` on behind ``request``, though that is not answered."""
        request.is_muting = False
        if connection not in self._under_way:
            self._read_on(connection)

    def _read_on(self, connection: Connection) -> None:
        """Read ``connection``, to which no response is under way, unless something keeps it from being read."""
        if connection.requests and connection.is_muted:
            connection.state = ConnectionState.IN_FLIGHT
        elif connection.throttled_until and connection.throttled_until > trio.current_time():
            connection.state = ConnectionState.THROTTLED
            self._throttled.add(connection)
        elif connection.state is not ConnectionState.WAITING_FOR_MEMORY:
            connection.state = ConnectionState.IDLE
            if connection.is_readable or connection.protocol.frame_under_way or connection.held is not None:
                self.go_on_soon(connection)

    def _give_back(self, request: QueuedRequest) -> None:
        self.context.memory_pool.release(request.memory_bytes)
        request.memory_bytes = 0

    # ---- its end

    def execute(self, connection: Connection, command: Reassign | CloseConnection) -> None:
        """Move or close ``connection`` now."""
        if isinstance(command, CloseConnection):
            self._close(connection, command)
            return
        # Cleared before the move, or the next Processor would take it for a command of its own.
        connection.command = None
        self._selector.unregister(connection.sock)
        self._forget(connection)
        self.context.assign(connection, command.processor_id)

    def _refuse(self, connection: Connection, error: WireError) -> None:
        """Close a connection with a malformed request, after a reply if the request looks like HTTP."""
        protocol = connection.protocol
        size = protocol.frame_bytes_expected if connection.header is None and protocol.is_frame_refused else None
        if size is not None and is_tls_handshake(size):
            self._close(connection, CloseConnection("not Kafka's protocol: a TLS handshake", CloseCause.TLS))
        else:
            self._answer_http(connection, size, not_kafka(error))

    def _answer_http(self, connection: Connection, size: int | None, otherwise: CloseConnection) -> None:
        """Answer an HTTP request, whose first bytes are ``size``; anything else is closed for ``otherwise``."""
        reply = None if size is None else http_refusal(size, self.context.admin_url)
        if reply is None:
            self._close(connection, otherwise)
            return
        try:
            # Nothing was sent on this connection before, so the socket has room for these few bytes.
            send = connection.sock.send if isinstance(otherwise, NotTls) else connection.channel.send
            send(reply)
        except OSError as gone:
            self._close(connection, CloseConnection(f"connection lost: {gone}", CloseCause.PEER))
        else:
            self._linger(connection, CloseConnection("not Kafka's protocol: an HTTP request", CloseCause.HTTP))

    def _linger(self, connection: Connection, reason: CloseConnection) -> None:
        """Close the sending side, and ``connection`` as soon as its client has closed the other, or does not."""
        assert self._nursery is not None, "connections are served while the Processor runs"
        connection.state = ConnectionState.SENDING
        self._selector.unregister(connection.sock)
        try:
            connection.channel.close_write()
        except OSError:
            self._close(connection, reason)
            return
        start_once(self._nursery, "lingering connection", partial(self._close_after_client, connection, reason))

    async def _close_after_client(self, connection: Connection, reason: CloseConnection) -> None:
        try:
            with suppress(OSError, trio.ClosedResourceError), trio.move_on_after(LINGER_SECONDS):
                await self._skip_to_end(connection.sock)
        finally:
            self._close(connection, reason)

    async def _skip_to_end(self, sock: socket.socket) -> None:
        while True:
            try:
                if not sock.recv_into(self._staging):
                    return
            except BlockingIOError:
                await wait_readable(sock)
            await checkpoint()

    def _close(self, connection: Connection, reason: CloseConnection) -> None:
        """Close the socket, give back what the connection held, and say why in one line."""
        if connection.is_closed:
            return
        if connection.is_in_thread:
            # The thread writes to this descriptor: closed now, it might be another connection's by then.
            connection.ending = connection.ending or reason
            return
        self.context.memory_pool.withdraw(connection)
        self.context.handshakes.pop(connection, None)
        if connection.frame_bytes:
            self.context.memory_pool.release(connection.frame_bytes)
            connection.frame_bytes = 0
        # They refer to each other: a cycle, which the frames would be part of.
        requests, connection.requests, connection.held = connection.requests, [], None
        for request in requests:
            # One that a handler has, or will have, holds its bytes until that replies, if only to nobody.
            if request.memory_bytes and self.context.channel.withdraw(request):
                self._give_back(request)
        if (under_way := self._under_way.pop(connection, None)) is not None:
            under_way.close()
        connection.state = ConnectionState.CLOSED
        self._forget(connection)
        # For the task of one that lingers. The selector forgets a descriptor that is closed.
        notify_closing(connection.sock)
        connection.channel.close()
        log.log(
            reason.cause.log_level,
            "closed %s: %s (%s, %s)",
            connection.info,
            one_line(str(reason)),
            describe(connection.header),
            connection.client.software,
        )
        self.context.closed(connection, reason)
        for request in requests:
            request.abandon()

    def _forget(self, connection: Connection) -> None:
        del self.connections[connection.sock.fileno()]
        if self.is_retiring and not self.connections:
            self.wake()

    def _close_all(self) -> None:
        """The Processor ends: close what it has, and the connections that still wait for it."""
        for connection in list(self.connections.values()):
            self._close(connection, STOPPING)
        self.new_connections.close()
        while True:
            try:
                connection = self._arrivals.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
            self.connections[connection.sock.fileno()] = connection
            self._close(connection, STOPPING)
        self._arrivals.close()
        self.context.selectors.unregister(self._selector)
        self.context.taking_turns.pop(self, None)
        self._selector.close()


def not_kafka(error: WireError) -> CloseConnection:
    """Why a connection with a malformed request ends."""
    return CloseConnection(f"not Kafka's protocol: {error}")


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
    return escape_control(clipped)
