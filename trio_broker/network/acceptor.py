"""An Acceptor: accepts connections on one listening socket and assigns them to the Processors.

Round robin, skipping a Processor whose queue of new connections is full. Only the last one tried is waited for, so that
one slow Processor does not delay the others, and a flood of connections waits in the kernel's listen queue.

When the process runs out of descriptors or memory, accepting pauses and resumes by itself, with a log line for each,
now and then: at the limit, every connection that closes lets another one in. The socket stays readable meanwhile, so
retrying without a pause would spin.

Source: Kafka's SocketServer.Acceptor.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import trio
from trio.lowlevel import checkpoint, wait_readable

from trio_broker.common.exhaustion import EXHAUSTED, EXHAUSTED_PAUSE_SECONDS
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.concurrency.barrier import run_background
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.connection import Connection
from trio_broker.network.connection_quotas import ConnectionQuotas, plain_address
from trio_broker.network.processor import Processor
from trio_broker.network.request_channel import ConnectionInfo
from trio_broker.runtime.network import Network

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 4
"""Connections accepted between two yields: a quarter of a millisecond. Few, so that requests do not wait behind a burst
of new connections; more than one, because a full listen queue makes the kernel drop SYNs, and a client retries only a
second later."""

Accept: TypeAlias = Callable[[socket.socket], tuple[socket.socket, Any]]
MakeConnection: TypeAlias = Callable[[socket.socket, ConnectionInfo], Connection]


def accept_from(sock: socket.socket) -> tuple[socket.socket, Any]:
    """Accept a connection on ``sock``."""
    return sock.accept()


@attrs.frozen
class Listener:
    """One address to listen on. Port 0 asks the system for a free one; see ``SocketServer.bound_addresses``."""

    name: str
    host: str
    port: int


@attrs.define(eq=False)
class Acceptor:
    """Accepts on ``sock``. ``make_connection`` and ``processors`` come from the server; ``accept`` is for tests.

    ``before_accept`` raises OSError while accepting has to pause.

    ``bound_address`` is the host and port that are listened on, the port as the system gave it.
    """

    listener: Listener
    sock: socket.socket
    config: SocketServerConfig
    quotas: ConnectionQuotas
    processors: Callable[[], Sequence[Processor]]
    make_connection: MakeConnection
    next_connection_id: Callable[[], int]
    throttled_log: LogThrottle
    accept: Accept = accept_from
    before_accept: Callable[[], object] = lambda: None
    bound_address: tuple[str, int] = attrs.field(init=False)
    accepted: int = 0
    _turn: int = 0
    _exhausted: bool = False
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        host, port = self.sock.getsockname()[:2]
        self.bound_address = str(host), int(port)

    async def run(self) -> None:
        """Accept until stopped or cancelled."""
        try:
            with self._scope:
                await run_background(f"acceptor {self.listener.name}", self._accept_always)
        finally:
            self.sock.close()

    async def _accept_always(self) -> None:
        while True:
            await self._accept_one()

    def stop(self) -> None:
        """Accept nothing more: the port refuses connections from now on."""
        self._scope.cancel()
        # Trio must let go of the descriptor before it is closed: the kernel may give its number to the next socket.
        trio.lowlevel.notify_closing(self.sock)
        self.sock.close()

    async def _accept_one(self) -> None:
        """Accept one connection. Whatever fails on the way is logged and ends that connection only."""
        # Accepting is tried before waiting: in a burst the next connection is there already, and each wait costs a turn
        # of the loop.
        try:
            self.before_accept()
            sock, address = self.accept(self.sock)
        except BlockingIOError:
            await wait_readable(self.sock)
            return
        except OSError as error:
            await self._after_failure(error)
            return
        if self._exhausted:
            self._exhausted = False
            self.throttled_log.info("accepting again", f"accepting on {self.listener.name} again")
        try:
            await self._admit(sock, address)
        except Exception:
            sock.close()
            log.exception("a connection on %s could not be taken", self.listener.name)

    async def _after_failure(self, error: OSError) -> None:
        """Pause if ``error`` lasts; any other error belongs to one connection, which was lost before it was
        accepted."""
        if error.errno not in EXHAUSTED:
            log.debug("a connection on %s was lost before it was accepted: %s", self.listener.name, error)
            await checkpoint()
            return
        if not self._exhausted:
            self._exhausted = True
            self.throttled_log.error("accepting pauses", f"accepting on {self.listener.name} pauses: {error}")
        await trio.sleep(EXHAUSTED_PAUSE_SECONDS)

    async def _admit(self, sock: socket.socket, address: Any) -> None:
        """Count the connection, prepare its socket, and give it to a Processor."""
        host = plain_address(str(address[0]))
        try:
            if not await self.quotas.admit(host, self.listener.name):
                sock.close()
                await checkpoint()
                return
        except BaseException:
            sock.close()
            raise
        try:
            prepare_socket(sock, self.config)
            local = sock.getsockname()
            info = ConnectionInfo(
                connection_id=self.next_connection_id(),
                listener_name=self.listener.name,
                peer_host=host,
                peer_port=int(address[1]),
                local_host=plain_address(str(local[0])),
                local_port=int(local[1]),
            )
            await self._hand_over(self.make_connection(sock, info))
        except BaseException:
            sock.close()
            self.quotas.release(host, self.listener.name)
            raise
        # Outside: the socket is the Processor's by now, and this task may be cancelled here.
        if self.accepted % ACCEPTS_PER_TURN == 0:
            await checkpoint()
        self.accepted += 1

    async def _hand_over(self, connection: Connection) -> None:
        """Put ``connection`` into the next new_connections with room, waiting for the last one asked."""
        while True:
            processors = self.processors()
            for asked in range(1, len(processors) + 1):
                self._turn += 1
                new_connections = processors[self._turn % len(processors)].new_connections
                try:
                    if asked < len(processors):
                        new_connections.send_nowait(connection)
                    else:
                        await new_connections.send(connection)
                except trio.WouldBlock:
                    continue
                except (trio.ClosedResourceError, trio.BrokenResourceError):
                    break  # That Processor retired during the wait: read the current list again.
                else:
                    return


def listen(listener: Listener, config: SocketServerConfig, network: Network) -> socket.socket:
    """A listening, non-blocking socket for ``listener``.

    Raises:
        OSError: the address is unknown or taken.
    """
    sock, address = network.stream_socket(listener.host, listener.port)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if config.socket_receive_buffer_bytes > 0:
            # Before listening, since the window scale is agreed on in the handshake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(config.socket_listen_backlog_size)
    except BaseException:
        sock.close()
        raise
    return sock


def prepare_socket(sock: socket.socket, config: SocketServerConfig) -> None:
    """Set the options of an accepted socket. Keepalive finds clients whose machine vanished, as in Kafka."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if config.socket_send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
