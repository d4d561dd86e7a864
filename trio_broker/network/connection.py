"""One connection: its socket, the bytes of its unfinished frame, its one request in flight, and what it is told to do.

A connection is plain state. The task that serves it belongs to a Processor and may end while the connection lives on:
when the number of Processors changes, the connection moves, with every byte it has received, into a task of another.

Others never touch a connection in use. They leave an order, to close or to move, and interrupt its wait; the task
obeys between two steps. No order is obeyed while a response is half written, except to close a connection that has
stopped reading.
"""

from __future__ import annotations

import enum
import socket

import attrs
import trio

from kafka_wire.connection import ServerConnection
from kafka_wire.headers import RequestHeader
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.request_channel import ClientSoftware, ConnectionInfo, ReplySlot

FRAME_GRACE_SECONDS = 30.0
"""Time for any frame to arrive, however small: generous to a client that a slow network or a debugger holds up."""

MIN_FRAME_BYTES_PER_SECOND = 4 * 1024
"""The slowest sender that is waited for. Slower than any modem, fast enough that a large frame is not a way to hold
memory for days: 100 MiB may take seven hours, 1 MiB under five minutes."""

PARKED_PROBE_SECONDS = 1.0
"""How long a request is in flight before we begin to look whether its client is still there."""


class ConnectionState(enum.Enum):
    """What the connection's task is doing."""

    IDLE = enum.auto()
    """Waiting for the first byte of a request."""
    RECEIVING = enum.auto()
    """In the middle of a frame."""
    IN_FLIGHT = enum.auto()
    """Waiting for its request to be answered."""
    SENDING = enum.auto()
    """Writing a response."""
    CLOSED = enum.auto()


@attrs.frozen
class Reassign:
    """The command to continue in a task of another Processor, named by its id."""

    processor_id: int


@attrs.define(eq=False)
class Connection:
    """Everything that must survive a move from one Processor to another.

    ``progress`` counts bytes in and out; the sweeper compares it with what it saw last and so knows ``last_active``
    (``Clock.monotonic``) to a second without a clock on the path of every request. ``frame_deadline`` is 0 outside a
    frame. ``request_bytes`` is what the frame under way or in flight holds of ``queued.max.request.bytes``.
    ``header`` is that of the latest request, for the log.
    """

    sock: socket.socket
    info: ConnectionInfo
    protocol: ServerConnection
    last_active: float
    software: ClientSoftware = attrs.field(factory=ClientSoftware)
    reply: ReplySlot = attrs.field(factory=ReplySlot)
    state: ConnectionState = ConnectionState.IDLE
    command: Reassign | CloseConnection | None = None
    header: RequestHeader | None = None
    frame_deadline: float = 0.0
    request_bytes: int = 0
    progress: int = 0
    progress_seen: int = 0

    def give_command(self, command: Reassign | CloseConnection) -> None:
        """Leave ``command``, and wake the connection's task if it waits where the order can be obeyed."""
        if isinstance(self.command, CloseConnection):
            return  # Nothing outranks the end.
        self.command = command
        if self.state in (ConnectionState.IDLE, ConnectionState.RECEIVING):
            self.interrupt()

    def close_now(self, reason: CloseConnection) -> None:
        """End the connection in any state, mid-response or with a request in flight, whose answer is then dropped."""
        self.command = reason
        self.reply.abandon(reason)
        self.interrupt()

    def interrupt(self) -> None:
        """Wake the task if it waits for the socket: its wait raises ClosedResourceError.

        Trio means this for sockets about to be closed, but nothing is closed by it. It costs nothing per wait, where a
        cancel scope around each wait would cost a tenth of a small request.
        """
        trio.lowlevel.notify_closing(self.sock)

    def note_progress(self, now: float) -> None:
        """Remember ``now`` as the last activity, if any byte moved since the last call."""
        if self.progress != self.progress_seen:
            self.progress_seen = self.progress
            self.last_active = now


def frame_deadline(now: float, frame_bytes: int) -> float:
    """When a frame of ``frame_bytes`` that began at ``now`` must be complete."""
    return now + FRAME_GRACE_SECONDS + frame_bytes / MIN_FRAME_BYTES_PER_SECOND


def reason_to_close(connection: Connection, now: float, config: SocketServerConfig) -> CloseConnection | None:
    """Why ``connection`` has waited long enough, if it has. A request in flight may take as long as it likes."""
    waited = now - connection.last_active
    match connection.state:
        case ConnectionState.IN_FLIGHT if waited > PARKED_PROBE_SECONDS and peer_is_gone(connection.sock):
            return CloseConnection("the client went away while its request waited", CloseCause.GONE_WHILE_WAITING)
        case ConnectionState.RECEIVING if 0 < connection.frame_deadline < now:
            return CloseConnection("its frame arrives too slowly", CloseCause.SLOW_FRAME)
    if config.connections_max_idle_ms < 0 or waited <= config.connections_max_idle_ms / 1000:
        return None
    match connection.state:
        case ConnectionState.IDLE | ConnectionState.RECEIVING:
            return CloseConnection("idle for longer than connections.max.idle.ms", CloseCause.IDLE)
        case ConnectionState.SENDING:
            return CloseConnection("it does not read its response", CloseCause.STUCK_RESPONSE)
    return None


def peer_is_gone(sock: socket.socket) -> bool:
    """Whether the other side has closed; says no while there are bytes before the end."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
