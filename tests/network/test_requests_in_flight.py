"""Produces that are appended and wait let the next ones of their connection begin; all else, and each answer, keeps its
place."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.apis import ApiKey
from tests.network.conftest import WAIT_SECONDS
from trio_broker.network.connection import MAX_REQUESTS_IN_FLIGHT
from trio_broker.network.connection_statistics import connection_statistics
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.statistics import ConnectionStage

FOREVER_SECONDS = 1e6

PRODUCE, METADATA = ApiKey.PRODUCE, ApiKey.METADATA


@attrs.define
class Appending:
    """Handles each Produce as if it were appended at once, and answers it when the test says so; all else at once."""

    begun: list[int] = attrs.field(factory=list)
    answers: dict[int, trio.Event] = attrs.field(factory=dict)
    failing: frozenset[int] = frozenset()
    throttled: frozenset[int] = frozenset()
    answer_bytes: int = 0

    async def __call__(self, request: QueuedRequest) -> Answer:
        number = request.header.correlation_id
        self.begun.append(number)
        if request.header.api_key == PRODUCE:
            self.answers[number] = trio.Event()
            request.unmute()
            await self.answers[number].wait()
            if number in self.throttled:
                request.throttle_seconds = FOREVER_SECONDS
            if number in self.failing:
                raise CloseConnection("refused")
        return [number.to_bytes(4, "big"), bytes(self.answer_bytes)]

    def answer(self, *numbers: int) -> None:
        for number in numbers:
            self.answers[number].set()


def frames(frame_of: Callable[..., bytes], *numbers: int, api_key: int = PRODUCE) -> bytes:
    return b"".join(frame_of(number, b"batch", api_key=api_key) for number in numbers)


async def test_answers_leave_in_the_order_of_their_requests_in_whichever_they_come(serving, frame_of):
    handle = Appending()
    async with serving(handle) as harness:
        client = await harness.connect()
        for turn, order in enumerate(itertools.permutations(range(MAX_REQUESTS_IN_FLIGHT))):
            first = turn * MAX_REQUESTS_IN_FLIGHT
            numbers = [first + each for each in range(MAX_REQUESTS_IN_FLIGHT)]
            await client.stream.send_all(frames(frame_of, *numbers))
            await harness.until(lambda: len(handle.begun) == numbers[-1] + 1)  # noqa: B023 (called in this turn)
            assert handle.begun[first:] == numbers
            for each in order:
                handle.answer(first + each)
                await trio.lowlevel.checkpoint()
            assert [(await client.receive())[0] for _ in numbers] == numbers


async def test_no_more_are_begun_than_a_producer_has_in_flight(serving, frame_of):
    handle = Appending()
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, *range(8)))
        await harness.until(lambda: len(handle.begun) == MAX_REQUESTS_IN_FLIGHT)
        # An answer that is there and has to wait for its place makes no room.
        handle.answer(1, 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(handle.begun) == MAX_REQUESTS_IN_FLIGHT
        handle.answer(0)
        assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
        await harness.until(lambda: len(handle.begun) == 8)
        handle.answer(*range(3, 8))
        assert [(await client.receive())[0] for _ in range(5)] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("pieces", ["together", "apart"])
async def test_any_other_request_begins_when_those_before_it_are_answered(serving, frame_of, pieces):
    handle = Appending()
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, 0, 1))
        if pieces == "apart":
            await harness.until(lambda: handle.begun == [0, 1])
        await client.stream.send_all(frames(frame_of, 2, api_key=METADATA) + frames(frame_of, 3))
        await harness.until(lambda: len(handle.begun) == 2)
        handle.answer(1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert handle.begun == [0, 1]
        handle.answer(0)
        assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
        await harness.until(lambda: handle.begun == [0, 1, 2, 3])
        handle.answer(3)
        assert (await client.receive())[0] == 3


async def test_nothing_is_read_behind_a_request_that_does_not_let_it(serving, frame_of):
    waits = trio.Event()
    begun: list[int] = []

    async def handle(request: QueuedRequest) -> Answer:
        begun.append(request.header.correlation_id)
        await waits.wait()
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, 0, 1))
        await harness.until(lambda: begun)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert begun == [0]
        waits.set()
        assert [(await client.receive())[0] for _ in range(2)] == [0, 1]


MALFORMED = bytes.fromhex("00000001 00")
UNSERVED = 11
"""A version that the harness does not serve."""


@pytest.mark.parametrize("end", ["malformed", "unserved", "half closed", "half closed in a frame"])
async def test_what_ends_the_connection_comes_behind_the_answers_before_it(serving, frame_of, end):
    handle = Appending()
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, 0, 1))
        match end:
            case "malformed":
                await client.stream.send_all(MALFORMED)
            case "unserved":
                await client.stream.send_all(frame_of(2, api_key=PRODUCE, version=UNSERVED))
            case "half closed in a frame":
                await client.stream.send_all(frame_of(2, api_key=PRODUCE)[:9])
        if end.startswith("half"):
            await client.stream.send_eof()
        await harness.until(lambda: all(each.command is not None for each in harness.server.connections()))
        handle.answer(1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        handle.answer(0)
        assert [(await client.receive())[0] for _ in range(2)] == [0, 1]
        assert await client.is_closed()
        assert handle.begun == [0, 1]


async def test_a_refusal_that_closes_comes_behind_the_answers_before_it(serving, frame_of):
    handle = Appending(failing=frozenset({1}))
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, 0, 1, 2))
        await harness.until(lambda: len(handle.begun) == 3)
        handle.answer(1, 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        handle.answer(0)
        assert (await client.receive())[0] == 0
        assert await client.is_closed()


async def test_a_connection_with_several_in_flight_moves_and_drains_when_they_are_answered(serving, frame_of):
    handle = Appending()
    async with serving(handle, num_network_threads=2) as harness:
        clients = [await harness.connect() for _ in range(2)]
        for number, client in enumerate(clients):
            await client.stream.send_all(frames(frame_of, *range(10 * number, 10 * number + 3)))
        await harness.until(lambda: len(handle.begun) == 6)
        harness.server.reconfigure(attrs.evolve(harness.config, num_network_threads=1))
        for number, client in enumerate(clients):
            # Not read by now, but not lost: by whichever Processor.
            await client.stream.send_all(frames(frame_of, 10 * number + 3))
            handle.answer(*range(10 * number, 10 * number + 3))
            assert [(await client.receive())[0] % 10 for _ in range(3)] == [0, 1, 2]
        await harness.until(lambda: len(handle.begun) == 8)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.server.drain, trio.current_time() + WAIT_SECONDS)
            for number, client in enumerate(clients):
                handle.answer(10 * number + 3)
                assert (await client.receive())[0] % 10 == 3
                assert await client.is_closed()


async def test_a_throttled_answer_stops_the_reading_and_no_answer(serving, frame_of):
    handle = Appending(throttled=frozenset({0}))
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, 0, 1))
        await harness.until(lambda: len(handle.begun) == 2)
        handle.answer(0)
        assert (await client.receive())[0] == 0
        await client.stream.send_all(frames(frame_of, 2))
        handle.answer(1)
        assert (await client.receive())[0] == 1
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert handle.begun == [0, 1]
        [connection] = harness.server.connections()
        shown = connection_statistics(connection, now=harness.clock.monotonic(), now_ms=0)
        assert (shown.stage, shown.muted_because) == (ConnectionStage.THROTTLED, "quota")


async def test_each_holds_its_memory_until_its_answer_is_there_although_the_client_has_gone(serving):
    handle = Appending()
    async with serving(handle, queued_max_request_bytes=1_000_000) as harness:
        client = await harness.connect()
        for number in range(3):
            await client.send(number, bytes(100_000), api_key=PRODUCE)
        await harness.until(lambda: len(handle.begun) == 3)
        held = harness.server.memory_pool.held
        assert held > 300_000
        handle.answer(1)
        await harness.until(lambda: harness.server.memory_pool.held == held * 2 // 3)
        client.reset()
        harness.clients.clear()
        await harness.until(lambda: not list(harness.server.connections()))
        assert harness.server.memory_pool.held == held * 2 // 3
        handle.answer(0, 2)
        await harness.until(lambda: harness.server.memory_pool.held == 0)


async def test_a_large_frame_may_wait_for_memory_that_those_before_it_hold(serving):
    handle = Appending()
    async with serving(handle, queued_max_request_bytes=100_000) as harness:
        client = await harness.connect()
        await client.send(0, bytes(150_000), api_key=PRODUCE)
        harness.nursery.start_soon(lambda: client.send(1, bytes(150_000), api_key=PRODUCE))
        await harness.until(lambda: handle.begun == [0] and harness.server.memory_pool.is_exhausted)
        handle.answer(0)
        assert (await client.receive())[0] == 0
        await harness.until(lambda: handle.begun == [0, 1])
        handle.answer(1)
        assert (await client.receive())[0] == 1
        assert harness.server.memory_pool.held == 0


async def test_a_response_that_is_not_read_holds_up_those_behind_it_and_the_reading(serving, frame_of):
    handle = Appending(answer_bytes=4_000_000)
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(frames(frame_of, *range(4)))
        await harness.until(lambda: len(handle.begun) == 4)
        handle.answer(*range(4))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.stream.send_all(frames(frame_of, 4))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(handle.begun) == 4
        assert [(await client.receive())[0] for _ in range(4)] == list(range(4))
        await harness.until(lambda: len(handle.begun) == 5)
        handle.answer(4)
        assert (await client.receive())[0] == 4


@pytest.mark.parametrize("seed", range(20))
async def test_any_mixture_of_requests_and_answers_keeps_every_order(serving, frame_of, seed):
    chance = random.Random(seed)
    begun: list[int] = []
    in_flight: list[int] = []

    async def handle(request: QueuedRequest) -> Answer:
        number = request.header.correlation_id
        begun.append(number)
        if request.header.api_key != PRODUCE:
            assert in_flight == []
        in_flight.append(number)
        assert len(in_flight) <= MAX_REQUESTS_IN_FLIGHT
        for _ in range(chance.randrange(3)):
            await trio.lowlevel.checkpoint()
        if request.header.api_key == PRODUCE and chance.random() < 0.8:
            request.unmute()
        for _ in range(chance.randrange(6)):
            await trio.lowlevel.checkpoint()
        in_flight.remove(number)
        # One in ten wants no answer, as with acks=0.
        return None if number % 10 == 3 else [number.to_bytes(4, "big")]

    count = 200
    async with serving(handle) as harness:
        client = await harness.connect()
        keys = [PRODUCE if chance.random() < 0.8 else METADATA for _ in range(count)]
        data = b"".join(frame_of(number, bytes(chance.randrange(50)), api_key=key) for number, key in enumerate(keys))

        async def send() -> None:
            position = 0
            while position < len(data):
                size = chance.randrange(1, 400)
                await client.stream.send_all(data[position : position + size])
                position += size

        harness.nursery.start_soon(send)
        answered = [number for number in range(count) if number % 10 != 3]
        assert [(await client.receive())[0] for _ in answered] == answered
        assert begun == list(range(count))
