"""The network as a broker sees it: sockets to listen on, and connections to other brokers and to other servers.

What an accepted socket does, and knows of what is unread, is the kernel's in both worlds: a simulated one has only
another way to its peer.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import trio

from trio_broker.runtime import descriptors
from trio_broker.runtime.timeouts import CONNECT_SECONDS

Connect: TypeAlias = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Opens a connection to a host and port; raises OSError. ``Network.connect`` is one."""


class Network(Protocol):
    """Makes sockets that can be bound."""

    def max_connections(self) -> int:
        """How many connections leave enough descriptors for files and everything else."""
        ...

    def stream_socket(self, host: str, port: int) -> tuple[socket.socket, Any]:
        """Return a socket for ``host``, empty for all addresses of this machine, and the address to bind it to.

        Raises:
            OSError: the host is unknown.
        """
        ...

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Return a connection to a server.

        Raises:
            OSError: the host is unknown, or has not taken it within ``CONNECT_SECONDS``; ``strerror`` says why.
        """
        ...


ALL_ADDRESSES = "::"
"""Of both families: a socket that is bound to it takes IPv4 as well by default."""


def serves_both_families() -> bool:
    """Whether one socket can take connections of IPv6 and of IPv4; a machine may have no IPv6."""
    if not socket.has_dualstack_ipv6():
        return False
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((ALL_ADDRESSES, 0))
        except OSError:
            return False
    return True


def unread_bytes(sock: socket.socket) -> int:
    """How many bytes the peer of ``sock`` has sent and nobody has read (SIOCINQ); 0 of one that has ended."""
    count = bytearray(4)
    try:
        fcntl.ioctl(sock, termios.FIONREAD, count)
    except (OSError, ValueError):
        return 0
    return int.from_bytes(count, sys.byteorder)


class RealNetwork:
    """TCP on the addresses of this machine."""

    def max_connections(self) -> int:
        return descriptors.max_connections()

    def stream_socket(self, host: str, port: int) -> tuple[socket.socket, Any]:
        if not host and serves_both_families():
            host = ALL_ADDRESSES
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.socket(family, kind, protocol), address

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return await trio.open_tcp_stream(host, port)
        except trio.TooSlowError:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {CONNECT_SECONDS:g} s") from None
        # OverflowError: a port above 65535, as a broken broker may announce. UnicodeError: a host that is no name.
        except (OSError, OverflowError, UnicodeError) as error:
            raise _connect_error(error) from None


def _connect_error(error: Exception) -> OSError:
    """Return why a server was not reached. Trio's own error has the errors of its attempts as a cause only."""
    cause = error.__cause__ or error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[-1]
    return OSError(getattr(cause, "errno", None) or errno.EHOSTUNREACH, getattr(cause, "strerror", None) or str(cause))
