"""Connections of the real network, and the reason where there is none."""

from __future__ import annotations

import errno

import pytest
import trio

from tests.waits import fail_after
from trio_broker.runtime.network import RealNetwork

HOST = "127.0.0.1"
WAIT_SECONDS = 20


async def test_a_connection_carries_bytes():
    [listener] = await trio.open_tcp_listeners(0, host=HOST)
    with fail_after(WAIT_SECONDS):
        async with (
            listener,
            await RealNetwork().connect(HOST, listener.socket.getsockname()[1]) as stream,
            await listener.accept() as accepted,
        ):
            await stream.send_all(b"request")
            assert await accepted.receive_some() == b"request"


async def test_a_port_that_nobody_listens_on_is_refused():
    [listener] = await trio.open_tcp_listeners(0, host=HOST)
    async with listener:
        port = listener.socket.getsockname()[1]
    with fail_after(WAIT_SECONDS), pytest.raises(OSError, match="Connection refused") as raised:
        await RealNetwork().connect(HOST, port)
    assert raised.value.errno == errno.ECONNREFUSED


@pytest.mark.parametrize(("host", "port"), [("a..b", 9092), (HOST, 70_000)])
async def test_an_address_that_cannot_be_one_is_an_error_of_the_system(host: str, port: int):
    with fail_after(WAIT_SECONDS), pytest.raises(OSError) as raised:  # noqa: PT011 (the text is the system's)
        await RealNetwork().connect(host, port)
    assert raised.value.strerror
