"""One connection's conversation: order, bad input, endings."""

from __future__ import annotations

import logging
import os
import random
import select
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing

from kafka_wire.apis import ApiKey
from tests.network.conftest import Client, Harness, Serving
from tests.waits import fail_after, scaled
from trio_broker.concurrency.turns import turns_of_loop
from trio_broker.network.connection import Connection, ConnectionState
from trio_broker.network.errors import CloseConnection
from trio_broker.network.processor import MAX_SPIN_PAUSE, REPORTED_SECONDS, SPINS, TURN_SECONDS, Processor
from trio_broker.network.request_channel import Answer, QueuedRequest

REQUESTS = 10

WAIT_SECONDS = 20
"""What was sent over loopback has come long before."""


async def test_a_request_is_answered(serving):
    async with serving() as harness:
        client = await harness.connect()
        assert await client.ask(7, b"hello") == b"hello"


async def test_pipelined_requests_are_answered_in_their_order(serving):
    async with serving() as harness:
        client = await harness.connect()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for number in range(500):
                    await client.send(number, bytes(number))

            nursery.start_soon(send)
            for number in range(500):
                assert await client.receive() == (number, bytes(number))


async def test_the_next_request_is_handled_only_when_the_one_before_is_answered(serving):
    running = 0
    highest = 0

    async def handle(request: QueuedRequest) -> Answer:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await trio.lowlevel.checkpoint()
        running -= 1
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle) as harness:
        client = await harness.connect()
        await client.stream.send_all(b"".join(bytes.fromhex("0000000a") + bytes(10) for _ in range(50)))
        for _ in range(50):
            await client.receive()
    assert highest == 1


@pytest.mark.parametrize("comes_later", [True, False])
async def test_a_handler_that_waits_is_notified_of_what_comes_behind_its_request(serving, frame_of, comes_later):
    began = trio.Event()

    async def handle(request: QueuedRequest) -> Answer:
        followed = trio.Event()
        request.when_followed(followed.set)
        began.set()
        if request.header.correlation_id == 1:
            await followed.wait()
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle) as harness:
        client = await harness.connect()
        with fail_after(WAIT_SECONDS):
            if comes_later:
                await client.send(1, b"")
                await began.wait()
                await client.send(2, b"")
            else:
                await client.stream.send_all(frame_of(1, b"") + frame_of(2, b""))
            assert [(await client.receive())[0] for _ in range(2)] == [1, 2]


async def test_a_frame_sent_byte_by_byte_is_one_request(serving, frame_of):
    async with serving() as harness:
        client = await harness.connect()
        for byte in frame_of(3, b"slow"):
            await client.stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()
        assert await client.receive() == (3, b"slow")


async def test_a_large_frame_comes_whole_and_so_does_the_small_one_behind_it(serving, frame_of):
    body = bytes(range(256)) * 20_000
    async with serving() as harness:
        client = await harness.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream.send_all, frame_of(1, body) + frame_of(2, b"after"))
            assert await client.receive() == (1, body)
            assert await client.receive() == (2, b"after")


async def test_silence_sends_nothing_and_the_next_request_is_served(serving):
    async def handle(request: QueuedRequest) -> Answer:
        return None if request.body else [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle) as harness:
        client = await harness.connect()
        await client.send(1, b"acks=0")
        await client.send(2)
        assert await client.receive() == (2, b"")


async def test_an_unknown_version_closes_the_connection_and_names_the_client(serving, caplog):
    async with serving() as harness:
        client = await harness.connect()
        await client.send(1, version=11)
        assert await client.is_closed()
    [line] = [record.getMessage() for record in caplog.records if "closed" in record.getMessage()]
    assert "Metadata version 11 is not served here" in line
    assert "'tests'" in line
    assert "unnamed software" in line


async def test_an_unknown_api_closes_the_connection(serving, caplog):
    async with serving(is_served=lambda api_key, version: api_key in iter(ApiKey)) as harness:
        client = await harness.connect()
        await client.send(1, api_key=999)
        assert await client.is_closed()
    assert "unknown API 999" in caplog.text


async def test_the_log_line_names_the_software_named_by_apiversions(serving, caplog):
    async def handle(request: QueuedRequest) -> Answer:
        request.client.software.name, request.client.software.version = "librdkafka", "2.16.0"
        return [b"\0\0\0\1"]

    async with serving(handle) as harness:
        client = await harness.connect()
        await client.ask(1)
        await client.send(2, version=11)
        assert await client.is_closed()
    assert "librdkafka 2.16.0" in caplog.text


async def test_apiversions_of_an_unknown_version_reaches_its_handler(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.send(5, b"whatever", api_key=ApiKey.API_VERSIONS, version=99)
        correlation_id, _ = await client.receive()
        assert correlation_id == 5


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 2**31 - 1, 1001])
async def test_a_frame_of_a_forbidden_size_closes_the_connection_with_one_line(serving, caplog, size):
    async with serving(socket_request_max_bytes=1000) as harness:
        bystander = await harness.connect()
        client = await harness.connect()
        await client.stream.send_all(size.to_bytes(4, "big", signed=True) + bytes(20))
        assert await client.is_closed()
        assert await bystander.ask(1, b"unharmed") == b"unharmed"
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def test_a_garbled_header_closes_the_connection_with_one_line(serving, caplog):
    async with serving() as harness:
        client = await harness.connect()
        await client.stream.send_all(bytes.fromhex("0000000a 0003 0001 00000001 7fff"))
        assert await client.is_closed()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert "not Kafka's protocol" in caplog.text


async def test_a_handler_that_raises_ends_its_connection_alone(serving, caplog):
    async def handle(request: QueuedRequest) -> Answer:
        if bytes(request.body) == b"bang":
            raise RuntimeError("a bug of ours")
        return [request.header.correlation_id.to_bytes(4, "big"), bytes(request.body)]

    async with serving(handle, num_io_threads=1) as harness:
        bystander, client = await harness.connect(), await harness.connect()
        await client.send(1, b"bang")
        assert await client.is_closed()
        assert await bystander.ask(1, b"unharmed") == b"unharmed"
        assert harness.server.statistics().handlers.failed == 1
    assert "a bug of ours" in caplog.text
    assert "Metadata v1" in caplog.text


async def test_a_handler_may_close_the_connection_with_a_reason(serving, caplog):
    async def handle(request: QueuedRequest) -> Answer:
        raise CloseConnection("malformed Metadata v1: a null where none may be")

    async with serving(handle) as harness:
        client = await harness.connect()
        await client.send(1)
        assert await client.is_closed()
    assert "a null where none may be" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_client_that_comes_and_goes_leaves_no_line(serving, caplog):
    async with serving() as harness:
        client = await harness.connect()
        await client.ask(1)
        await client.stream.aclose()
        half = await harness.connect()
        await half.stream.send_all(b"\0\0")
        half.reset()
        await harness.until(lambda: not harness.server.statistics().connections)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_client_that_never_reads_harms_nobody(serving):
    async def handle(request: QueuedRequest) -> Answer:
        return [
            request.header.correlation_id.to_bytes(4, "big"),
            bytes(20_000_000 if bytes(request.body) == b"big" else 1),
        ]

    async with serving(handle, num_io_threads=1, num_network_threads=1) as harness:
        deaf, client = await harness.connect(), await harness.connect()
        await deaf.send(1, b"big")
        for number in range(20):
            assert len(await client.ask(number)) == 1


async def test_trouble_of_our_own_ends_one_connection_and_not_the_processor(serving, caplog):
    def is_served(api_key: int, version: int) -> bool:
        if version == 2:
            raise RuntimeError("a bug of ours")
        return True

    async with serving(is_served=is_served, num_network_threads=1) as harness:
        bystander, client = await harness.connect(), await harness.connect()
        await client.send(1, version=2)
        assert await client.is_closed()
        assert await bystander.ask(1, b"unharmed") == b"unharmed"
    assert "a bug of ours" in caplog.text


async def test_a_client_that_always_has_more_does_not_keep_the_loop(serving, frame_of):
    answered = 0
    async with serving(num_network_threads=1, num_io_threads=1) as harness:
        flood, client = await harness.connect(), await harness.connect()
        await client.ask(0)
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                nonlocal answered
                for _ in range(3000):
                    await flood.receive()
                    answered += 1

            nursery.start_soon(flood.stream.send_all, b"".join(frame_of(number) for number in range(3000)))
            nursery.start_soon(receive)
            await harness.until(lambda: answered)
            await client.ask(1)
            assert answered < 3000


async def test_garbage_from_many_clients_harms_nobody(serving, frame_of, caplog):
    garbage = random.Random(4)
    caplog.set_level(logging.CRITICAL)
    async with serving(socket_request_max_bytes=100_000) as harness:
        bystander = await harness.connect()
        for number in range(150):
            client = await harness.connect()
            data = bytearray(frame_of(number, garbage.randbytes(garbage.randrange(60))))
            for _ in range(garbage.randrange(1, 12)):
                data[garbage.randrange(len(data))] = garbage.randrange(256)
            await client.stream.send_all(bytes(data[: garbage.randrange(1, len(data) + 1)]))
            if number % 3 == 0:
                client.reset()
            assert await bystander.ask(number, b"unharmed") == b"unharmed"
        statistics = harness.server.statistics()
        assert statistics.handlers.failed == 0
        assert set(statistics.connections_closed) <= {"peer", "refused"}


async def test_requests_and_bytes_are_counted(serving, frame_of):
    async with serving(num_network_threads=1) as harness:
        client = await harness.connect()
        for number in range(REQUESTS):
            await client.ask(number, b"x" * 90)
        [processor] = harness.server.statistics().processors
        assert processor.requests == 10
        assert processor.bytes_in == 10 * len(frame_of(0, b"x" * 90))
        assert processor.bytes_out == 10 * (4 + 4 + 90)
        assert processor.connections == 1


class Iterations(trio.abc.Instrument):
    """Counts the iterations of the event loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def handled_together(serving, frame_of, seconds_per_request: float) -> bool:
    """Whether the third of three clients, which sends while the first is served, is served in the same turn as it."""
    iterations = Iterations()
    handled: dict[int, int] = {}

    def send_now(number: int) -> None:
        """Send without a checkpoint, and wait until it has come."""
        client = harness.clients[number].stream.socket
        os.write(client.fileno(), frame_of(number))
        assert select.select([served[client.getsockname()[1]].sock], [], [], scaled(WAIT_SECONDS))[0]

    def handle(request: QueuedRequest) -> Answer:
        number = request.header.correlation_id
        handled[number] = iterations.count
        harness.clock.advance(seconds_per_request)
        if number == 0:
            send_now(2)
        return [number.to_bytes(4, "big")]

    async with serving(handle, num_network_threads=1) as harness:
        clients = [await harness.connect() for _ in range(3)]
        await harness.until(lambda: len(list(harness.server.connections())) == len(clients))
        served = {connection.info.peer_port: connection for connection in harness.server.connections()}
        trio.lowlevel.add_instrument(iterations)
        send_now(0)
        send_now(1)
        for number, client in enumerate(clients):
            assert await client.receive() == (number, b"")
    assert handled[0] == handled[1]
    return handled[2] == handled[0]


async def test_what_comes_while_several_are_served_is_served_in_the_same_turn(serving, frame_of):
    assert await handled_together(serving, frame_of, 0.0)


async def test_a_turn_ends_when_its_time_is_over(serving, frame_of):
    assert not await handled_together(serving, frame_of, REPORTED_SECONDS / 2)


@attrs.define
class WatchedSelectors:
    """The selectors of a server, and how often a Processor looks at them; ``at_look`` is called before each look."""

    real: select.poll
    at_look: Callable[[], object] = lambda: None
    looks: int = 0

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.looks += 1
        self.at_look()
        return self.real.poll(timeout)

    def unregister(self, selector: select.epoll) -> None:
        self.real.unregister(selector)


@asynccontextmanager
async def watched(serving: Serving, handle: Any, clients: int = 1) -> AsyncIterator[tuple[Harness, WatchedSelectors]]:
    """A server with one Processor, which is idle and knows ``clients``. A test writes to their sockets without a
    checkpoint: behind one it would be a task that can run, and no Processor spins beside it."""
    async with serving(handle, num_network_threads=1) as harness:
        for _ in range(clients):
            await harness.connect()
        await harness.until(lambda: len(list(harness.server.connections())) == clients)
        [processor] = {connection.owner for connection in harness.server.connections()}
        assert isinstance(processor, Processor)
        selectors = WatchedSelectors(processor.context.selectors)
        processor.context.selectors = cast(select.poll, selectors)
        await trio.testing.wait_all_tasks_blocked()
        yield harness, selectors


async def test_what_follows_an_answer_at_once_is_served_without_a_pass_of_the_loop(serving, frame_of):
    iterations, sent, handled = Iterations(), 0, []

    def handle(request: QueuedRequest) -> Answer:
        handled.append(iterations.count)
        return [request.header.correlation_id.to_bytes(4, "big")]

    def send_next() -> None:
        """Send the next request, if those before are answered, and wait until it has come."""
        nonlocal sent
        if sent == len(handled) < REQUESTS:
            os.write(client.stream.socket.fileno(), frame_of(sent))
            assert select.select([connection.sock], [], [], scaled(WAIT_SECONDS))[0]
            sent += 1

    async with watched(serving, handle) as (harness, selectors):
        [client], [connection] = harness.clients, harness.server.connections()
        trio.lowlevel.add_instrument(iterations)
        selectors.at_look = send_next
        for number in range(REQUESTS):
            send_next()
            assert await client.receive() == (number, b"")
    # Not always: a timer of the server may be due in one of these passes.
    assert len(set(handled)) < len(handled)


async def test_the_loop_goes_on_at_once_where_a_request_lets_another_task_run(serving, frame_of):
    may_run, has_run = trio.Event(), []

    def handle(request: QueuedRequest) -> Answer:
        may_run.set()
        return [request.header.correlation_id.to_bytes(4, "big")]

    async def run() -> None:
        await may_run.wait()
        has_run.append(selectors.looks)

    async with watched(serving, handle) as (harness, selectors):
        harness.nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        os.write(harness.clients[0].stream.socket.fileno(), frame_of(7))
        assert await harness.clients[0].receive() == (7, b"")
    assert has_run == [0]


async def test_what_comes_behind_a_request_that_waits_ends_the_turn(serving, frame_of):
    """Each packet is reported, though nothing of it is served: without an end they would hold up the loop."""
    waiting = 1

    async def wait() -> None:
        await trio.sleep_forever()

    def handle(request: QueuedRequest) -> Any:
        return wait() if request.header.correlation_id == waiting else [bytes(4)]

    async with watched(serving, handle, clients=2) as (harness, selectors):
        first, second = harness.clients
        await second.send(waiting)
        await harness.until(lambda: harness.server.statistics().handlers.in_flight)
        [connection] = [each for each in harness.server.connections() if each.requests]
        await trio.testing.wait_all_tasks_blocked()

        def send_more() -> None:
            if selectors.looks <= REQUESTS:
                os.write(second.stream.socket.fileno(), bytes(1))
                assert select.select([connection.sock], [], [], scaled(WAIT_SECONDS))[0]

        selectors.at_look = send_more
        os.write(first.stream.socket.fileno(), frame_of(2))
        assert await first.receive() == (0, b"")
        assert selectors.looks == 1


async def test_a_processor_looks_for_nothing_while_a_connection_has_more(serving, frame_of):
    async with watched(serving, lambda request: [request.header.correlation_id.to_bytes(4, "big")]) as (harness, found):
        [client] = harness.clients
        os.write(client.stream.socket.fileno(), frame_of(1) + frame_of(2))
        assert [(await client.receive())[0] for _ in range(2)] == [1, 2]
        assert found.looks == 0


async def test_the_time_of_the_looks_is_idle_time_of_the_processor(serving, frame_of):
    async with watched(serving, lambda request: [bytes(4)]) as (harness, selectors):
        [client], [connection] = harness.clients, harness.server.connections()
        processor, depths = cast(Processor, connection.owner), []
        selectors.at_look = lambda: depths.append(processor.busy_time.depth)
        os.write(client.stream.socket.fileno(), frame_of(1))
        await client.receive()
        assert set(depths) == {0}


async def test_a_processor_looks_seldom_for_what_does_not_come(serving, frame_of):
    async with watched(serving, lambda request: [request.header.correlation_id.to_bytes(4, "big")]) as (harness, found):
        [client] = harness.clients
        for number in range(MAX_SPIN_PAUSE + 100):
            os.write(client.stream.socket.fileno(), frame_of(number))
            assert await client.receive() == (number, b"")
    # With pauses of 3, 15, 63 and 255 turns behind them.
    assert SPINS <= found.looks <= 5 * SPINS


@attrs.define
class ServedTogether:
    """Two clients whose requests are handled in one turn. ``seen`` is what the handler of the second one returned."""

    harness: Harness
    clients: list[Client]
    seen: list[Any] = attrs.field(factory=list)

    def first(self) -> Connection:
        """The connection of the first client, as the server has it."""
        port = self.clients[0].stream.socket.getsockname()[1]
        [connection] = [each for each in self.harness.server.connections() if each.info.peer_port == port]
        return connection


@asynccontextmanager
async def served_together(
    serving: Serving, frame_of: Callable[..., bytes], in_second: Callable[[ServedTogether], object]
) -> AsyncIterator[ServedTogether]:
    def handle(request: QueuedRequest) -> Answer:
        if request.header.correlation_id == 1:
            together.seen.append(in_second(together))
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle, num_network_threads=1) as harness:
        together = ServedTogether(harness, [await harness.connect() for _ in range(2)])
        await harness.until(lambda: len(list(harness.server.connections())) == 2)
        for number, client in enumerate(together.clients):
            os.write(client.stream.socket.fileno(), frame_of(number))
        yield together


async def test_answers_of_a_turn_leave_together(serving, frame_of):
    def has_come(together: ServedTogether) -> bool:
        return bool(select.select([together.clients[0].stream.socket], [], [], 0)[0])

    async with served_together(serving, frame_of, has_come) as together:
        for number, client in enumerate(together.clients):
            assert await client.receive() == (number, b"")
    assert together.seen == [False]


async def test_a_connection_that_ends_before_its_answer_leaves_harms_nobody(serving, frame_of):
    def end_first(together: ServedTogether) -> None:
        together.first().close_now(CloseConnection("the test ends it"))

    async with served_together(serving, frame_of, end_first) as together:
        assert await together.clients[1].receive() == (1, b"")
        assert await together.clients[0].is_closed()
        assert await together.clients[1].ask(2) == b""


@pytest.mark.parametrize("processors", [1, 3])
async def test_a_newcomer_waits_for_one_request_of_those_that_pipeline_and_not_for_one_of_each(
    serving, frame_of, processors
):
    newcomer, pipelining = 1000, range(10)
    handled: list[int] = []

    def handle(request: QueuedRequest) -> Answer:
        number = request.header.correlation_id
        handled.append(number)
        harness.clock.advance(TURN_SECONDS)
        # All have had their first one handled; these are served without a report of the selector.
        if len(handled) == len(pipelining) + processors:
            client = harness.clients[-1].stream.socket
            os.write(client.fileno(), frame_of(newcomer))
            assert select.select([served[client.getsockname()[1]].sock], [], [], scaled(WAIT_SECONDS))[0]
        return [number.to_bytes(4, "big")]

    async with serving(handle, num_network_threads=processors) as harness:
        clients = [await harness.connect() for _ in range(len(pipelining) + 1)]
        await harness.until(lambda: len(list(harness.server.connections())) == len(clients))
        served = {connection.info.peer_port: connection for connection in harness.server.connections()}
        for number in pipelining:
            sock = clients[number].stream.socket
            os.write(sock.fileno(), b"".join(frame_of(number) for _ in range(3)))
            assert select.select([served[sock.getsockname()[1]].sock], [], [], scaled(WAIT_SECONDS))[0]
        assert await clients[-1].receive() == (newcomer, b"")
        for number in pipelining:
            assert [(await clients[number].receive())[0] for _ in range(3)] == [number] * 3
    # Behind the first of each client, one of each Processor, and the one during which it has come.
    assert handled.index(newcomer) <= len(pipelining) + processors + 1


async def test_those_that_pipeline_have_turns_of_all_processors_in_a_pass_for_as_long_as_what_comes_anew(
    serving, frame_of
):
    clients, requests, processors = 9, 5, 3
    iterations = Iterations()
    handled: list[int] = []

    def handle(request: QueuedRequest) -> Answer:
        handled.append(iterations.count)
        harness.clock.advance(TURN_SECONDS)
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle, num_network_threads=processors) as harness:
        trio.lowlevel.add_instrument(iterations)
        for _ in range(clients):
            await harness.connect()
        await harness.until(lambda: len(list(harness.server.connections())) == clients)
        served = {connection.info.peer_port: connection for connection in harness.server.connections()}
        for client in harness.clients:
            os.write(client.stream.socket.fileno(), b"".join(frame_of(number) for number in range(requests)))
            peer = served[client.stream.socket.getsockname()[1]]
            assert select.select([peer.sock], [], [], scaled(WAIT_SECONDS))[0]
        for client in harness.clients:
            assert [(await client.receive())[0] for _ in range(requests)] == list(range(requests))
    # The first one of each client, and the one by which each Processor finds that it has long work.
    later = Counter(handled[clients + processors :])
    assert max(later.values()) == round(REPORTED_SECONDS / TURN_SECONDS)


async def test_other_long_work_has_every_second_turn_beside_those_that_pipeline(serving, frame_of):
    clients, requests = 4, 10
    handled, between = 0, []

    def handle(request: QueuedRequest) -> Answer:
        nonlocal handled
        handled += 1
        harness.clock.advance(TURN_SECONDS)
        return [request.header.correlation_id.to_bytes(4, "big")]

    async def work() -> None:
        while True:
            before = handled
            await turns_of_loop().wait()
            between.append(handled - before)

    async with serving(handle, num_network_threads=1) as harness, trio.open_nursery() as nursery:
        for _ in range(clients):
            client = await harness.connect()
            await client.ask(0)
        nursery.start_soon(work)
        for client in harness.clients:
            os.write(client.stream.socket.fileno(), b"".join(frame_of(number) for number in range(requests)))
        for client in harness.clients:
            assert [(await client.receive())[0] for _ in range(requests)] == list(range(requests))
        nursery.cancel_scope.cancel()
    # More than one only where they are taken as they come, before any has a second one handled.
    assert sum(count > 2 for count in between) <= 1
    assert sum(count == 1 for count in between) >= clients * requests // 2


async def test_a_request_goes_before_the_rest_of_a_response_that_has_room_again(serving, frame_of):
    response = bytes(32 * 1024 * 1024)
    sent: list[int] = []

    def handle(request: QueuedRequest) -> Answer:
        if request.header.correlation_id == 0:
            return [bytes(4), response]
        sent.append(slow_connection.bytes_out)
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle, num_network_threads=1) as harness:
        slow, newcomer = await harness.connect(), await harness.connect()
        await harness.until(lambda: len(list(harness.server.connections())) == 2)
        served = {connection.info.peer_port: connection for connection in harness.server.connections()}
        slow_connection = served[slow.stream.socket.getsockname()[1]]
        await slow.send(0)
        await harness.until(lambda: slow_connection.state is ConnectionState.WAITING_FOR_READER)
        before = slow_connection.bytes_out
        # Without a checkpoint: the selector reports the room first, and then the request.
        while not select.select([], [slow_connection.sock], [], 0)[1]:
            os.read(slow.stream.socket.fileno(), 1024 * 1024)
        os.write(newcomer.stream.socket.fileno(), frame_of(1))
        newcomer_connection = served[newcomer.stream.socket.getsockname()[1]]
        assert select.select([newcomer_connection.sock], [], [], scaled(WAIT_SECONDS))[0]
        assert (await newcomer.receive())[0] == 1
        assert sent == [before]
        await harness.until(lambda: slow_connection.bytes_out > before)


async def test_room_that_comes_before_the_thread_has_reported_that_there_is_none_is_not_missed(serving):
    """The selector reports room once only, and here it does so while the thread's answer is still under way."""
    content = bytes(200_000)
    filler = 0
    has_room = trio.Event()

    class Region:
        """A region of which the first send finds the socket full."""

        position, size = 0, len(content)

        def __len__(self) -> int:
            return self.size

        def is_cached(self, position: int, size: int) -> bool:
            return False

        def send_cold(self, fileno: int, position: int, size: int) -> int:
            nonlocal filler
            if filler:
                return os.write(fileno, content[position : position + size])
            try:
                while True:
                    filler += os.write(fileno, content)
            except BlockingIOError:
                trio.from_thread.run(client.exactly, filler)
                trio.from_thread.run(trio.testing.wait_all_tasks_blocked)
                trio.from_thread.run_sync(has_room.set)
                raise

    async def handle(request: QueuedRequest) -> Answer:
        return [Region()]

    async with serving(handle) as harness:
        client = await harness.connect()
        await client.send(1)
        with fail_after(WAIT_SECONDS):
            await has_room.wait()
            # The size came first, so as much of what filled the socket is still to come.
            await client.exactly(4 + len(content))


async def test_turns_that_are_due_before_their_task_has_begun_are_taken(serving):
    """A Processor that was just added may have more than fits into a turn before its second task runs."""
    async with serving() as harness:
        context = harness.server._active[0].context
        begun_late = Processor(1, context)
        begun_late._in_turns = True
        with fail_after(WAIT_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(begun_late._take_turns)
                while begun_late._in_turns:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
