"""Requests that wait unread behind others of their connection: what is counted, and when it is a backlog."""

from __future__ import annotations

import os
import socket
from time import perf_counter_ns

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from tests.network.conftest import Harness, echo
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network import unread_requests
from trio_broker.network.connection_statistics import connection_statistics
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.statistics import ConnectionStage
from trio_broker.network.unread_bytes import BACKLOG_SECONDS


@attrs.define
class Gate:
    """Answers as many requests as were let through; others wait, as for a sync unless ``phase`` is another."""

    phase: RequestPhase = RequestPhase.DISK
    places: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(0))

    async def handle(self, request: QueuedRequest) -> Answer:
        request.release_handler(self.phase)
        await self.places.acquire()
        return await echo(request)


def statistics(harness):
    [connection] = harness.server.connections()
    return connection_statistics(connection, now=harness.clock.monotonic(), now_ms=0)


def look(harness) -> None:
    """Let a second pass on the server's clock, and take its sample."""
    harness.clock.advance(1.0)
    harness.server.sample(perf_counter_ns())


def unread_now(harness: Harness) -> int:
    """The unread bytes of a new sample, at the same time of the server's clock."""
    harness.server.sample(perf_counter_ns())
    return harness.server.statistics().unread_bytes


async def sent_at_once(harness, frame_of, count: int, body: bytes = b"x" * 100, api_key: int = ApiKey.PRODUCE) -> int:
    """Have a client send ``count`` requests without waiting for an answer; returns the bytes behind the first one."""
    client = await harness.connect()
    frames = [frame_of(number, body, api_key=api_key) for number in range(count)]
    await client.stream.send_all(b"".join(frames))
    behind = sum(map(len, frames[1:]))
    await harness.until(lambda: unread_now(harness) == behind and harness.server.handlers.statistics().delayed)
    return behind


async def test_what_is_sent_behind_a_request_in_flight_is_unread(serving, frame_of):
    gate = Gate()
    async with serving(gate.handle) as harness:
        behind = await sent_at_once(harness, frame_of, 1000)
        look(harness)
        assert statistics(harness).unread_bytes == harness.server.statistics().unread_bytes == behind
        for _ in range(1000):
            gate.places.release()
        await harness.until(lambda: statistics(harness).requests == 1000)
        look(harness)
        assert statistics(harness).unread_bytes == harness.server.statistics().unread_bytes == 0


async def test_requests_that_wait_at_every_look_for_seconds_are_a_backlog_until_they_are_served(serving, frame_of):
    gate = Gate()
    async with serving(gate.handle) as harness:
        behind = await sent_at_once(harness, frame_of, 3)
        look(harness)
        assert (statistics(harness).stage, harness.server.statistics().backlog) == (ConnectionStage.SYNCING, None)
        for _ in range(int(BACKLOG_SECONDS)):
            look(harness)
        shown, backlog = statistics(harness), harness.server.statistics().backlog
        assert (shown.stage, shown.muted_because) == (ConnectionStage.UNREAD, "its own requests ahead")
        assert (shown.request, shown.unread_bytes) == ("Produce", behind)
        assert (backlog.client_id, backlog.connections, backlog.unread_bytes) == ("tests", 1, behind)
        for _ in range(3):
            gate.places.release()
        await harness.until(lambda: statistics(harness).requests == 3)
        look(harness)
        assert (statistics(harness).stage, harness.server.statistics().backlog) == (ConnectionStage.IDLE, None)


async def test_how_long_the_next_request_will_wait_is_known_from_what_is_read_in_a_second(serving, frame_of):
    gate = Gate()
    async with serving(gate.handle) as harness:
        await sent_at_once(harness, frame_of, 100)
        size = len(frame_of(0, b"x" * 100, api_key=ApiKey.PRODUCE))
        assert statistics(harness).unread_wait_seconds is None
        for second in range(10):
            gate.places.release()
            gate.places.release()
            await harness.until(lambda served=2 * second + 3: statistics(harness).requests == served)
            look(harness)
        shown, backlog = statistics(harness), harness.server.statistics().backlog
        assert shown.unread_bytes == 79 * size
        assert shown.unread_wait_seconds == backlog.wait_seconds == pytest.approx(79 / 2)


async def test_how_long_is_not_known_while_nothing_is_read(serving, frame_of):
    async with serving(Gate().handle) as harness:
        await sent_at_once(harness, frame_of, 2)
        for _ in range(10):
            look(harness)
        assert harness.server.statistics().backlog.wait_seconds is None


async def test_the_rest_of_one_large_request_is_unread_and_no_backlog(serving, frame_of):
    gate = Gate()
    async with serving(gate.handle, queued_max_request_bytes=100_000) as harness:
        first, second = await harness.connect(), await harness.connect()
        await first.send(1, bytes(200_000))
        await harness.until(lambda: harness.server.memory_pool.held)
        harness.nursery.start_soon(second.send, 1, bytes(200_000))
        await harness.until(lambda: harness.server.memory_pool.held and unread_now(harness) > 100_000)
        for _ in range(10):
            look(harness)
        assert harness.server.statistics().unread_bytes > 100_000
        assert harness.server.statistics().backlog is None


async def test_what_has_just_come_on_a_connection_that_was_read_empty_is_no_backlog(serving, frame_of):
    gate = Gate()
    async with serving(gate.handle) as harness:
        await sent_at_once(harness, frame_of, 3)
        look(harness)
        [connection] = harness.server.connections()
        assert connection.unread.waiting_since is not None
        for _ in range(3):
            gate.places.release()
        await harness.until(lambda: harness.server.handlers.statistics().answered == 3)
        # Without a turn of the event loop, in which the Processor would see it.
        os.write(harness.clients[0].stream.socket.fileno(), frame_of(9, api_key=ApiKey.PRODUCE))
        for _ in range(10):
            look(harness)
        assert connection.unread.count > 0
        assert harness.server.statistics().backlog is None


@pytest.mark.parametrize(("api_key", "is_backlog"), [(ApiKey.FETCH, False), (ApiKey.PRODUCE, True)])
async def test_what_waits_behind_a_long_poll_is_no_backlog_and_behind_replication_it_is(
    serving, frame_of, api_key, is_backlog
):
    async with serving(Gate(RequestPhase.PURGATORY).handle) as harness:
        await sent_at_once(harness, frame_of, 3, api_key=api_key)
        for _ in range(10):
            look(harness)
        assert harness.server.statistics().unread_bytes > 0
        assert (harness.server.statistics().backlog is not None) == is_backlog


async def test_a_client_that_waits_for_each_answer_has_nothing_unread(serving):
    async with serving(Gate().handle) as harness:
        await (await harness.connect()).send(1, api_key=ApiKey.PRODUCE)
        await harness.until(lambda: list(harness.server.connections()))
        for _ in range(10):
            look(harness)
        assert (harness.server.statistics().unread_bytes, harness.server.statistics().backlog) == (0, None)


async def test_more_connections_than_fit_into_one_go_are_looked_at_in_turns(serving, frame_of, monkeypatch):
    monkeypatch.setattr(unread_requests, "MAX_LOOKS", 2)
    looked: list[int] = []

    def unread_bytes(sock: socket.socket) -> int:
        looked.append(sock.fileno())
        return 1

    monkeypatch.setattr(unread_requests, "unread_bytes", unread_bytes)
    async with serving(Gate().handle) as harness:
        for _ in range(6):
            await (await harness.connect()).send(1)
        await harness.until(lambda: sum(len(each.requests) for each in harness.server.connections()) == 6)
        for _ in range(3):
            before = len(looked)
            look(harness)
            assert len(looked) - before == 2
        assert len(set(looked)) == 6
        assert harness.server.statistics().unread_bytes == 6
