"""The bytes of one connection, as they are or sealed: what a Processor reads from and sends to.

A channel never waits. What cannot be done at once raises BlockingIOError, and is tried again when the selector reports
the socket.

Promise of ``send``, ``send_gathered`` and ``send_region``: they return how many of the bytes the kernel has accepted. A
caller that has sent a part, or none, sends the same bytes from there on, in pieces that begin where the first ones did:
a channel may have sealed some of them already.

Source: Kafka's TransportLayer and PlaintextTransportLayer.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Protocol, TypeAlias

import attrs

from trio_broker.runtime.disk import FileRegion
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal

ByteChunk: TypeAlias = bytes | bytearray | memoryview

UNBOUNDED: Final = sys.maxsize


class Channel(Protocol):
    """See the head of the file.

    ``receive_into`` fills a buffer and returns how many bytes it has received, 0 at the end of the stream; ``send``
    sends bytes. Those of a plain channel are the socket's own.

    ``has_pending`` says that there are bytes which no selector will report, since they have left the socket.
    ``needs_handshake`` is set while nothing but ``handshake`` may be called. ``loop_bytes`` is how many bytes may be
    sent on the event loop in one call; more are a thread's work.
    """

    sock: socket.socket

    @property
    def receive_into(self) -> Callable[[memoryview], int]: ...

    @property
    def send(self) -> Callable[[ByteChunk], int]: ...

    @property
    def has_pending(self) -> bool: ...

    @property
    def needs_handshake(self) -> bool: ...

    @property
    def loop_bytes(self) -> int: ...

    def handshake(self) -> bool:
        """Go on with the handshake as far as the peer's bytes are there, in a thread; return whether it is done.

        Raises:
            BlockingIOError: the socket has no room for this side's.
            CloseConnection, OSError: it failed, or the connection is gone.
        """
        ...

    def send_gathered(self, pieces: Sequence[ByteChunk], flags: int) -> int:
        """Send ``pieces`` in order; ``flags`` are those of ``sendmsg``."""
        ...

    def send_region(self, region: FileRegion, position: int, size: int, *, is_cached: bool) -> int:
        """Send ``size`` bytes of a file from ``position``; 0 only where the file ends. It may be called in a thread,
        and is, where the bytes are not cached."""
        ...

    def principal(self) -> KafkaPrincipal:
        """Who is at the other end, as far as the handshake has shown it."""
        ...

    def close_write(self) -> None:
        """Tell the peer that nothing more is sent.

        Raises:
            OSError: the connection is gone.
        """
        ...

    def peer_is_gone(self) -> bool:
        """Whether the other side has closed. False while bytes that nobody has read stand before the end."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


@attrs.define(eq=False, init=False)
class PlaintextChannel:
    """The bytes as they are."""

    sock: socket.socket
    receive_into: Callable[[memoryview], int]
    send: Callable[[ByteChunk], int]
    has_pending: ClassVar = False
    needs_handshake: ClassVar = False
    loop_bytes: ClassVar = UNBOUNDED

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # Each request is received and answered by these: a method around them would be a call more.
        self.receive_into = sock.recv_into
        self.send = sock.send

    def send_gathered(self, pieces: Sequence[ByteChunk], flags: int) -> int:
        return self.sock.sendmsg(pieces, (), flags)

    def send_region(self, region: FileRegion, position: int, size: int, *, is_cached: bool) -> int:
        send = region.send if is_cached else region.send_cold
        return send(self.sock.fileno(), position, size)

    def handshake(self) -> bool:
        return True

    def principal(self) -> KafkaPrincipal:
        return ANONYMOUS

    def close_write(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def peer_is_gone(self) -> bool:
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.sock.close()
