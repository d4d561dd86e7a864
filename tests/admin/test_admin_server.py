"""Claims about the HTTP server over real sockets: it cannot be killed from outside, and it ends on request."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from starlette.types import Receive, Scope, Send

import broker_admin.guard
import broker_admin.server
from broker_admin.app import create_app
from broker_admin.guard import ConnectionGuard, serve_listener
from broker_admin.server import AdminAddress, AdminListenerError, serve_admin, supervise
from tests.admin.fake_broker import FakeBroker
from tests.waits import fail_after

WAIT_SECONDS = 20.0
"""How long a test waits for what should take milliseconds."""

READ_BYTES = 1 << 16

UPGRADES = {
    "websocket": b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    # SETTINGS_INITIAL_WINDOW_SIZE (4) with the value 0: no byte of an answer could be sent.
    "h2c": b"HTTP2-Settings: AAQAAAAA\r\n",
}
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
async def address(fake: FakeBroker, nursery: trio.Nursery) -> AdminAddress:
    """A server that runs in the test's own nursery, as it does in the broker's: if it dies, the test dies."""
    started: AdminAddress = await nursery.start(serve_admin, fake.view, "127.0.0.1", 0)
    return started


async def exchange(address: AdminAddress, request: bytes) -> bytes:
    """Send ``request`` and return all that comes until the server closes the connection."""
    with fail_after(WAIT_SECONDS):
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            answer = bytearray()
            try:
                await stream.send_all(request)
                while chunk := await stream.receive_some(READ_BYTES):
                    answer += chunk
            except trio.BrokenResourceError:
                pass  # Dropped connections may end in a reset.
            return bytes(answer)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


async def assert_it_still_answers(address: AdminAddress) -> None:
    answer = await exchange(address, get("/healthz"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"ok\n")


async def test_the_port_that_was_picked_is_reported(address: AdminAddress) -> None:
    assert address.port != 0
    assert address.url == f"http://127.0.0.1:{address.port}/"
    await assert_it_still_answers(address)


@pytest.mark.parametrize("protocol", UPGRADES)
async def test_no_other_protocol_than_http_1_is_changed_to(address: AdminAddress, protocol: str) -> None:
    head = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: {protocol}\r\n"
    answer = await exchange(address, head.encode() + UPGRADES[protocol] + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"ok\n")


async def test_an_exception_of_one_connection_ends_no_other(
    address: AdminAddress, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="broker_admin.guard")
    async with await trio.open_tcp_stream(address.host, address.port) as bystander:
        assert (await exchange(address, HTTP2_PREFACE)).startswith(b"HTTP/1.1 505")
        await assert_it_still_answers(address)
        with fail_after(WAIT_SECONDS):
            await bystander.send_all(get("/readyz"))
            assert (await bystander.receive_some(READ_BYTES)).startswith(b"HTTP/1.1 200")
    [line] = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert line.endswith("dropped: RemoteProtocolError: HTTP/2.0 is not served")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 500,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
        HTTP2_PREFACE + b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%ff\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00\x00\x00\x15\x00\x12\x00\x00\x00\x00\x00\x01\x00\x0bkafka-python",  # a client of Kafka's
    ],
    ids=range(8),
)
async def test_garbage_ends_one_connection_and_no_more(address: AdminAddress, garbage: bytes) -> None:
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(garbage)
        await stream.send_eof()
        with fail_after(WAIT_SECONDS):
            try:
                while await stream.receive_some(READ_BYTES):
                    pass
            except trio.BrokenResourceError:
                pass
    await assert_it_still_answers(address)


async def test_a_body_that_is_too_large_is_refused(address: AdminAddress, fake: FakeBroker) -> None:
    body = b'{"num.io.threads": "' + b"1" * 70_000 + b'"}'
    head = (
        "PATCH /api/v1/config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Requested-With: test\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = await exchange(address, head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 413")
    assert fake.journal == []


async def test_a_change_over_the_wire_is_made_and_answered(address: AdminAddress, fake: FakeBroker) -> None:
    body = b'{"num.io.threads": 12}'
    head = (
        "PATCH /api/v1/config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Requested-With: curl\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = await exchange(address, head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 200")
    assert fake.dynamic == {"num.io.threads": "12"}
    assert fake.journal[0].changed_by == "http (curl) from 127.0.0.1"


async def test_events_stream_over_the_wire_and_end_with_the_server(fake: FakeBroker, nursery: trio.Nursery) -> None:
    stopping, stopped = trio.Event(), trio.Event()

    async def run(task_status: trio.TaskStatus[AdminAddress]) -> None:
        await serve_admin(fake.view, "127.0.0.1", 0, stopping=stopping, task_status=task_status)
        stopped.set()

    address = await nursery.start(run)
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(get("/api/v1/brokers/1/events"))
        await receive_until(stream, b"retry:")
        fake.tick()
        await receive_until(stream, b"event: sample")
        with fail_after(WAIT_SECONDS):
            stopping.set()
            while await stream.receive_some(READ_BYTES):
                pass
            await stopped.wait()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(address.host, address.port)


async def receive_until(stream: trio.SocketStream, wanted: bytes) -> None:
    received = b""
    with fail_after(WAIT_SECONDS):
        while wanted not in received:
            chunk = await stream.receive_some(READ_BYTES)
            assert chunk, f"ended after {received!r}"
            received += chunk


LARGE_METRICS = b"x" * (64 << 20)
"""More text than any socket buffer holds."""


async def test_a_peer_that_does_not_read_cannot_keep_the_server_from_ending() -> None:
    """Hypercorn shields its sends from cancellation; without the guard's abort this waits for the send to time out."""
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_admin, FakeBroker(metrics_text=LARGE_METRICS).view, "127.0.0.1", 0)
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(get("/metrics"))
            await receive_until(stream, b"HTTP/1.1 200")
            cancelled_at = trio.current_time()
            nursery.cancel_scope.cancel()
    assert trio.current_time() - cancelled_at < broker_admin.guard.SEND_TIMEOUT_SECONDS / 2


async def test_a_peer_that_does_not_read_is_given_up(mock_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_admin, FakeBroker(metrics_text=LARGE_METRICS).view, "127.0.0.1", 0)
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(get("/metrics"))
            await receive_until(stream, b"HTTP/1.1 200")
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(broker_admin.guard.SEND_TIMEOUT_SECONDS + 1)
            received = 0
            try:
                while chunk := await stream.receive_some(READ_BYTES):
                    received += len(chunk)
            except trio.BrokenResourceError:
                pass
        assert received < len(LARGE_METRICS)
        await assert_it_still_answers(address)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("limit", ["MAX_CONNECTIONS", "MAX_CONNECTIONS_PER_NETWORK"])
async def test_connections_beyond_the_limit_are_closed_at_once_where_none_is_idle(
    monkeypatch: pytest.MonkeyPatch, address: AdminAddress, limit: str
) -> None:
    monkeypatch.setattr(broker_admin.guard, limit, 1)
    async with await trio.open_tcp_stream(address.host, address.port) as first:
        await first.send_all(get("/api/v1/brokers/1/events"))
        await receive_until(first, b"retry:")
        assert await exchange(address, b"") == b""


@pytest.mark.parametrize("limit", ["MAX_CONNECTIONS", "MAX_CONNECTIONS_PER_NETWORK"])
async def test_the_oldest_connection_that_asks_nothing_gives_way(
    monkeypatch: pytest.MonkeyPatch, address: AdminAddress, limit: str
) -> None:
    monkeypatch.setattr(broker_admin.guard, limit, 3)
    async with (
        await trio.open_tcp_stream(address.host, address.port) as reading,
        await trio.open_tcp_stream(address.host, address.port) as half_sent,
        await trio.open_tcp_stream(address.host, address.port) as silent,
    ):
        await reading.send_all(get("/api/v1/brokers/1/events"))
        await receive_until(reading, b"retry:")
        await half_sent.send_all(get("/healthz")[:-2])
        await assert_it_still_answers(address)
        assert await half_sent.receive_some(1) == b""
        await silent.send_all(get("/healthz"))
        await receive_until(silent, b"ok\n")


async def test_one_party_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch, address: AdminAddress) -> None:
    monkeypatch.setattr(broker_admin.guard, "MAX_CONNECTIONS_PER_NETWORK", 1)
    networks = iter(["10.0.0.1", "10.0.0.1", "10.0.0.2"])
    monkeypatch.setattr(broker_admin.guard, "network_of", lambda stream: next(networks))
    async with await trio.open_tcp_stream(address.host, address.port) as first:
        await first.send_all(get("/api/v1/brokers/1/events"))
        await receive_until(first, b"retry:")
        assert await exchange(address, b"") == b""
        await assert_it_still_answers(address)


async def test_connections_that_come_too_often_wait(
    monkeypatch: pytest.MonkeyPatch, fake: FakeBroker, mock_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(broker_admin.guard, "MAX_ACCEPTED_PER_SECOND", 2)
    guard = ConnectionGuard(create_app(fake.view))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(serve_listener, guard, listener, nursery)
        streams = [await trio.testing.open_stream_to_socket_listener(listener) for _ in range(4)]
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(guard.streams) == 3
        mock_clock.jump(0.5)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(guard.streams) == 4
        for stream in streams:
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_a_head_that_trickles_in_has_a_deadline(fake: FakeBroker, mock_clock: trio.testing.MockClock) -> None:
    guard = ConnectionGuard(create_app(fake.view))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        async with await trio.testing.open_stream_to_socket_listener(listener) as stream:
            nursery.start_soon(guard.serve, await listener.accept())
            for byte in b"GET":
                await stream.send_all(bytes([byte]))
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert guard.streams
                mock_clock.jump(broker_admin.guard.IDLE_SECONDS / 3)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not guard.streams
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("request_bytes", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_a_connection_whose_peer_is_gone_is_not_kept(
    fake: FakeBroker, mock_clock: trio.testing.MockClock, request_bytes: bytes
) -> None:
    """Time stands still here: hypercorn's keep-alive time, which such a connection would be kept for, does not pass."""
    guard = ConnectionGuard(create_app(fake.view))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        async with await trio.testing.open_stream_to_socket_listener(listener) as stream:
            nursery.start_soon(guard.serve, await listener.accept())
            await stream.send_all(request_bytes)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not guard.streams


async def test_a_connection_whose_request_was_refused_before_its_body_came_ends() -> None:
    """The body is larger than what the sockets hold, and its sender waits until all of it is taken."""
    refuse = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse.wait()
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def send_all_of_it(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n")
            await stream.send_all(bytes(100_000_000))

    guard = ConnectionGuard(app)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        stream = await trio.testing.open_stream_to_socket_listener(listener)
        async with stream:
            nursery.start_soon(send_all_of_it, stream)
            nursery.start_soon(close_after, guard, await listener.accept())
            # Hypercorn has read as much of it as it reads ahead of the app.
            await trio.testing.wait_all_tasks_blocked(0.05)
            refuse.set()
            await receive_until(stream, b"413")
            with fail_after(WAIT_SECONDS):
                while guard.streams:  # noqa: ASYNC110 (what is waited for is hypercorn, which sets no event)
                    await trio.sleep(0.001)


async def close_after(guard: ConnectionGuard, stream: trio.SocketStream) -> None:
    """What Trio's accept loop does with a connection."""
    async with stream:
        await guard.serve(stream)


async def test_a_server_that_dies_is_started_again_on_the_same_port(
    monkeypatch: pytest.MonkeyPatch, fake: FakeBroker, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    serve_listener = broker_admin.guard.serve_listener
    deaths = iter([RuntimeError("the first server dies"), OSError("the second one, too"), None])

    async def serve_or_die(guard: ConnectionGuard, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        if death := next(deaths):
            raise death
        await serve_listener(guard, listener, connections)

    monkeypatch.setattr(broker_admin.guard, "serve_listener", serve_or_die)
    monkeypatch.setattr(broker_admin.server, "RESTART_PAUSE_SECONDS", 0.001)
    address = await nursery.start(serve_admin, fake.view, "127.0.0.1", 0)
    await assert_it_still_answers(address)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


async def test_an_interrupt_is_not_taken_for_a_death() -> None:
    async def interrupted() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await supervise(interrupted, trio.Event())


async def test_an_interrupt_among_deaths_still_comes_through() -> None:
    async def both() -> None:
        await trio.lowlevel.checkpoint()
        raise BaseExceptionGroup("", [RuntimeError("a death"), KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup) as caught:
        await supervise(both, trio.Event())
    assert caught.group_contains(KeyboardInterrupt)
    assert not caught.group_contains(RuntimeError)


async def test_an_address_that_is_taken_is_shown_in_one_line(fake: FakeBroker, address: AdminAddress) -> None:
    with pytest.raises(
        AdminListenerError, match=rf"^admin.listener=127.0.0.1:{address.port} cannot be used: .*in use$"
    ):
        await serve_admin(fake.view, "127.0.0.1", address.port)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
async def test_addresses_others_can_reach_are_refused_without_a_login(
    fake: FakeBroker, nursery: trio.Nursery, host: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with pytest.raises(AdminListenerError, match=r"no login: .* set admin\.token\.file$"):
        await serve_admin(fake.view, host, 0)
    if host == "0.0.0.0":
        address = await nursery.start(partial(serve_admin, fake.view, host, 0, token_file=tmp_path / "tokens"))
        assert address.port != 0
        [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "unencrypted" in warning
        status = await exchange(
            address, b"GET /api/v1/brokers/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert status.startswith(b"HTTP/1.1 401 ")


def test_importing_the_view_and_the_server_imports_no_http_server() -> None:
    """The broker's start-up time counts."""
    heavy = ["hypercorn", "starlette", "jinja2", "cattrs", "prometheus_client"]
    program = f"import sys, broker_admin.view, broker_admin.server; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


HEAVY = ["hypercorn", "starlette", "jinja2", "h11", "asyncio", "prometheus_client"]
"""What only an open page, a scrape or a webhook needs."""


def test_importing_what_shows_a_broker_imports_no_http_server() -> None:
    """The broker's start-up time counts, and the memory of one whose page nobody opens."""
    program = (
        "import sys, trio_broker.broker, trio_broker.broker_view.live, broker_admin.server, broker_admin.forwarded_app;"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_server_is_loaded_at_the_first_connection() -> None:
    """And a stop before that loads nothing."""
    program = r"""
import sys, trio, trio.testing
from functools import partial
from broker_admin.server import serve_admin
from broker_admin.starting_broker import StartingBroker

def loaded():
    return [m for m in ("hypercorn", "starlette", "jinja2") if m in sys.modules]

async def main():
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_admin, StartingBroker(None), "127.0.0.1", 0, stopping=stop))
        await trio.testing.wait_all_tasks_blocked()
        stop.set()
    print(loaded())
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_admin, StartingBroker(None), "127.0.0.1", 0)
        await trio.testing.wait_all_tasks_blocked()
        print(loaded())
        stream = await trio.open_tcp_stream(address.host, address.port)
        await stream.send_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        print((await stream.receive_some())[:12].decode(), loaded())
        nursery.cancel_scope.cancel()

trio.run(main)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["[]", "[]", "HTTP/1.1 200 ['hypercorn', 'starlette', 'jinja2']"]
