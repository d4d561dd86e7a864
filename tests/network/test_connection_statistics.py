"""What holds a connection back, and which connections failed before they served anybody."""

from __future__ import annotations

import pytest
import trio

from kafka_wire.apis import ApiKey
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.connection_statistics import connection_statistics, stage_of
from trio_broker.network.failed_handshakes import MAX_FAILED_HANDSHAKES
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.statistics import ConnectionStage


def stages(harness) -> list[ConnectionStage]:
    return sorted((stage_of(each) for each in harness.server.connections()), key=list(ConnectionStage).index)


def statistics(harness):
    return [
        connection_statistics(each, now=harness.clock.monotonic(), now_ms=0) for each in harness.server.connections()
    ]


async def held(request: QueuedRequest) -> Answer:
    """Answer nothing until cancelled; the body says in which phase the request waits."""
    if bytes(request.body) == b"sync":
        request.release_handler(RequestPhase.DISK)
    elif bytes(request.body) == b"poll":
        request.release_handler(RequestPhase.PURGATORY)
    await trio.sleep_forever()
    return None


async def test_each_request_is_shown_where_it_stands(serving):
    async with serving(held, num_io_threads=1, queued_max_requests=1) as harness:
        for body in (b"sync", b"poll", b"work", b"next"):
            await (await harness.connect()).send(1, body)
            await harness.until(lambda: stages(harness) and stages(harness)[0] is not ConnectionStage.IDLE)
        await (await harness.connect()).send(1, b"late")
        await harness.connect()
        expected = [
            ConnectionStage.IDLE, ConnectionStage.WAITING_FOR_QUEUE, ConnectionStage.QUEUED, ConnectionStage.HANDLED,
            ConnectionStage.SYNCING, ConnectionStage.DELAYED,
        ]  # fmt: skip
        await harness.until(lambda: stages(harness) == expected)
        [muted] = [each for each in statistics(harness) if each.muted_because is not None]
        assert muted.muted_because == "request queue full"
        assert muted.request == "Metadata"
        assert muted.request_seconds is not None
        assert muted.request_seconds >= 0


async def test_a_large_request_that_waits_for_memory_is_shown(serving):
    large = bytes(200_000)
    async with serving(held, queued_max_request_bytes=100_000) as harness:
        first, second = await harness.connect(), await harness.connect()
        await first.send(1, large)
        await harness.until(lambda: harness.server.memory_pool.held)
        harness.nursery.start_soon(second.send, 1, large)
        await harness.until(lambda: ConnectionStage.WAITING_FOR_MEMORY in stages(harness))
        assert [each.muted_because for each in statistics(harness) if each.muted_because] == ["memory pool"]


async def test_a_response_that_is_not_read_is_shown_until_it_is(serving):
    content = bytes(32 * 1024 * 1024)

    async def answer(request: QueuedRequest) -> Answer:
        return [content]

    async with serving(answer) as harness:
        client = await harness.connect()
        await client.send(1)
        await harness.until(lambda: stages(harness) == [ConnectionStage.WAITING_FOR_READER])
        assert statistics(harness)[0].muted_because == "response not read"
        assert await client.exactly(4 + len(content))
        await harness.until(lambda: stages(harness) == [ConnectionStage.IDLE])
        assert statistics(harness)[0].bytes_out == 4 + len(content)


async def test_requests_of_the_last_second_are_counted_by_the_sweep(serving):
    async with serving() as harness:
        client = await harness.connect()
        for number in range(3):
            await client.ask(number)
        harness.server.sweep()
        assert statistics(harness)[0].requests_per_second == 3
        harness.server.sweep()
        assert statistics(harness)[0].requests_per_second == 0


CLIENT_HELLO = bytes.fromhex("16030100b8010000b40303") + bytes(180)


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (CLIENT_HELLO, "TLS"),
        (b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x00\x00\x00\x03abc", "refused"),
        (b"\x00\x00\x01\x00half of it", "truncated frame"),
    ],
)
async def test_what_is_not_kafka_is_kept_with_its_cause(serving, sent, cause):
    async with serving() as harness:
        client = await harness.connect()
        await client.stream.send_all(sent)
        await client.stream.send_eof()
        await harness.until(harness.server.failed_handshakes.latest_first)
        [failure] = harness.server.failed_handshakes.latest_first()
        assert (failure.cause, failure.listener_name, failure.peer_host) == (cause, "PLAINTEXT", "127.0.0.1")
        assert failure.count == 1


async def test_an_unsupported_version_is_kept_with_the_client_that_sent_it(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.ask(1)
        await client.send(2, api_key=ApiKey.FETCH, version=99)
        assert await client.is_closed()
        [failure] = harness.server.failed_handshakes.latest_first()
        assert (failure.cause, failure.client_id) == ("unsupported version", "tests")
        assert failure.reason == "Fetch version 99 is not served here"


async def test_a_client_that_was_served_and_goes_away_is_no_failure(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.ask(1)
        await client.stream.send_all(b"\x00\x00\x01\x00half of it")
        await client.stream.aclose()
        await harness.until(lambda: harness.server.statistics().connections_closed)
        assert harness.server.failed_handshakes.latest_first() == []


async def test_failures_of_one_host_with_one_cause_are_counted_together(serving):
    async with serving() as harness:
        for _ in range(MAX_FAILED_HANDSHAKES + 1):
            client = await harness.connect()
            await client.stream.send_all(CLIENT_HELLO)
            assert await client.is_closed()
        [failure] = harness.server.failed_handshakes.latest_first()
        assert failure.count == MAX_FAILED_HANDSHAKES + 1
