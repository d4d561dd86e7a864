"""A network of named hosts in memory: Unix sockets that look like TCP, and links between the hosts that fail.

A Unix socket hands bytes over within the call that sends them. So what a poll reports depends on nothing but what the
tasks of the event loop did before, which is what makes a simulation repeatable. Everything else is the kernel's, as
on TCP: partial sends, full buffers, half-closed connections and resets.

What one host sends to another goes over the link between them, one for each direction: a task carries it from a socket
to the next, when the link is not cut and after its delay. A link that is cut loses nothing, as TCP sends again what was
lost: bytes and ends of connections arrive when it is healed, unless the connection is broken before.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import socket
import weakref
from typing import Any, Final

import attrs
import trio

from trio_broker.runtime.timeouts import CONNECT_SECONDS

IP_AND_TCP_LEVELS = frozenset({socket.IPPROTO_TCP, socket.IPPROTO_IPV6})

_NETWORKS = itertools.count()

OWN_NAMES: Final = frozenset({"", "127.0.0.1", "::1", "localhost"})
"""By which each host reaches itself."""

PIECE_BYTES: Final = 64 * 1024
"""Carried at a time: each piece is under way for the delay of its link, one after another."""


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
    """The hosts, and the links between them. ``seed`` is of the delays."""

    def __init__(self, seed: int = 0) -> None:
        # Abstract names are the machine's, so that simulations in several processes keep apart by theirs.
        self._prefix = f"\0simulated-{os.getpid()}-{next(_NETWORKS)}"
        self._hosts: dict[str, SimulatedHost] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._random = random.Random(seed)
        self._clients: weakref.WeakKeyDictionary[socket.socket, None] = weakref.WeakKeyDictionary()
        self._connections: list[_Connection] = []

    def host(self, name: str) -> SimulatedHost:
        """Return the host of a name, the same each time."""
        if name not in self._hosts:
            self._hosts[name] = SimulatedHost(self, name, f"{self._prefix}-{name}")
        return self._hosts[name]

    def link(self, source: str, target: str) -> Link:
        """Return the link over which one host sends to another one."""
        if (source, target) not in self._links:
            self._links[source, target] = Link(self._random)
        return self._links[source, target]

    def links(self, one: str, other: str) -> tuple[Link, Link]:
        """Return the links between two hosts, of both directions."""
        return self.link(one, other), self.link(other, one)

    def break_connections(self, one: str, other: str) -> None:
        """End all connections between two hosts; what is under way is lost."""
        for connection in self._connections:
            if connection.ends == frozenset({one, other}):
                connection.scope.cancel()

    def client_socket(self, host: str, port: int) -> socket.socket:
        """Return a connected, non-blocking socket of a client, over no link.

        Raises:
            OSError: nothing listens there (any more), or its queue is full.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(self.host(host).address(port))
        except BaseException:
            sock.close()
            raise
        self._clients[sock] = None
        return sock

    async def connect(self, source: str, target: str, port: int) -> trio.abc.Stream:
        """See ``Network``; ``source`` is the host that connects."""
        if target not in self._hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if source == target:
            await trio.lowlevel.checkpoint()
            return trio.SocketStream(trio.socket.from_stdlib_socket(self.client_socket(target, port)))
        with trio.move_on_after(CONNECT_SECONDS) as scope:
            # What a handshake needs: one packet in each direction.
            for link in self.links(source, target):
                await link.passed()
        if scope.cancelled_caught:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {CONNECT_SECONDS:g} s")
        far = trio.socket.from_stdlib_socket(self.client_socket(target, port))
        ours, near = trio.socket.socketpair(socket.AF_UNIX)
        self._hosts[source].note(ours)
        trio.lowlevel.spawn_system_task(self._carry, _Connection(source, target, near, far))
        return trio.SocketStream(ours)

    async def _carry(self, connection: _Connection) -> None:
        """Carry what the two ends of a connection send to each other, until both have ended, or it breaks."""
        there, back = self.links(connection.source, connection.target)
        self._connections.append(connection)
        with connection.near, connection.far:
            async with trio.open_nursery() as nursery:
                connection.scope = nursery.cancel_scope
                nursery.start_soon(_carry_one_way, connection.near, connection.far, there, nursery.cancel_scope)
                nursery.start_soon(_carry_one_way, connection.far, connection.near, back, nursery.cancel_scope)
        self._connections.remove(connection)

    def close(self) -> None:
        """Close the connections that clients have left open. Nothing may use them any more."""
        for sock in list(self._clients):
            sock.close()


@attrs.define(eq=False)
class _Connection:
    """A connection between two hosts: the socket that stands for it at either end of the links."""

    source: str
    target: str
    near: trio.socket.SocketType
    far: trio.socket.SocketType
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def ends(self) -> frozenset[str]:
        return frozenset({self.source, self.target})


async def _carry_one_way(
    source: trio.socket.SocketType, target: trio.socket.SocketType, link: Link, whole: trio.CancelScope
) -> None:
    try:
        while data := await source.recv(PIECE_BYTES):
            await link.passed()
            left = memoryview(data)
            while left:
                left = left[await target.send(left) :]
        await link.passed()
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One end is gone: the kernel of its host tells the other one.
        whole.cancel()


@attrs.define(eq=False)
class Link:
    """What one host sends to another: it passes after up to ``delay_seconds``, which are drawn, and not while the
    link is cut."""

    _random: random.Random
    delay_seconds: float = 0.0
    _whole: trio.Event | None = attrs.field(default=None, init=False)
    """Set when it is healed; None while it is whole."""

    def cut(self) -> None:
        """Let nothing pass from now on."""
        if self._whole is None:
            self._whole = trio.Event()

    def heal(self) -> None:
        """Let everything pass again, first what waits."""
        if self._whole is not None:
            self._whole.set()
            self._whole = None

    async def passed(self) -> None:
        """Wait until something that is sent now has arrived."""
        if self.delay_seconds:
            await trio.sleep(self._random.uniform(0.0, self.delay_seconds))
        else:
            await trio.lowlevel.checkpoint()
        while self._whole is not None:
            await self._whole.wait()


class SimulatedHost:
    """The network of one host. See ``Network``; whatever address it listens on, it is reached by its name."""

    def __init__(self, network: SimulatedNetwork, name: str, prefix: str) -> None:
        self.network = network
        self.name = name
        self._prefix = prefix
        self._ports = itertools.count(9092)
        self._peers = itertools.count(50_000)
        self._resets = 0
        # As keys, in the order in which they were made.
        self._sockets: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def max_connections(self) -> int:
        """Return what nothing here can reach."""
        return 1 << 20

    def stream_socket(self, host: str, port: int) -> tuple[socket.socket, Any]:
        """See ``Network``. Port 0 gets the next free one."""
        sock = SimulatedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.host, sock.port, sock.peers = host, port or next(self._ports), self._peers
        sock.accepted = self._sockets
        self._sockets[sock] = None
        return sock, self.address(sock.port)

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """See ``Network``."""
        return await self.network.connect(self.name, self.name if host in OWN_NAMES else host, port)

    def reset(self) -> None:
        """Do what the kernel does when a process ends: close its listening sockets and its connections."""
        for sock in list(self._sockets):
            # Not closed: descriptors belong to tasks, which are about to end.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()
        # The names are free at once, although the sockets are not closed yet.
        self._resets += 1

    def address(self, port: int) -> str:
        """Where a socket of this host is bound, by the host's present process."""
        return f"{self._prefix}-{self._resets}-{port}"

    def note(self, sock: trio.socket.SocketType) -> None:
        """Note a connection of this host's own making, which ends with its process."""
        self._sockets[sock] = None
