"""Bytes under TLS: OpenSSL between two buffers in memory, and the socket behind them.

    socket ─▶ _incoming ─▶ SSLObject ─▶ receive_into          send ─▶ SSLObject ─▶ _outgoing ─▶ _unsent ─▶ socket

Nothing is made for a connection before its first bytes are there. If they are no TLS, ``handshake`` raises NotTls, and
no TLS error is sent to a client that could not read it.

Sealed bytes are sent before others are sealed, so that a client that reads slowly holds ``SEAL_BYTES`` and no more. A
client that makes this side answer, by renewing keys without end, and reads nothing of that is closed.

Renegotiation is refused, session tickets are not sent: Kafka's clients do not resume, and a ticket is a packet.

Source: Kafka's SslTransportLayer; RFC 8446 5.1 for the first bytes; docs/decisions/0106.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

import attrs

from trio_broker.network.channel import ByteChunk
from trio_broker.network.errors import CloseCause, CloseConnection, NotTls
from trio_broker.runtime.disk import FileRegion
from trio_broker.security.kafka_principal import KafkaPrincipal, NoMatchingRule
from trio_broker.security.tls_failure import failure_of_client

LOOP_BYTES: Final = 64 * 1024
"""At most this much is sealed on the event loop, some 25 µs of it; a hop to a thread costs twice that."""

SEAL_BYTES: Final = 32 * 1024
"""Sealed and sent at a time. OpenSSL's buffer never shrinks, so each connection that has once been sent as much keeps
it until it ends; twice as much at a time saves nothing."""

RECEIVE_BYTES: Final = 32 * 1024
"""Received from the socket at a time, and kept in the same way."""

MAX_HANDSHAKE_BYTES: Final = 64 * 1024
"""Received until a handshake is done. Its messages, with a chain of certificates, have some 10 KB; OpenSSL would hold
130 for anybody."""

READ_BYTES: Final = 256 * 1024
"""Opened in one call of ``receive_into``, so that a fast sender does not keep the event loop: 0.1 ms."""

MAX_CONTROL_BYTES: Final = 16 * 1024
"""Of answers to a client's key updates and the like that it does not read: each has some 30 bytes."""

SHORTEST_REQUEST_BYTES: Final = 36
"""The sealed bytes of the shortest request under TLS 1.3. A note that the peer closes is shorter."""

HANDSHAKE_BYTE: Final = 0x16
"""The first byte of every TLS connection: the type of a handshake record."""


class HandshakeKeys(Protocol):
    """What a listener has for its handshakes: the present keys and certificates, and the rules for names."""

    @property
    def context(self) -> ssl.SSLContext: ...

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return who has shown a certificate, in DER, or none."""
        ...


@attrs.define(eq=False, init=False)
class TlsChannel:
    """See ``Channel``. The factory is asked when the handshake begins, so that its context is the present one."""

    sock: socket.socket
    has_pending: bool
    needs_handshake: bool
    loop_bytes: int
    _factory: HandshakeKeys
    _tls: ssl.SSLObject | None
    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _unsent: memoryview
    _sealed_bytes: int
    """Of the bytes that are sent next: how many are sealed already."""
    _handshake_bytes: int
    """How many have been received for the handshake."""

    def __init__(self, sock: socket.socket, factory: HandshakeKeys) -> None:
        self.sock, self._factory = sock, factory
        self.has_pending, self.needs_handshake = False, True
        self.loop_bytes = LOOP_BYTES
        self._tls = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._unsent, self._sealed_bytes = memoryview(b""), 0
        self._handshake_bytes = 0

    # --- the handshake ---

    def handshake(self) -> bool:
        """Go on with the handshake as far as the peer's bytes are there; return whether it is done.

        Raises:
            BlockingIOError: the socket has no room for this side's.
            NotTls: the first bytes are something else.
            CloseConnection: it failed, for the reason given. The peer has been sent the alert.
            OSError: the connection is gone.
        """
        while True:
            if self._tls is not None:
                is_done = self._step(self._tls)
                if not self._flush():
                    raise BlockingIOError
                if is_done:
                    # A request may have come in the packet that ended the handshake.
                    self.needs_handshake, self.has_pending = False, True
                    return True
            try:
                count = self._receive_sealed()
            except BlockingIOError:
                return False
            if not count:
                raise CloseConnection("closed by the client in the middle of the TLS handshake", CloseCause.HANDSHAKE)
            self._handshake_bytes += count
            if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
                reason = f"its TLS handshake takes more than {MAX_HANDSHAKE_BYTES} bytes"
                raise CloseConnection(reason, CloseCause.HANDSHAKE)

    def principal(self) -> KafkaPrincipal:
        assert self._tls is not None, "the handshake is done"
        try:
            return self._factory.principal(self._tls.getpeercert(binary_form=True))
        except NoMatchingRule as error:
            raise CloseConnection(f"its certificate names nobody: {error}", CloseCause.HANDSHAKE) from None

    def _step(self, tls: ssl.SSLObject) -> bool:
        try:
            tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            failure = failure_of_client(error)
        # Here, without OpenSSL's error as its context, whose frames would keep the connection for the collector.
        with suppress(OSError):
            self._flush()
        raise CloseConnection(f"its TLS handshake failed: {failure}", CloseCause.HANDSHAKE)

    # --- receiving ---

    def receive_into(self, buffer: memoryview) -> int:
        """Fill ``buffer`` as far as bytes are there.

        Raises:
            BlockingIOError: there are none.
            CloseConnection: what came is broken.
            OSError: the connection is gone.
        """
        assert self._tls is not None, "the handshake is done"
        target = buffer[:READ_BYTES]
        count = 0
        # In this call: more may have come since the one before, and its report is taken for read when this one ends.
        is_drained = False
        while count < len(target):
            if not self.has_pending:
                try:
                    self.has_pending = True
                    is_drained = self._receive_sealed() < RECEIVE_BYTES
                except BlockingIOError:
                    self.has_pending = False
                    if count:
                        break
                    raise
            try:
                # With a buffer it returns a count.
                opened = cast(int, self._tls.read(len(target) - count, target[count:]))
                if not opened:
                    # The peer has closed properly, which the next call finds again.
                    self.has_pending = True
                    break
                count += opened
                self.has_pending = self._incoming.pending > 0 or self._tls.pending() > 0
            except ssl.SSLWantReadError:
                self.has_pending = False
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # The end, which the next call finds again.
                self.has_pending = True
                break
            except ssl.SSLError as error:
                raise CloseConnection(f"its TLS records are broken: {failure_of_client(error)}") from None
            if count and not self.has_pending and is_drained:
                break
        else:
            # There may be more in the socket, which has reported it already.
            self.has_pending = True
        self._send_control()
        return count

    def _receive_sealed(self) -> int:
        """Take what the socket has; return how many bytes that is, 0 at the end of the stream.

        Raises:
            BlockingIOError: it has nothing.
            NotTls: they are the first bytes, and no TLS.
        """
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            self._incoming.write_eof()
            return 0
        if self._tls is None:
            if data[0] != HANDSHAKE_BYTE:
                raise NotTls(data[:4])
            self._tls = self._factory.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        return len(data)

    def _send_control(self) -> None:
        """Send what TLS itself has to say while requests are received.

        Raises:
            CloseConnection: the peer does not read it.
        """
        if self._outgoing.pending and not self._flush() and self._outgoing.pending > MAX_CONTROL_BYTES:
            raise CloseConnection("it does not read what TLS answers")

    # --- sending ---

    def send(self, data: ByteChunk) -> int:
        assert self._tls is not None, "the handshake is done"
        left = memoryview(data)
        sent = 0
        assert self._sealed_bytes <= len(left), f"{self._sealed_bytes} bytes are sealed of {len(left)}"
        while sent < len(left):
            if not self._sealed_bytes:
                self._sealed_bytes = self._tls.write(left[sent : sent + SEAL_BYTES])
            if not self._flush():
                if not sent:
                    raise BlockingIOError
                break
            sent += self._sealed_bytes
            self._sealed_bytes = 0
        return sent

    def send_gathered(self, pieces: Sequence[ByteChunk], flags: int) -> int:
        """See ``Channel``; the flags are of packets, and nothing under TLS."""
        sent = 0
        for piece in pieces:
            try:
                count = self.send(piece)
            except BlockingIOError:
                if not sent:
                    raise
                break
            sent += count
            if count < len(piece):
                break
        return sent

    def send_region(self, region: FileRegion, position: int, size: int, *, is_cached: bool) -> int:
        sent = 0
        while sent < size:
            data = region.read_at(position + sent, min(SEAL_BYTES, size - sent))
            try:
                count = self.send(data)
            except BlockingIOError:
                if not sent:
                    raise
                break
            sent += count
            if count < len(data) or not data:
                break
        return sent

    def _flush(self) -> bool:
        """Send what is sealed; return whether all of it has left."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
            except BlockingIOError:
                return False
        return True

    # --- the end ---

    def close_write(self) -> None:
        self._say_goodbye()
        self.sock.shutdown(socket.SHUT_WR)

    def peer_is_gone(self) -> bool:
        try:
            ahead = self.sock.recv(SHORTEST_REQUEST_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        # One that closes properly says so first.
        return not ahead or (len(ahead) < SHORTEST_REQUEST_BYTES and not self.has_pending and is_half_closed(self.sock))

    def close(self) -> None:
        self._say_goodbye()
        self.sock.close()

    def _say_goodbye(self) -> None:
        """Tell the peer that this is the end and nothing was cut off, if there is room for that."""
        if not self.needs_handshake and self._tls is not None and not self._sealed_bytes:
            with suppress(OSError):
                self._tls.unwrap()
            with suppress(OSError):
                self._flush()


def is_half_closed(sock: socket.socket) -> bool:
    """Whether the peer sends no more than what is there."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))
