"""The admin server as one task of the broker's nursery: binds, then keeps an HTTP server running until it
is stopped.

It promises that no request and no bug in the HTTP server can end the broker: hypercorn 0.18 lets exceptions of its
protocol libraries out of a connection, one malformed upgrade request is enough, and in Trio an exception cancels the
nursery it comes out of. Two fences hold that: a guard around every connection (``guard.py``), and the supervisor here,
which starts the server again on a duplicate of the listening socket. Connections that arrive in between wait in the
backlog, so the port never closes. KeyboardInterrupt and Trio's Cancelled pass through both.

Hypercorn, Starlette, Jinja2 and the app over them are loaded at the first connection, in a thread: a broker whose page
nobody opens starts faster and is smaller without them, and clients are served meanwhile.

Without a file of tokens there is no login, and the server refuses to listen anywhere but on loopback.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from broker_admin.tokens import AdminTokens, TokenFileError, read_or_make_tokens
from trio_broker.common.host_port import host_port
from trio_broker.concurrency.cancel_once import cancel_once

if TYPE_CHECKING:
    from broker_admin.starting_broker import StartingBroker
    from broker_admin.view import BrokerView

log = logging.getLogger(__name__)

LISTEN_BACKLOG = 64
"""Connections the kernel holds for us while the loop is busy or the server is started again."""

RESTART_PAUSE_SECONDS = 0.2
"""Between a server's death and the next one: long enough not to spin, short enough to go unnoticed."""


NewContext: TypeAlias = Callable[[], ssl.SSLContext | None]

ServeApp: TypeAlias = Callable[[socket.socket, trio.Event, Callable[[], object], NewContext], Awaitable[None]]
"""``guard.serve_connections`` with its app."""


def no_tls() -> ssl.SSLContext | None:
    """What a server without TLS shakes hands by."""
    return None


class AdminListenerError(Exception):
    """The admin address cannot be served; the text is one clear line for the command that starts the broker."""


@attrs.frozen
class AdminAddress:
    """Where the admin server really listens, by HTTPS or not; the port is the one picked when 0 was asked for."""

    host: str
    port: int
    is_secure: bool = False

    @property
    def url(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{host_port(self.host, self.port)}/"


async def serve_admin(
    broker: BrokerView | StartingBroker,
    host: str,
    port: int,
    *,
    allowed_hosts: Iterable[str] = (),
    token_file: PurePath | None = None,
    tls: NewContext = no_tls,
    asks_authorizer: bool = False,
    stopping: trio.Event | None = None,
    before_accept: Callable[[], object] = lambda: None,
    task_status: trio.TaskStatus[AdminAddress] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``broker`` over HTTP until ``stopping`` is set or the task is cancelled; reports the ``AdminAddress``.

    ``allowed_hosts`` are further names by which browsers may call the server (behind a proxy, say). With a
    ``token_file``, which is made if there is none, callers have to log in. Where the broker ``asks_authorizer``, its
    users may do so as well, and who has not is asked for rights (``logins.py``). ``tls`` is asked at each connection,
    so that renewed keys count; what it has at the start decides whether there is HTTPS. On ``stopping`` streams end
    and requests under way have one second; a cancellation ends everything at once. ``before_accept`` raises OSError
    while accepting has to pause.

    Raises:
        AdminListenerError: the address cannot be bound, or is not loopback and there is no
            ``token_file``; or that file cannot be used.
    """
    tokens = None if token_file is None else tokens_of(Path(token_file))
    listening = await bind_listener(host, port, has_login=tokens is not None, is_secure=tls() is not None)
    stop = stopping if stopping is not None else trio.Event()
    with listening:
        bound_host, bound_port = listening.getsockname()[:2]
        task_status.started(AdminAddress(bound_host, bound_port, is_secure=tls() is not None))
        serve_app: ServeApp | None = None

        async def serve() -> None:
            nonlocal serve_app
            if serve_app is None:
                await first_connection(listening, stop)
                if stop.is_set():
                    return
                hosts = (host, bound_host, *allowed_hosts)
                load = partial(load_app, broker, tokens, asks_authorizer, hosts, stop)
                serve_app = await trio.to_thread.run_sync(load)
            # A duplicate for each attempt: the server closes the one it gets, and the port stays open meanwhile.
            await serve_app(listening.dup(), stop, before_accept, tls)

        await supervise(serve, stop)


async def first_connection(listening: socket.socket, stop: trio.Event) -> None:
    """Return when somebody has connected to ``listening``, or at ``stop``."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_once, stop, nursery.cancel_scope)
        await trio.lowlevel.wait_readable(listening)
        nursery.cancel_scope.cancel()


def load_app(
    broker: BrokerView | StartingBroker,
    tokens: AdminTokens | None,
    asks_authorizer: bool,
    allowed_hosts: Iterable[str],
    stop: trio.Event,
) -> ServeApp:
    """Return what serves the app over ``broker``; imports it and the HTTP server, which takes half a second."""
    from broker_admin.app import create_app
    from broker_admin.guard import serve_connections
    from broker_admin.logins import Logins

    logins = Logins(tokens, asks_authorizer) if tokens is not None or asks_authorizer else None
    return partial(serve_connections, create_app(broker, allowed_hosts=allowed_hosts, stopping=stop, logins=logins))


def tokens_of(path: Path) -> AdminTokens:
    """The tokens in the file.

    Raises:
        AdminListenerError: it cannot be used.
    """
    is_new = not path.exists()
    try:
        tokens = read_or_make_tokens(path)
    except TokenFileError as error:
        raise AdminListenerError(f"admin.token.file: {error}") from error
    if is_new:
        log.info("admin.token.file: %s was made, with a new token for each role", path)
    return tokens


async def bind_listener(host: str, port: int, *, has_login: bool, is_secure: bool) -> socket.socket:
    """Return a listening socket on ``host`` and ``port``; ``host`` may be a name, of which the first address counts."""
    try:
        # PASSIVE without a host gives the wildcard address, which the check for loopback below then refuses.
        found = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        if not ipaddress.ip_address(address[0]).is_loopback:
            exposed = f"admin.listener={host}:{port} is open to other machines"
            if not has_login:
                raise AdminListenerError(
                    f"{exposed}, and the admin server has no login: use a loopback address, or set admin.token.file"
                )
            if not is_secure:
                log.warning("%s: tokens and sessions cross the network unencrypted unless a proxy adds TLS", exposed)
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(LISTEN_BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise AdminListenerError(f"admin.listener={host}:{port} cannot be used: {error.strerror or error}") from error
    return listening


async def supervise(serve: Callable[[], Awaitable[None]], stop: trio.Event) -> None:
    """Run ``serve`` again whenever it ends by an exception, until ``stop`` is set."""
    while not stop.is_set():
        try:
            await serve()
        # Cancelled and KeyboardInterrupt pass. Trio would end the broker's nursery by any other exception.
        except* Exception:
            log.exception("the admin server ended by an exception; starting it again")
        if not stop.is_set():
            with trio.move_on_after(RESTART_PAUSE_SECONDS):
                await stop.wait()
