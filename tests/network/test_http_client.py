"""One request, to servers that answer, and to servers that do not as they should."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from trio_broker.config.alert_config import http_address
from trio_broker.network.http_client import MAX_ANSWER_BYTES, TIMEOUT_SECONDS, HttpError, get, post
from trio_broker.runtime.real_workers import RealWorkers

URL = "http://alerts.example:8080/hook/s3cret?x=1"
SENT = {"Content-Type": "application/json"}

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


async def posted(serve: Serve, url: str = URL) -> str | None:
    """Why a POST to a server that does as ``serve`` says failed, None if it did not."""
    client, server = trio.testing.memory_stream_pair()

    async def connect(host: str, port: int) -> trio.abc.Stream:
        assert (host, port) == ("alerts.example", 8080)
        await trio.lowlevel.checkpoint()
        return client

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server)
        try:
            await post(http_address(url), SENT, b"{}", connect=connect, workers=RealWorkers())
        except HttpError as error:
            return f"{error}"
        finally:
            nursery.cancel_scope.cancel()
    return None


async def got(serve: Serve) -> str:
    """What a server that does as ``serve`` says has, or why it cannot be had."""
    client, server = trio.testing.memory_stream_pair()

    async def connect(host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return client

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server)
        try:
            return (
                await get(
                    http_address("http://keys.example/keys"), connect=connect, workers=RealWorkers(), max_bytes=100
                )
            ).decode()
        except HttpError as error:
            return f"{error}"
        finally:
            nursery.cancel_scope.cancel()


def answering(answer: bytes) -> Serve:
    async def serve(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    return serve


async def test_what_is_sent_is_a_plain_request_for_one_connection():
    received = bytearray()

    async def serve(stream: trio.abc.Stream) -> None:
        while not received.endswith(b"{}"):
            received.extend(await stream.receive_some())
        await stream.send_all(b"HTTP/1.1 204 No Content\r\n\r\n")

    assert await posted(serve) is None
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /hook/s3cret?x=1 HTTP/1.1",
        b"Host: alerts.example:8080",
        b"Connection: close",
        b"Content-Length: 2",
        b"Content-Type: application/json",
    ]
    assert body == b"{}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n", None),
        (b"HTTP/1.1 302 Found\r\nLocation: /s3cret\r\n\r\n", "answered with status 302: redirects are not followed"),
        (b"HTTP/1.1 500 s3cret\r\n\r\ns3cret", "answered with status 500"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is not HTTP, or too long"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2 * MAX_ANSWER_BYTES, "the answer is not HTTP, or too long"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_ANSWER_BYTES, "the answer is not HTTP, or too long"),
    ],
)
async def test_only_a_2xx_status_within_the_bound_counts_and_no_reason_repeats_what_was_said(answer, reason):
    assert await posted(answering(answer)) == reason


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkeys", "keys"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nke\r\n2\r\nys\r\n0\r\n\r\n", "keys"),
        (b"HTTP/1.1 200 OK\r\n\r\nkeys", "keys"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nkeys", "the answer is not HTTP, or too long"),
        (b"HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n", "answered with status 301: redirects are not followed"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2 * MAX_ANSWER_BYTES, "the answer is not HTTP, or too long"),
    ],
)
async def test_what_is_asked_for_comes_whole_or_not_at_all(answer, expected):
    async def serve(stream: trio.abc.Stream) -> None:
        received = await stream.receive_some()
        assert received.startswith(b"GET /keys HTTP/1.1\r\n")
        await stream.send_all(answer)
        await stream.aclose()

    assert await got(serve) == expected


async def test_what_is_asked_for_and_comes_slowly_costs_its_timeout(autojump_clock):
    async def serve(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        while True:
            await stream.send_all(b"k")
            await trio.sleep(0.9)

    began = trio.current_time()
    assert await got(serve) == "no answer within 10 s"
    assert trio.current_time() - began == pytest.approx(TIMEOUT_SECONDS)


async def test_a_receiver_that_hangs_costs_its_timeout(autojump_clock):
    async def hang(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    began = trio.current_time()
    assert await posted(hang) == "no answer within 10 s"
    assert trio.current_time() - began == pytest.approx(TIMEOUT_SECONDS)


async def test_a_receiver_that_sends_without_an_end_is_read_to_the_bound():
    sent = 0

    async def serve(stream: trio.abc.Stream) -> None:
        nonlocal sent
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send_all(b"x" * 1000)
            await trio.testing.wait_all_tasks_blocked()
            sent += 1000

    assert await posted(serve) is None
    assert sent <= 2 * MAX_ANSWER_BYTES


async def test_a_body_that_comes_slowly_does_not_make_a_failure_of_a_status(autojump_clock):
    async def serve(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.9)

    assert await posted(serve) is None


async def test_the_system_s_authorities_are_read_in_a_thread_each_time(monkeypatch):
    """Clients of the broker would wait for that, tens of milliseconds; a broker that runs for years sees new ones."""
    monkeypatch.setattr("ssl.create_default_context", lambda: read_in.append(threading.current_thread()))
    read_in: list[threading.Thread] = []

    async def refuse(host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError(111, "Connection refused")

    for _ in range(2):
        with pytest.raises(HttpError):
            await get(http_address("https://keys.example/"), connect=refuse, workers=RealWorkers(), max_bytes=100)
    assert len(read_in) == 2
    assert threading.current_thread() not in read_in


async def test_a_connection_that_is_refused_or_ends_is_a_reason():
    async def end(stream: trio.abc.Stream) -> None:
        received = b""
        while not received.endswith(b"{}"):
            received += await stream.receive_some()
        await stream.aclose()

    assert await posted(end) == "the answer is not HTTP, or too long"

    async def refuse(host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(HttpError, match="cannot connect: Connection refused"):
        await post(http_address(URL), SENT, b"{}", connect=refuse, workers=RealWorkers())


@pytest.mark.parametrize(
    ("text", "host_header", "target"),
    [
        ("https://hooks.example", "hooks.example", "/"),
        ("https://hooks.example:443/a?b=c", "hooks.example", "/a?b=c"),
        ("http://[::1]:9000/x", "[::1]:9000", "/x"),
    ],
)
def test_a_url_says_where_a_request_goes(text, host_header, target):
    address = http_address(text)
    assert (address.host_header, address.target) == (host_header, target)
    assert "b=c" not in repr(address)


@pytest.mark.parametrize(
    "text",
    ["hooks.example", "ftp://a/b", "http://", "http://u:p@a/", "http://a/#b", "http://a:99999/", "http://a:0/",
     "http://a/b c", "http://a/\r\nX: y", "http://[::1/", "http://ä/"],
)  # fmt: skip
def test_what_is_no_url_of_a_server_is_refused_without_repeating_it(text):
    with pytest.raises(ValueError, match=r"^it is not a URL") as caught:
        http_address(text)
    assert text not in f"{caught.value}"
