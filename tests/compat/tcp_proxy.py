"""A TCP proxy on loopback, whose target a test changes: a port map, or one that leads astray."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial
from types import TracebackType

from tests.compat.group_members import WAIT_SECONDS
from tests.waits import within

PIECE_BYTES = 65536


class TcpProxy:
    """Forwards each connection to the port that it leads to. Use it as a context manager."""

    def __init__(self) -> None:
        self.target = 0
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Condition()
        self._open: set[socket.socket] = set()
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
        with self._lock:
            self._close_open()

    def _close_open(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
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
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), name="proxied", daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                sink.sendall(piece)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
