"""Hypercorn's connections, each behind a guard that lets no exception out of it.

Hypercorn's own ``worker_serve`` is not used. It runs connections in a nursery that one exception ends, swallows
KeyboardInterrupt, and can only be given another connection class by replacing a global of its module, which would
change every other hypercorn server in the process. What remains to be done without it is short: accept, serve each
connection with hypercorn's ``TCPServer``, end gracefully.

What the guard adds to a connection: exceptions end it with one log line and nothing else; a peer that does not read
is given up after a while, for hypercorn shields its sends from cancellation and would otherwise keep the broker from
ending; what is left of a connection whose peer is gone ends soon; so does one whose request was refused before all of
it had come; their number is bounded, in all and from one address; HTTP/1.1 is all that is spoken.

Imports hypercorn's inner classes, hence the pin to 0.18 in pyproject.toml. Import this module lazily.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any

import attrs
import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr, wrap_app
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trio_broker.common.client_network import client_network
from trio_broker.common.connection_rate import ConnectionRate
from trio_broker.common.exhaustion import EXHAUSTED, EXHAUSTED_PAUSE_SECONDS
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.runtime.clock import SystemClock

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
"""An admin page needs two; each costs a few tasks and buffers of the loop that serves Kafka's clients."""

MAX_CONNECTIONS_PER_NETWORK = 64
"""Of those from one address, or one network that one party has (``client_network``): ten browsers behind a proxy."""

MAX_ACCEPTED_PER_SECOND = 100
"""Connections; others wait. Each takes half a millisecond of the loop that serves Kafka's clients, TLS not counted."""

EXHAUSTED_LINE_SECONDS = 10.0
"""Between two log lines that say so."""

IDLE_SECONDS = 5.0
"""How long a connection may have no request under way: from its beginning, or the last answer, to the end of the next
request's head, however that trickles in."""

SEND_TIMEOUT_SECONDS = 10.0
"""How long a peer may take to accept one piece of an answer before it counts as gone."""

HANDSHAKE_TIMEOUT_SECONDS = 5.0
"""How long a peer may take for a handshake of TLS, as on the listeners of Kafka's clients."""

LINGER_SECONDS = 1.0
"""What is left of a connection whose peer is gone may take this long to notice."""

GRACEFUL_SECONDS = 1.0
"""What requests under way are given once the server stops."""

MAX_REQUEST_HEAD_BYTES = 128 * 1024
"""A group's id may be 32 KB long, and three times that in an address, where each byte may take three characters."""

MAX_REQUEST_BODY_BYTES = 1 << 20
"""Hypercorn's bound for WSGI apps, which ours is not; the app has its own, smaller one."""


BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
"""Without one of them a request of HTTP/1.1 has no body."""

SERVED_VERSIONS = frozenset({b"1.0", b"1.1"})
"""Of HTTP."""


class ProtocolErrorFilter(logging.Filter):
    """Turns hypercorn's report of a peer that broke the protocol, a long traceback at ERROR, into one line at INFO.

    Anything that can connect may cause any number of them. An exception of our own is reported as before.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, h11.ProtocolError):
            return True
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = "an admin connection broke the protocol: %s", (describe(error),)
        record.exc_info = None
        return logging.getLogger(record.name).isEnabledFor(logging.INFO)


PROTOCOL_ERROR_FILTER = ProtocolErrorFilter()


class Http1Protocol(H11Protocol):
    """HTTP/1.1 and nothing else (docs/decisions/0115). A request to change to another protocol is answered as if it had
    not asked for that, which RFC 9110, 7.8, leaves to the server."""

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version not in SERVED_VERSIONS:
            await self._send_error_response(505)
            raise h11.RemoteProtocolError(f"HTTP/{event.http_version.decode()} is not served")

    async def _create_stream(self, request: h11.Request) -> None:
        headers = request.headers.raw_items()
        if any(name.lower() == b"upgrade" for name, _ in headers):
            request = h11.Request(
                method=request.method,
                target=request.target,
                headers=[each for each in headers if each[0].lower() != b"upgrade"],
                http_version=request.http_version,
            )
        await super()._create_stream(request)


class TimeoutTCPServer(TCPServer):
    """Hypercorn's connection, except that it does not wait forever for a peer that stopped reading, or is gone.

    ``socket_stream`` is the connection below ``stream``, which is the same or speaks TLS on it. It counts for
    ``network``. While it ``is_idle`` no request is under way: the next one's head is not there, or not all of it.
    """

    socket_stream: trio.SocketStream
    network: str
    is_idle: bool = True

    async def run(self) -> None:
        """As hypercorn's, but for the protocol, which is one of three there."""
        is_secure = isinstance(self.stream, trio.SSLStream)
        try:
            if is_secure:
                with trio.fail_after(HANDSHAKE_TIMEOUT_SECONDS):
                    await self.stream.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError):
            return
        sock = self.socket_stream.socket
        try:
            client = parse_socket_addr(sock.family, sock.getpeername())
            server = parse_socket_addr(sock.family, sock.getsockname())
            async with TaskGroup() as task_group:
                self._task_group = task_group
                self.protocol = Http1Protocol(  # type: ignore[assignment]  # what a ProtocolWrapper has inside
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState(self.state),
                    is_secure,
                    client,
                    server,
                    self.protocol_send,
                )
                await self.idle_task.restart(task_group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()

    async def _read_data(self) -> None:
        """Read until the peer has closed; then end what would outlive it.

        Hypercorn keeps such a connection for its keep-alive time.
        """
        await super()._read_data()
        # The idle task would otherwise hold the nursery open for the whole keep-alive time.
        await self.idle_task.stop()
        # A deadline instead of a cancellation: an answer that is under way to a half-closed peer may still be sent.
        nursery = self._task_group._nursery
        assert nursery is not None, "reading goes on inside the connection's nursery"
        nursery.cancel_scope.deadline = min(nursery.cancel_scope.deadline, trio.current_time() + LINGER_SECONDS)

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self.is_idle = event.idle
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return
        async with self.send_lock:
            try:
                # Shielded as in hypercorn, so that a stopping server may finish an answer it has begun.
                with trio.fail_after(SEND_TIMEOUT_SECONDS, shield=True):
                    await self.stream.send_all(event.data)
            except trio.TooSlowError:
                # Half an answer was sent, so the connection cannot be used any more. Closing the socket itself, at once
                # and without a checkpoint, also wakes what else waits on the stream.
                self.socket_stream.socket.close()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            except trio.BusyResourceError:
                pass  # Another task closes the connection, which sends too, and without the lock.
            else:
                return
        # Outside of the lock, which the protocol takes if it reacts by sending once more.
        await self.protocol.handle(Closed())


def hypercorn_config() -> Config:
    """Hypercorn's settings: its complaints go to our logger, and requests are not logged."""
    config = Config()
    config.errorlog = logging.getLogger("broker_admin.hypercorn")
    config.errorlog.addFilter(PROTOCOL_ERROR_FILTER)  # the same one each time, so that it is there once
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = IDLE_SECONDS
    config.h11_max_incomplete_size = MAX_REQUEST_HEAD_BYTES
    return config


def discarding_unread_bodies(app: ASGIApp) -> ASGIApp:
    """``app``, which may answer a request without having read its body.

    Hypercorn queues a few pieces of a body for the app, and with its last word of the answer one more message. Where
    nobody takes the pieces any more, that message, and with it the connection, would wait for ever.
    """

    async def discarding(scope: Scope, receive: Receive, send: Send) -> None:
        async def discard() -> None:
            while (await receive())["type"] == "http.request":
                pass

        async def send_and_discard(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(discard)
                await send(message)
                nursery.cancel_scope.cancel()

        await app(scope, receive, send_and_discard if has_body(scope) else send)

    return discarding


def has_body(scope: Scope) -> bool:
    return scope["type"] == "http" and any(name in BODY_HEADERS for name, _ in scope["headers"])


@attrs.define
class ConnectionGuard:
    """Serves connections so that nothing but cancellation comes out of one.

    ``before_accept`` raises OSError while accepting has to pause. ``tls`` is what a new connection shakes hands by.
    """

    app: ASGIApp
    before_accept: Callable[[], object] = lambda: None
    tls: Callable[[], ssl.SSLContext | None] = lambda: None
    config: Config = attrs.field(factory=hypercorn_config)
    context: WorkerContext = attrs.field(factory=lambda: WorkerContext(None))
    streams: dict[trio.SocketStream, TimeoutTCPServer] = attrs.field(factory=dict)
    """Those that are served, the oldest first."""
    drained: trio.Event = attrs.field(factory=trio.Event)
    refusals: LogThrottle = attrs.field(factory=lambda: LogThrottle(log, SystemClock()))

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end; the caller closes ``stream``."""
        network = network_of(stream)
        if full := self._make_room(network):
            self.refusals.warning("refused", f"admin connection from {peer_name(stream)} refused: {full}")
            return
        peer = peer_name(stream)
        app = wrap_app(discarding_unread_bodies(self.app), MAX_REQUEST_BODY_BYTES, "asgi")  # type: ignore[arg-type]  # same calls, other names
        try:
            secured: Any = stream if (context := self.tls()) is None else secured_stream(stream, context)
            server = TimeoutTCPServer(app, self.config, self.context, ConnectionState({}), secured)
            server.socket_stream, server.network = stream, network
            self.streams[stream] = server
            await server.run()
        # Not BaseException: Cancelled and KeyboardInterrupt belong to the broker, and pass.
        except* Exception as errors:
            log.info("admin connection from %s dropped: %s", peer, describe(errors))
            log.debug("admin connection from %s", peer, exc_info=errors)
        finally:
            self.streams.pop(stream, None)
            if not self.streams:
                self.drained.set()

    def _make_room(self, network: str) -> str:
        """Let the oldest idle connection give way to one from ``network`` where there are too many; return why there is
        no room, empty if there is.

        So who opens connections and asks nothing keeps nobody else out, not even from the same address.
        """
        everybody = list(self.streams.values())
        of_network = [each for each in everybody if each.network == network]
        for served, limit, where in (
            (of_network, MAX_CONNECTIONS_PER_NETWORK, network),
            (everybody, MAX_CONNECTIONS, "all addresses"),
        ):
            if len(served) >= limit:
                idle = next((each for each in served if each.is_idle), None)
                if idle is None:
                    return f"{limit} from {where} have a request under way"
                del self.streams[idle.socket_stream]
                # At once and without a checkpoint; it also wakes what waits on the stream.
                idle.socket_stream.socket.close()
                break
        return ""

    async def drain(self) -> None:
        """Let idle connections go and wait for the others."""
        # Hypercorn's connections watch this event: idle ones end, others after the answer under way.
        await self.context.terminated.set()
        # A connection accepted just before may enter after the last one left, hence a loop with a new event each time.
        while self.streams:
            self.drained = trio.Event()
            await self.drained.wait()

    def abort(self) -> None:
        """Close every connection now; what waits on one, shielded or not, wakes."""
        # A cancellation does not end a shielded send; closing the socket under it does.
        for stream in list(self.streams):
            stream.socket.close()


async def serve_connections(
    app: ASGIApp,
    listening: socket.socket,
    stop: trio.Event,
    before_accept: Callable[[], object] = lambda: None,
    tls: Callable[[], ssl.SSLContext | None] = lambda: None,
) -> None:
    """Accept from ``listening``, which is closed in the end, until ``stop`` is set or the task is cancelled."""
    listening.setblocking(False)
    guard = ConnectionGuard(app, before_accept, tls)
    with trio.socket.from_stdlib_socket(listening) as trio_socket:
        await serve_until(stop, guard, trio.SocketListener(trio_socket))


async def serve_until(stop: trio.Event, guard: ConnectionGuard, listener: trio.SocketListener) -> None:
    """Accept from ``listener`` until ``stop``, then let the connections end, or end them."""
    # Two nurseries: the inner one accepts and ends first, so that no connection begins while the others are drained.
    async with trio.open_nursery() as connections:
        try:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(serve_listener, guard, listener, connections)
                await stop.wait()
                accepting.cancel_scope.cancel()
            with trio.move_on_after(GRACEFUL_SECONDS):
                await guard.drain()
        finally:
            guard.abort()
            connections.cancel_scope.cancel()


async def serve_listener(guard: ConnectionGuard, listener: trio.SocketListener, connections: trio.Nursery) -> None:
    """Accept until cancelled, with pauses while descriptors or memory are short, or connections come too often."""
    next_line_at = -math.inf
    rate = ConnectionRate()
    while True:
        try:
            await trio.lowlevel.wait_readable(listener.socket)
            guard.before_accept()
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            # Not Trio's own loop, which writes a traceback for each try.
            if trio.current_time() >= next_line_at:
                next_line_at = trio.current_time() + EXHAUSTED_LINE_SECONDS
                log.error("accepting for the admin server pauses: %s", error)
            await trio.sleep(EXHAUSTED_PAUSE_SECONDS)
        else:
            connections.start_soon(serve_and_close, guard, stream)
            await trio.sleep(rate.delay(trio.current_time(), MAX_ACCEPTED_PER_SECOND))


async def serve_and_close(guard: ConnectionGuard, stream: trio.SocketStream) -> None:
    try:
        await guard.serve(stream)
    finally:
        await trio.aclose_forcefully(stream)


def secured_stream(stream: trio.SocketStream, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    """TLS on ``stream``, whose peer may close it without a word, as browsers do."""
    return trio.SSLStream(stream, context, server_side=True, https_compatible=True)


def peer_name(stream: trio.SocketStream) -> str:
    """The peer's address for a log line; it may be gone already."""
    try:
        address: Any = stream.socket.getpeername()
    except OSError:
        return "a peer that is gone"
    return f"{address[0]}:{address[1]}"


def network_of(stream: trio.SocketStream) -> str:
    """Whose part of the connections ``stream`` counts for."""
    try:
        return client_network(stream.socket.getpeername()[0])
    except OSError:
        return "a peer that is gone"


def describe(error: BaseException) -> str:
    """The innermost causes of an exception group, in one line."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"
