"""The state of one connection: its socket, the bytes of its unfinished frame, its request in flight, its command.

The task that serves a connection belongs to a Processor and may end before the connection does: when the number of
Processors changes, the connection moves, with every byte it has received, to a task of another Processor.

Only that task uses the socket. Other tasks leave a command, to close or to move, and interrupt its wait; the task
executes the command between two steps. While a response is half written no command is executed, except closing a
connection whose client has stopped reading.
"""

from __future__ import annotations

import enum
import socket

import attrs
import trio

from kafka_wire.connection import ServerConnection
from kafka_wire.headers import RequestHeader
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.client_activity import ClientActivity
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest, ReplySlot

FRAME_GRACE_SECONDS = 30.0
"""Time in which any frame may arrive, however small: long enough for a slow network or a client in a debugger."""

MIN_FRAME_BYTES_PER_SECOND = 4 * 1024
"""The slowest sender that is waited for. Slower than any modem, fast enough that a large frame is not a way to hold
memory for days: 100 MiB may take seven hours, 1 MiB under five minutes."""

PARKED_PROBE_SECONDS = 1.0
"""How long a request is in flight before the sweep checks whether its client has closed the connection."""


class ConnectionState(enum.Enum):
    """What the connection's task is doing."""

    IDLE = enum.auto()
    """Waiting for the first byte of a request."""
    RECEIVING = enum.auto()
    """In the middle of a frame."""
    WAITING_FOR_MEMORY = enum.auto()
    """In the middle of a large frame, which waits for ``queued.max.request.bytes``."""
    WAITING_FOR_QUEUE = enum.auto()
    """Its request waits for room in the request queue."""
    IN_FLIGHT = enum.auto()
    """Waiting for its request to be answered."""
    SENDING = enum.auto()
    """Writing a response."""
    WAITING_FOR_READER = enum.auto()
    """In the middle of a response that the client does not read: the socket has no room."""
    CLOSED = enum.auto()


@attrs.frozen
class Reassign:
    """A command: continue in a task of another Processor, named by its id."""

    processor_id: int


@attrs.define(eq=False)
class Connection:
    """Everything that must survive a move from one Processor to another.

    The sweep compares the counts of bytes with those it saw last and so knows ``last_active`` (``Clock.monotonic``) to
    a second, without reading the clock for every request; it also counts the requests between two sweeps.
    ``frame_deadline`` is 0 outside a frame. ``request_bytes`` is what the frame under way or in flight holds of
    ``queued.max.request.bytes``. ``header`` is that of the latest request; ``request`` is the one in flight, until its
    response has left.
    """

    sock: socket.socket
    info: ConnectionInfo
    protocol: ServerConnection
    last_active: float
    connected_at: float = attrs.field(default=attrs.Factory(lambda self: self.last_active, takes_self=True))
    client: ClientActivity = attrs.field(factory=ClientActivity)
    reply: ReplySlot = attrs.field(factory=ReplySlot)
    state: ConnectionState = ConnectionState.IDLE
    command: Reassign | CloseConnection | None = None
    header: RequestHeader | None = None
    request: QueuedRequest | None = None
    frame_deadline: float = 0.0
    request_bytes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_seen: int = 0
    requests_seen: int = 0
    recent_requests: int = 0

    def give_command(self, command: Reassign | CloseConnection) -> None:
        """Leave ``command``, and wake the connection's task if it waits where it may execute it."""
        if isinstance(self.command, CloseConnection):
            return  # A connection that closes does not move, and keeps the first reason.
        self.command = command
        if self.state in (ConnectionState.IDLE, ConnectionState.RECEIVING):
            self.interrupt()

    def close_now(self, reason: CloseConnection) -> None:
        """End the connection in any state, mid-response or with a request in flight, whose answer is then dropped."""
        self.command = reason
        # A task that waits for its reply does not wait for the socket, so both waits are ended.
        self.reply.abandon(reason)
        self.interrupt()

    def interrupt(self) -> None:
        """Wake the task if it waits for the socket: its wait raises ClosedResourceError.

        Trio offers this for sockets about to be closed, but it closes nothing. It adds no cost to a wait; a cancel
        scope around each wait would cost a tenth of a small request.
        """
        trio.lowlevel.notify_closing(self.sock)

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


def frame_deadline(now: float, frame_bytes: int) -> float:
    """When a frame of ``frame_bytes`` that began at ``now`` must be complete."""
    return now + FRAME_GRACE_SECONDS + frame_bytes / MIN_FRAME_BYTES_PER_SECOND


def reason_to_close(connection: Connection, now: float, config: SocketServerConfig) -> CloseConnection | None:
    """Return why ``connection`` must end because of a wait, or None. A request in flight has no time limit of its
    own."""
    waited = now - connection.last_active
    match connection.state:
        case ConnectionState.WAITING_FOR_QUEUE | ConnectionState.IN_FLIGHT if (
            waited > PARKED_PROBE_SECONDS and peer_is_gone(connection.sock)
        ):
            return CloseConnection("the client went away while its request waited", CloseCause.GONE_WHILE_WAITING)
        case ConnectionState.RECEIVING | ConnectionState.WAITING_FOR_MEMORY if 0 < connection.frame_deadline < now:
            return CloseConnection("its frame arrives too slowly", CloseCause.SLOW_FRAME)
    if config.connections_max_idle_ms < 0 or waited <= config.connections_max_idle_ms / 1000:
        return None
    match connection.state:
        case ConnectionState.IDLE | ConnectionState.RECEIVING | ConnectionState.WAITING_FOR_MEMORY:
            return CloseConnection("idle for longer than connections.max.idle.ms", CloseCause.IDLE)
        case ConnectionState.SENDING | ConnectionState.WAITING_FOR_READER:
            return CloseConnection("it does not read its response", CloseCause.STUCK_RESPONSE)
    return None


def peer_is_gone(sock: socket.socket) -> bool:
    """Whether the other side has closed. False while bytes that nobody has read stand before the end of the stream."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
