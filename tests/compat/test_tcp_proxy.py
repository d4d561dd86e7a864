"""A cut loses one direction of some clients' connections until it is healed, or resets them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.compat.tcp_proxy import CLIENT_ID_AT, Cut, TcpProxy

SILENT_SECONDS = 0.05


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, proxy: TcpProxy, listener: socket.socket, client_id: bytes) -> list[socket.socket]:
    """Both ends of a connection on which a request of ``client_id`` has arrived."""
    client = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
    server = stack.enter_context(listener.accept()[0])
    request = bytes(CLIENT_ID_AT) + len(client_id).to_bytes(2) + client_id
    client.sendall(request)
    assert server.recv(100) == request
    return [client, server]


def passes(source: socket.socket, sink: socket.socket) -> bool:
    source.sendall(b".")
    sink.settimeout(SILENT_SECONDS)
    try:
        return sink.recv(1) == b"."
    except TimeoutError:
        return False
    finally:
        sink.settimeout(None)


def test_what_a_cut_loses_comes_when_it_is_healed_and_others_lose_nothing(stack):
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    proxy = stack.enter_context(TcpProxy(listener.getsockname()[1]))
    client, server = connected(stack, proxy, listener, b"broker-1")
    other, other_server = connected(stack, proxy, listener, b"broker-2")
    proxy.cut(Cut.ANSWERS, {"broker-1"}.__contains__)
    assert passes(client, server)
    assert not passes(server, client)
    assert passes(other_server, other)
    proxy.heal()
    assert client.recv(1) == b"."
    proxy.cut(Cut.RESET, {"broker-1"}.__contains__)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert passes(other, other_server)
