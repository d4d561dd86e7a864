"""A TCP proxy on loopback, whose target a test changes, and which can be cut: a port map, one that leads astray, or a
network that loses packets.

What a cut loses is kept and goes on its way when it is healed, as what TCP sends again does. Only that a connection is
made takes no packet here: one that is begun during a cut is made, and silent.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final

import attrs

from tests.compat.group_members import WAIT_SECONDS
from tests.waits import within

PIECE_BYTES = 65536

CLIENT_ID_AT: Final = 12
"""In a request: behind its size, API key, version and correlation id."""

RESETS: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a close is a reset."""


class Cut(enum.Flag):
    """What a cut loses, or that it resets each connection."""

    REQUESTS = enum.auto()
    ANSWERS = enum.auto()
    BOTH = REQUESTS | ANSWERS
    RESET = enum.auto()


def anybody(_client_id: str) -> bool:
    return True


def client_id_in(piece: bytes) -> str:
    """The client id of the Kafka request that begins with ``piece``; of anything else, any text."""
    start = CLIENT_ID_AT + 2
    return piece[start : start + int.from_bytes(piece[CLIENT_ID_AT:start])].decode(errors="replace")


@attrs.define(eq=False)
class ProxiedConnection:
    """``client_id`` is that of the first request, None before it."""

    client: socket.socket
    server: socket.socket
    client_id: str | None = None

    def close(self, *, with_reset: bool = False) -> None:
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                if with_reset:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
                # Wakes up who receives, whom a mere close would leave waiting. To the other side it says nothing.
                each.shutdown(socket.SHUT_RD if with_reset else socket.SHUT_RDWR)
            each.close()


class TcpProxy:
    """Forwards each connection to the port that it leads to. Use it as a context manager."""

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Condition()
        self._open: set[ProxiedConnection] = set()
        self._cut = Cut(0)
        self._concerns: Callable[[str], bool] = anybody
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lead_to(self, port: int) -> None:
        """Forward to ``port`` from now on; what was forwarded elsewhere is closed."""
        with self._lock:
            self.target = port
            self._close_open()

    def cut(self, cut: Cut, concerns: Callable[[str], bool] = anybody) -> None:
        """Cut the connections of those clients that it ``concerns``, by their ids, until ``heal``."""
        with self._lock:
            self._cut, self._concerns = cut, concerns
            for each in [each for each in self._open if self._loses(each, Cut.RESET)]:
                each.close(with_reset=True)

    def heal(self) -> None:
        with self._lock:
            self._cut = Cut(0)
            self._lock.notify_all()

    def wait_until_accepted(self, connections: int) -> None:
        """Return when so many connections have come since the proxy began."""
        with self._lock:
            came = within(partial(self._lock.wait_for, lambda: self.accepted >= connections), WAIT_SECONDS)
        assert came, f"{self.accepted} connections, {connections} were to come"

    def __enter__(self) -> TcpProxy:
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A thread in ``accept`` does not notice that its socket is closed; shut down, it does.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        self.heal()
        with self._lock:
            self._close_open()

    def _close_open(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                self._lock.notify_all()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                self._open.add(connection := ProxiedConnection(client, server))
            for direction in (Cut.REQUESTS, Cut.ANSWERS):
                threading.Thread(
                    target=self._forward, args=(connection, direction), name="proxied", daemon=True
                ).start()

    def _forward(self, connection: ProxiedConnection, direction: Cut) -> None:
        source, sink = connection.client, connection.server
        if direction is Cut.ANSWERS:
            source, sink = sink, source
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if connection.client_id is None:
                    connection.client_id = client_id_in(piece)
                self._wait_until_passes(connection, direction)
                sink.sendall(piece)
        # The end of a connection is lost as its bytes are.
        self._wait_until_passes(connection, direction)
        with self._lock:
            connection.close()
            self._open.discard(connection)

    def _wait_until_passes(self, connection: ProxiedConnection, direction: Cut) -> None:
        with self._lock:
            if self._loses(connection, Cut.RESET):
                connection.close(with_reset=True)
            self._lock.wait_for(lambda: not self._loses(connection, direction))

    def _loses(self, connection: ProxiedConnection, what: Cut) -> bool:
        return bool(what & self._cut) and connection.client_id is not None and self._concerns(connection.client_id)
