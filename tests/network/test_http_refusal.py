"""HTTP on a Kafka port: one answer that names the admin page, and the end of the connection."""

from __future__ import annotations

import pytest

ADMIN_URL = "http://127.0.0.1:9644/"


async def everything_from(client) -> bytes:
    """What the server sends until it closes."""
    received = bytearray()
    while more := await client.stream.receive_some():
        received += more
    return bytes(received)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_an_http_request_is_answered_once_with_the_address_of_the_admin_page(serving, caplog, method):
    async with serving() as harness:
        harness.server.name_admin_page(ADMIN_URL)
        client = await harness.connect()
        await client.stream.send_all(
            f"{method} / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n{method} / HTTP/1.1\r\n".encode()
        )
        await client.stream.send_eof()
        head, _, body = (await everything_from(client)).decode().partition("\r\n\r\n")
        await harness.until(lambda: "not Kafka's protocol: an HTTP request" in caplog.text)
    assert head.startswith("HTTP/1.1 400 Bad Request\r\n")
    assert f"\r\nContent-Length: {len(body)}\r\n" in head
    assert head.endswith("\r\nConnection: close")
    assert body == f"This port speaks Kafka's protocol, not HTTP; the admin page is at {ADMIN_URL}\n"


async def test_without_an_admin_page_the_answer_says_so(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        await client.stream.send_eof()
        assert b"this broker has no admin page" in await everything_from(client)


async def test_a_head_request_gets_no_body(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.stream.send_all(b"HEAD / HTTP/1.1\r\n\r\n")
        await client.stream.send_eof()
        assert (await everything_from(client)).endswith(b"\r\n\r\n")


async def test_a_client_that_goes_on_sending_is_closed_all_the_same(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.stream.send_all(b"POST / HTTP/1.1\r\n\r\n" + bytes(1_000_000))
        assert (await client.exactly(12)) == b"HTTP/1.1 400"


@pytest.mark.parametrize("first", [b"GRT ", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02"])
async def test_what_is_neither_kafka_nor_http_gets_no_answer(serving, first):
    async with serving() as harness:
        client = await harness.connect()
        await client.stream.send_all(first)
        assert await client.is_closed()


async def test_a_client_that_spoke_kafka_before_gets_no_http(serving):
    async with serving() as harness:
        client = await harness.connect()
        assert await client.ask(1, b"hello") == b"hello"
        await client.stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.is_closed()
