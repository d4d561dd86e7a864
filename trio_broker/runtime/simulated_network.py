"""A network in memory: Unix sockets that look like TCP.

A Unix socket hands bytes over within the call that sends them. So what a poll reports depends on nothing but what the
tasks of the event loop did before, which is what makes a simulation repeatable. Everything else is the kernel's, as
on TCP: partial sends, full buffers, half-closed connections and resets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import weakref
from typing import Any

import trio

IP_AND_TCP_LEVELS = frozenset({socket.IPPROTO_TCP, socket.IPPROTO_IPV6})

_NETWORKS = itertools.count()


class SimulatedSocket(socket.socket):
    """A Unix socket that shows the host and port it stands for, and ignores the options of TCP."""

    host: str = ""
    port: int = 0
    peers: itertools.count[int]
    accepted: weakref.WeakKeyDictionary[socket.socket, None]

    def setsockopt(self, *arguments: Any) -> None:
        if arguments[0] not in IP_AND_TCP_LEVELS:
            super().setsockopt(*arguments)

    def getsockname(self) -> Any:
        return self.host, self.port

    def accept(self) -> tuple[socket.socket, Any]:
        number, _ = self._accept()  # type: ignore[attr-defined]
        accepted = SimulatedSocket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=number)
        accepted.host, accepted.port = self.host, self.port
        self.accepted[accepted] = None
        return accepted, ("10.0.0.2", next(self.peers))


class SimulatedNetwork:
    """Listening sockets by port, and connections to them from the same process."""

    def __init__(self) -> None:
        # Abstract names are the machine's, so that simulations in several processes keep apart by theirs.
        self._prefix = f"\0simulated-{os.getpid()}-{next(_NETWORKS)}"
        self._ports = itertools.count(9092)
        self._peers = itertools.count(50_000)
        self._resets = 0
        self._clients: weakref.WeakKeyDictionary[socket.socket, None] = weakref.WeakKeyDictionary()
        # As keys, in the order in which they were made.
        self._sockets: weakref.WeakKeyDictionary[socket.socket, None] = weakref.WeakKeyDictionary()

    def max_connections(self) -> int:
        """Return what nothing here can reach."""
        return 1 << 20

    def stream_socket(self, host: str, port: int) -> tuple[socket.socket, Any]:
        """See ``Network``. Port 0 gets the next free one."""
        sock = SimulatedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.host, sock.port, sock.peers = host, port or next(self._ports), self._peers
        sock.accepted = self._sockets
        self._sockets[sock] = None
        return sock, self._address(sock.port)

    def client_socket(self, port: int) -> socket.socket:
        """Return a connected, non-blocking socket.

        Raises:
            OSError: nothing listens there (any more), or its queue is full.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(self._address(port))
        except BaseException:
            sock.close()
            raise
        self._clients[sock] = None
        return sock

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """See ``Network``. Every host is this one."""
        await trio.lowlevel.checkpoint()
        return trio.SocketStream(trio.socket.from_stdlib_socket(self.client_socket(port)))

    def reset(self) -> None:
        """Do what the kernel does when a process ends: close its listening sockets and its connections."""
        for sock in list(self._sockets):
            # Not closed: descriptors belong to tasks, which are about to end.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()
        # The names are free at once, although the sockets are not closed yet.
        self._resets += 1

    def close(self) -> None:
        """Close the connections that clients have left open. Nothing may use them any more."""
        for sock in list(self._clients):
            sock.close()

    def _address(self, port: int) -> str:
        return f"{self._prefix}-{self._resets}-{port}"
