"""The state of one connection: its channel, the bytes of its unfinished frame, its requests in flight, its command.

A connection is served by a Processor, and by another one when their number changes: it moves, with every byte that it
has received. What wants it closed or moved gives it a command, which is executed at once between two requests, and
else after the responses. While a response is half written no command is executed, except closing a connection whose
client has stopped reading.
"""

from __future__ import annotations

import enum
import socket
from typing import Protocol

import attrs

from kafka_wire.frame_receiver import FrameReceiver
from kafka_wire.headers import RequestHeader
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.channel import Channel
from trio_broker.network.client_activity import ClientActivity
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest, Reply
from trio_broker.network.unread_bytes import UnreadBytes
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal
from trio_broker.security.sasl.server_authenticator import SaslServerAuthenticator

FRAME_GRACE_SECONDS = 30.0
"""Time in which any frame may arrive, however small: long enough for a slow network or a client in a debugger."""

MIN_FRAME_BYTES_PER_SECOND = 4 * 1024
"""The slowest sender that is waited for. Slower than any modem, fast enough that a large frame is not a way to hold
memory for days: 100 MiB may take seven hours, 1 MiB under five minutes."""

HANDSHAKE_SECONDS = 5.0
"""Time in which a handshake must be finished: two round trips of the slowest line, and half a millisecond of work."""

LOGIN_SECONDS = 30.0
"""From the first byte of a connection to the end of its client's login, which takes three round trips."""

DELAYED_PROBE_SECONDS = 1.0
"""How long a request is in flight before the sweep checks whether its client has closed the connection."""


MAX_REQUESTS_IN_FLIGHT = 5
"""Produces of a connection that wait for their answers at a time: as many as an idempotent producer has in flight. What
they hold of the memory for large requests counts as that of others does."""


class ConnectionState(enum.Enum):
    """What the connection is doing."""

    HANDSHAKING = enum.auto()
    """Agreeing on keys, before the first request."""
    IDLE = enum.auto()
    """Waiting for the first byte of a request."""
    RECEIVING = enum.auto()
    """In the middle of a frame."""
    WAITING_FOR_MEMORY = enum.auto()
    """In the middle of a large frame, which waits for ``queued.max.request.bytes``."""
    IN_FLIGHT = enum.auto()
    """Not read until a request of it is answered."""
    SENDING = enum.auto()
    """Writing a response."""
    WAITING_FOR_READER = enum.auto()
    """In the middle of a response that the client does not read: the socket has no room."""
    THROTTLED = enum.auto()
    """Not read, since its client is above a quota."""
    CLOSED = enum.auto()


BETWEEN_REQUESTS = frozenset(
    {
        ConnectionState.HANDSHAKING,
        ConnectionState.IDLE,
        ConnectionState.RECEIVING,
        ConnectionState.WAITING_FOR_MEMORY,
        ConnectionState.THROTTLED,
    }
)

SENDING_STATES = frozenset({ConnectionState.SENDING, ConnectionState.WAITING_FOR_READER})


@attrs.frozen
class Reassign:
    """A command: continue with another Processor, named by its id."""

    processor_id: int


class ConnectionOwner(Protocol):
    """The Processor that serves a connection."""

    def respond(self, connection: Connection, request: QueuedRequest, reply: Reply) -> None:
        """Send the reply to ``request`` in its turn, or drop it if the connection has gone."""
        ...

    def unmute(self, connection: Connection, request: QueuedRequest) -> None:
        """Read the connection on, though ``request`` is not answered."""
        ...

    def execute(self, connection: Connection, command: Reassign | CloseConnection) -> None:
        """Move or close the connection now."""
        ...

    def go_on_soon(self, connection: Connection) -> None:
        """Serve the connection in the next turn."""
        ...


@attrs.define(eq=False)
class Connection:
    """Everything that must survive a move from one Processor, its ``owner``, to another.

    The sweep compares the counts of bytes with those it saw last and so knows ``last_active`` (``Clock.monotonic``) to
    a second, without reading the clock for every request; it also counts the requests between two sweeps.
    ``frame_deadline`` is that of the frame or the handshake under way, else 0; ``throttled_until`` when a client above
    a quota is read again. ``frame_bytes`` is what the frame under way holds of ``queued.max.request.bytes``. ``header``
    is that of the latest request. ``requests`` are those in flight, the oldest first, each until its response has left;
    ``held`` is the frame of the next one, which must not overtake them. ``is_readable`` says that the
    socket may have bytes, ``is_half_closed`` that the client sends no more than those. ``is_ready`` is set while its
    Processor will serve it without a report of the selector. ``was_reported`` says that the selector has reported it
    while it was in a thread, which it does once for all room that there is. ``ending`` is set when the connection is to
    close as soon as a thread lets go of its socket. ``principal`` is who sends the next request, as its
    ``authenticator`` has found, which is None on a listener without a login. ``sending_ns`` is when the latest response
    was there.
    """

    channel: Channel
    info: ConnectionInfo
    protocol: FrameReceiver
    last_active: float
    connected_at: float = attrs.field(default=attrs.Factory(lambda self: self.last_active, takes_self=True))
    client: ClientActivity = attrs.field(factory=ClientActivity)
    unread: UnreadBytes = attrs.field(factory=UnreadBytes)
    owner: ConnectionOwner | None = None
    principal: KafkaPrincipal = ANONYMOUS
    authenticator: SaslServerAuthenticator | None = None
    state: ConnectionState = ConnectionState.IDLE
    command: Reassign | CloseConnection | None = None
    header: RequestHeader | None = None
    requests: list[QueuedRequest] = attrs.field(factory=list)
    held: memoryview | None = None
    is_readable: bool = False
    is_half_closed: bool = False
    is_ready: bool = False
    is_in_thread: bool = False
    was_reported: bool = False
    ending: CloseConnection | None = None
    sending_ns: int = 0
    frame_deadline: float = 0.0
    throttled_until: float = 0.0
    frame_bytes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_seen: int = 0
    requests_seen: int = 0
    recent_requests: int = 0

    @property
    def sock(self) -> socket.socket:
        return self.channel.sock

    @property
    def is_logged_in(self) -> bool:
        """Whether its client may send requests."""
        return self.authenticator is None or self.authenticator.is_authenticated

    @property
    def is_closed(self) -> bool:
        return self.state is ConnectionState.CLOSED

    @property
    def has_more(self) -> bool:
        """Whether the client has sent more than the requests in flight."""
        return self.is_readable or self.protocol.frame_under_way or self.held is not None

    @property
    def is_muted(self) -> bool:
        """Whether a request in flight has to be answered, or to let go of the connection, before that is read on."""
        requests = self.requests
        return bool(requests) and (
            requests[-1].is_muting
            or len(requests) >= MAX_REQUESTS_IN_FLIGHT
            or self.held is not None
            or self.command is not None
        )

    @property
    def client_id(self) -> str:
        """That of the latest request; empty before the first, and for a client that gives none."""
        return (self.header.client_id or "") if self.header is not None else ""

    def respond(self, request: QueuedRequest, reply: Reply) -> None:
        """Send ``reply`` to ``request`` in its turn; dropped quietly when the connection has gone."""
        if self.owner is not None:
            self.owner.respond(self, request, reply)

    def unmute(self, request: QueuedRequest) -> None:
        """Read on, though ``request`` is not answered."""
        if self.owner is not None:
            self.owner.unmute(self, request)

    def memory_acquired(self, count: int) -> None:
        """Go on with a large frame, for which ``count`` bytes are now held."""
        self.frame_bytes = count
        # Else a response to a request before it does not leave, or a command waits.
        if self.state is not ConnectionState.WAITING_FOR_MEMORY:
            return
        self.state = ConnectionState.RECEIVING
        if self.owner is not None:
            self.owner.go_on_soon(self)

    def give_command(self, command: Reassign | CloseConnection) -> None:
        """Execute ``command`` now if no request is in flight, else after the responses to those that are."""
        if isinstance(self.command, CloseConnection):
            return  # A connection that closes does not move, and keeps the first reason.
        if self.owner is None or self.state not in BETWEEN_REQUESTS or self.is_in_thread:
            self.command = command
        elif self.requests:
            self.command = command
            self.state = ConnectionState.IN_FLIGHT
        else:
            self.owner.execute(self, command)

    def close_now(self, reason: CloseConnection) -> None:
        """End the connection in any state, mid-response or with a request in flight, whose answer is then dropped."""
        if self.owner is not None:
            self.owner.execute(self, reason)

    def note_progress(self, now: float) -> None:
        """Remember ``now`` as the last activity, if any byte moved since the last call, and count the requests."""
        moved = self.bytes_in + self.bytes_out
        if moved != self.bytes_seen:
            self.bytes_seen = moved
            self.last_active = now
            requests = self.client.requests
            self.recent_requests = requests - self.requests_seen
            self.requests_seen = requests
        else:
            self.recent_requests = 0


def new_connection(channel: Channel, info: ConnectionInfo, max_frame_bytes: int, now: float) -> Connection:
    """Return a connection that begins at ``now``, with its handshake if its channel needs one."""
    connection = Connection(channel, info, FrameReceiver(max_frame_bytes), now)
    if channel.needs_handshake:
        connection.state = ConnectionState.HANDSHAKING
        connection.frame_deadline = now + HANDSHAKE_SECONDS
    return connection


def frame_deadline(now: float, frame_bytes: int) -> float:
    """When a frame of ``frame_bytes`` that began at ``now`` must be complete."""
    return now + FRAME_GRACE_SECONDS + frame_bytes / MIN_FRAME_BYTES_PER_SECOND


def reason_to_close(connection: Connection, now: float, config: SocketServerConfig) -> CloseConnection | None:
    """Return why ``connection`` must end because of a wait, or None. A request in flight has no time limit of its
    own."""
    waited = now - connection.last_active
    if not connection.is_logged_in and now - connection.connected_at > LOGIN_SECONDS:
        return CloseConnection(f"no login within {LOGIN_SECONDS:g} s", CloseCause.AUTHENTICATION)
    awaits_answer = connection.requests or connection.state in (ConnectionState.IN_FLIGHT, ConnectionState.THROTTLED)
    if (
        awaits_answer
        and connection.state not in SENDING_STATES
        and waited > DELAYED_PROBE_SECONDS
        and connection.channel.peer_is_gone()
    ):
        return CloseConnection("the client went away while its request waited", CloseCause.GONE_WHILE_WAITING)
    match connection.state:
        case ConnectionState.HANDSHAKING if connection.frame_deadline < now:
            reason = f"its TLS handshake was not finished within {HANDSHAKE_SECONDS:g} s"
            return CloseConnection(reason, CloseCause.HANDSHAKE)
        case ConnectionState.RECEIVING | ConnectionState.WAITING_FOR_MEMORY if 0 < connection.frame_deadline < now:
            return CloseConnection("its frame arrives too slowly", CloseCause.SLOW_FRAME)
    if config.connections_max_idle_ms < 0 or waited <= config.connections_max_idle_ms / 1000:
        return None
    match connection.state:
        case ConnectionState.IDLE | ConnectionState.RECEIVING | ConnectionState.WAITING_FOR_MEMORY if (
            not connection.requests
        ):
            return CloseConnection("idle for longer than connections.max.idle.ms", CloseCause.IDLE)
        case ConnectionState.SENDING | ConnectionState.WAITING_FOR_READER:
            return CloseConnection("it does not read its response", CloseCause.STUCK_RESPONSE)
    return None
