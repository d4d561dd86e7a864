"""The whole server: backpressure, parking, live resizing, idle connections, stopping."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import random
import weakref
from collections import Counter
from time import perf_counter_ns
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener
from trio_broker.network.connection import DELAYED_PROBE_SECONDS, FRAME_GRACE_SECONDS, ConnectionState
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.socket_server import SocketServer, Transfer, balanced_transfers


@attrs.define(eq=False)
class Gate:
    """A handler that holds requests until it is opened; those whose body is empty pass."""

    release_handler: bool = False
    opened: trio.Event = attrs.field(factory=trio.Event)
    held: int = 0
    highest: int = 0

    async def handle(self, request: QueuedRequest) -> Answer:
        if request.body:
            if self.release_handler:
                request.release_handler()
            self.held += 1
            self.highest = max(self.held, self.highest)
            try:
                await self.opened.wait()
            finally:
                self.held -= 1
        return [request.header.correlation_id.to_bytes(4, "big"), bytes(request.body)]


# ---- backpressure and parking


async def test_with_a_queue_of_one_everybody_is_answered_and_the_queue_stays_short(serving):
    gate = Gate()
    async with serving(gate.handle, num_io_threads=1, queued_max_requests=1) as harness:
        clients = [await harness.connect() for _ in range(12)]
        for number, client in enumerate(clients):
            await client.send(number, b"wait")
        await harness.until(lambda: harness.server.channel.statistics().senders_waiting == 10)
        assert gate.held == 1
        assert harness.server.channel.statistics().depth == 1
        gate.opened.set()
        for number, client in enumerate(clients):
            assert await client.receive() == (number, b"wait")
        assert harness.server.statistics().channel.peak_depth == 1


async def test_a_longer_queue_takes_effect_live(serving):
    gate = Gate()
    async with serving(gate.handle, num_io_threads=1, queued_max_requests=1) as harness:
        clients = [await harness.connect() for _ in range(12)]
        for number, client in enumerate(clients):
            await client.send(number, b"wait")
        await harness.until(lambda: harness.server.channel.statistics().senders_waiting == 10)
        harness.server.resize_queue(6)
        assert harness.server.channel.statistics().depth == 6
        assert harness.server.config.queued_max_requests == 6
        gate.opened.set()
        for number, client in enumerate(clients):
            assert await client.receive() == (number, b"wait")


async def test_fifty_long_polls_and_a_produce_go_through_one_slot(serving):
    gate = Gate(release_handler=True)
    async with serving(gate.handle, num_io_threads=1) as harness:
        polls = [await harness.connect() for _ in range(50)]
        for number, poll in enumerate(polls):
            await poll.send(number, b"poll")
        await harness.until(lambda: harness.server.statistics().handlers.delayed == 50)
        other = await harness.connect()
        assert await other.ask(99) == b""
        gate.opened.set()
        for number, poll in enumerate(polls):
            assert await poll.receive() == (number, b"poll")


async def test_a_client_that_goes_away_while_its_request_is_delayed_leaves_nothing_behind(serving):
    gate = Gate(release_handler=True)
    async with serving(gate.handle) as harness:
        gone, reset, stays = [await harness.connect() for _ in range(3)]
        for client in (gone, reset, stays):
            await client.send(1, b"poll")
        await harness.until(lambda: gate.held == 3)
        await gone.stream.aclose()
        reset.reset()
        harness.server.sweep()
        harness.clock.advance(DELAYED_PROBE_SECONDS + 0.1)
        await harness.until(lambda: harness.server.sweep() or harness.server.statistics().connections == 1)
        gate.opened.set()
        assert await stays.receive() == (1, b"poll")
        statistics = harness.server.statistics()
        assert (statistics.handlers.delayed, statistics.handlers.answered) == (0, 3)
        assert statistics.connections_closed == {"gone while waiting": 2}


async def test_the_answer_to_a_client_that_went_away_unnoticed_is_dropped(serving, caplog):
    gate = Gate(release_handler=True)
    async with serving(gate.handle) as harness:
        client = await harness.connect()
        await client.send(1, b"poll")
        await harness.until(lambda: gate.held == 1)
        client.reset()
        gate.opened.set()
        await harness.until(lambda: harness.server.statistics().connections == 0)
    assert not caplog.records


async def test_large_requests_wait_for_their_budget_and_are_all_answered(serving):
    gate = Gate()
    body = bytes(200_000)
    async with serving(gate.handle, queued_max_request_bytes=100_000) as harness:
        clients = [await harness.connect() for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for number, client in enumerate(clients):
                nursery.start_soon(client.send, number, body)
            await harness.until(lambda: gate.held == 1)
            small = await harness.connect()
            assert await small.ask(9) == b""
            assert 200_000 < harness.server.statistics().request_bytes_held < 201_000
            gate.opened.set()
            for number, client in enumerate(clients):
                assert await client.receive() == (number, body)
        assert gate.highest == 1
        assert harness.server.statistics().request_bytes_held == 0


async def test_a_large_request_counts_until_it_is_answered_although_its_client_has_gone(serving):
    """Else a client that sends and leaves, again and again, would fill the memory."""
    gate = Gate(release_handler=True)
    async with serving(gate.handle, queued_max_request_bytes=100_000) as harness:
        gone, stays = await harness.connect(), await harness.connect()
        await gone.send(1, bytes(200_000))
        await harness.until(lambda: gate.held == 1)
        gone.reset()
        harness.server.sweep()
        harness.clock.advance(DELAYED_PROBE_SECONDS + 0.1)
        await harness.until(lambda: harness.server.sweep() or harness.server.statistics().connections == 1)
        assert harness.server.statistics().request_bytes_held > 200_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays.send, 2, bytes(200_000))
            [waiting] = harness.server.connections()
            await harness.until(lambda: waiting.state is ConnectionState.WAITING_FOR_MEMORY)
            gate.opened.set()
            assert await stays.receive() == (2, bytes(200_000))
        assert harness.server.statistics().request_bytes_held == 0


async def test_a_large_request_that_waits_for_the_queue_counts_no_more_when_its_client_goes(serving):
    gate = Gate()
    async with serving(gate.handle, num_io_threads=1, queued_max_requests=1) as harness:
        clients = [await harness.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            await client.send(number, bytes(200_000))
        await harness.until(lambda: harness.server.channel.statistics().senders_waiting == 1)
        held = harness.server.statistics().request_bytes_held
        for client in clients:
            client.reset()
        harness.server.sweep()
        harness.clock.advance(DELAYED_PROBE_SECONDS + 0.1)
        await harness.until(lambda: harness.server.sweep() or harness.server.statistics().connections == 0)
        assert harness.server.statistics().request_bytes_held == held * 2 // 3
        gate.opened.set()
        await harness.until(lambda: harness.server.statistics().request_bytes_held == 0)


@pytest.mark.parametrize("end", ["by its handler", "by its client"])
async def test_a_connection_that_ends_frees_its_request_without_the_collector(serving, end):
    requests: list[weakref.ref[QueuedRequest]] = []

    async def handle(request: QueuedRequest) -> Answer:
        requests.append(weakref.ref(request))
        if end == "by its handler":
            raise CloseConnection("no")
        return [request.header.correlation_id.to_bytes(4, "big")]

    async with serving(handle) as harness:
        client = await harness.connect()
        gc.disable()
        try:
            await client.send(1, b"no")
            if end == "by its handler":
                assert await client.is_closed()
            client.reset()
            await harness.until(lambda: harness.server.statistics().connections == 0)
            await harness.until(lambda: requests[0]() is None)
        finally:
            gc.enable()


# ---- live resizing


async def converse(harness: Any, requests: int, seed: int, done: Counter[str]) -> None:
    """Ask in bursts of pipelined requests, some of them large, and check that every answer comes, once, in order."""
    random_numbers = random.Random(seed)
    client = await harness.connect()
    sizes = [random_numbers.choice((0, 1, 100, 5_000, 90_000)) for _ in range(requests)]

    async def send() -> None:
        for number, size in enumerate(sizes):
            await client.send(number, bytes([seed]) * size)
            if not random_numbers.randrange(4):
                await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        for number, size in enumerate(sizes):
            assert await client.receive() == (number, bytes([seed]) * size)
            done["answers"] += 1


async def unsteady(request: QueuedRequest) -> Answer:
    """A handler that takes a while, or is delayed, or does neither."""
    way = request.header.correlation_id % 5
    if way == 0:
        request.release_handler()
        await trio.sleep(0.001)
    elif way == 1:
        await trio.lowlevel.checkpoint()
    return [request.header.correlation_id.to_bytes(4, "big"), bytes(request.body)]


async def test_resizing_all_three_pools_under_load_loses_and_reorders_nothing(serving):
    done: Counter[str] = Counter()
    async with serving(unsteady, num_io_threads=4, num_network_threads=3) as harness:
        async with trio.open_nursery() as nursery:
            for seed in range(20):
                nursery.start_soon(converse, harness, 60, seed, done)
            step = 0
            while done["answers"] < 20 * 60:
                harness.server.resize_network_threads((1, 2, 5, 3, 8)[step % 5])
                harness.server.resize_io_threads((8, 1, 3, 16)[step % 4])
                harness.server.resize_queue((1, 100, 2)[step % 3])
                step += 1
                await trio.sleep(0.003)
        assert step > 20
        statistics = harness.server.statistics()
        assert statistics.requests == statistics.handlers.answered == 20 * 60
        assert statistics.connections == 20
        assert statistics.handlers.failed == 0


async def behave_badly(harness: Any, frame_of: Any, seed: int) -> None:
    """Ask, stop in mid-frame, vanish with a request in flight, or leave answers unread, at random."""
    random_numbers = random.Random(seed)
    for number in range(12):
        client = await harness.connect()
        request = frame_of(number, bytes(random_numbers.choice((0, 10, 100_000))))
        # A client that nobody serves any more finds its connection closed, which is what it deserves.
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await client.stream.send_all(request[: random_numbers.choice((2, 9, len(request), len(request)))])
            await trio.sleep(random_numbers.random() / 200)
        if random_numbers.randrange(2):
            client.reset()
        else:
            await client.stream.aclose()


async def test_after_any_mixture_of_resizing_and_bad_clients_nothing_is_left(serving, frame_of, caplog):
    async with serving(unsteady, num_io_threads=2, queued_max_request_bytes=150_000) as harness:
        async with trio.open_nursery() as nursery:

            async def resize() -> None:
                for step in itertools.count():
                    harness.server.resize_network_threads((1, 4, 2)[step % 3])
                    harness.server.resize_io_threads((3, 1)[step % 2])
                    await trio.sleep(0.002)

            nursery.start_soon(resize)
            async with trio.open_nursery() as clients:
                for seed in range(20):
                    clients.start_soon(behave_badly, harness, frame_of, seed)
            nursery.cancel_scope.cancel()
        await harness.until(lambda: not harness.server.statistics().connections)
        await harness.until(lambda: not harness.server.statistics().handlers.in_flight)
        statistics = harness.server.statistics()
        assert statistics.request_bytes_held == statistics.handlers.delayed == statistics.channel.depth == 0
        assert sum(statistics.connections_closed.values()) == 240
        assert statistics.connections_closed.keys() == {"peer", "truncated frame"}
        assert not harness.server.quotas.by_address
        assert sum(loads(harness)) == 0
        client = await harness.connect()
        assert await client.ask(0, b"still well") == b"still well"
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_growing_moves_connections_so_that_the_load_is_even(serving):
    async with serving(num_network_threads=1) as harness:
        clients = [await harness.connect() for _ in range(12)]
        for client in clients:
            await client.ask(1)
        harness.server.resize_network_threads(4)
        await harness.until(lambda: loads(harness) == [3, 3, 3, 3])
        for client in clients:
            await client.ask(2)
        assert all(processor.requests for processor in harness.server.statistics().processors)


async def test_shrinking_moves_connections_and_ends_the_processor(serving):
    async with serving(num_network_threads=4) as harness:
        clients = [await harness.connect() for _ in range(12)]
        for client in clients:
            await client.ask(1)
        harness.server.resize_network_threads(2)
        await harness.until(lambda: loads(harness) == [6, 6])
        for client in clients:
            await client.ask(2)
        statistics = harness.server.statistics()
        assert statistics.requests == 24
        assert statistics.connections_closed == {}


def loads(harness: Any) -> list[int]:
    return [processor.connections for processor in harness.server.statistics().processors]


async def test_a_connection_moves_in_the_middle_of_a_frame_and_of_a_size_prefix(serving, frame_of):
    body = bytes(range(256)) * 1000
    async with serving(num_network_threads=2) as harness:
        clients = [await harness.connect() for _ in range(6)]
        request = frame_of(5, body)
        cuts = [1, 3, 4, 9, 5_000, 200_000]
        for client, cut in zip(clients, cuts, strict=True):
            await client.stream.send_all(request[:cut])
        await harness.until(lambda: harness.server.statistics().bytes_in == sum(cuts))
        for count in (1, 3, 1):
            harness.server.resize_network_threads(count)
            await harness.until(lambda count=count: len(loads(harness)) == count and sum(loads(harness)) == 6)
        for client, cut in zip(clients, cuts, strict=True):
            await client.stream.send_all(request[cut:])
            assert await client.receive() == (5, body)


async def test_a_connection_with_a_request_in_flight_moves_after_its_answer(serving):
    gate = Gate(release_handler=True)
    async with serving(gate.handle, num_network_threads=2) as harness:
        clients = [await harness.connect() for _ in range(2)]
        for client in clients:
            await client.send(1, b"poll")
        await harness.until(lambda: gate.held == 2)
        harness.server.resize_network_threads(1)
        await trio.testing.wait_all_tasks_blocked()
        retiring = [processor.is_retiring for processor in harness.server.statistics().processors]
        assert retiring == [False, True]
        gate.opened.set()
        for client in clients:
            assert await client.receive() == (1, b"poll")
        await harness.until(lambda: loads(harness) == [2])
        for client in clients:
            assert await client.ask(2) == b""


@pytest.mark.parametrize(
    ("current", "staying", "expected"),
    [
        ([6, 0, 0], 3, [2, 2, 2]),
        ([5, 4, 0], 3, [3, 3, 3]),
        ([3, 3, 4], 2, [5, 5, 0]),
        ([0, 0, 7], 2, [4, 3, 0]),
        ([1, 1], 1, [2, 0]),
        ([0, 0], 1, [0, 0]),
        ([3, 2], 2, [3, 2]),
    ],
)
def test_even_out_moves_what_is_needed_and_no_more(current, staying, expected):
    loads = list(current)
    for transfer in balanced_transfers(current, staying):
        assert isinstance(transfer, Transfer)
        loads[transfer.source] -= transfer.count
        loads[transfer.target] += transfer.count
    assert sorted(loads) == sorted(expected)
    assert not any(loads[staying:])


# ---- waiting too long


async def test_idle_connections_are_closed_and_delayed_ones_are_not(serving):
    gate = Gate(release_handler=True)
    async with serving(gate.handle, connections_max_idle_ms=60_000) as harness:
        idle, polling = await harness.connect(), await harness.connect()
        await idle.ask(1)
        await polling.send(1, b"poll")
        await harness.until(lambda: gate.held == 1)
        harness.server.sweep()
        harness.clock.advance(61)
        harness.server.sweep()
        assert await idle.is_closed()
        gate.opened.set()
        assert await polling.receive() == (1, b"poll")
        assert harness.server.statistics().connections_closed == {"idle": 1}


async def test_a_client_that_dribbles_its_frame_is_closed_in_time(serving, frame_of, caplog):
    request = frame_of(1, bytes(100))
    async with serving() as harness:
        client = await harness.connect()
        for elapsed in range(10):
            await client.stream.send_all(request[elapsed : elapsed + 1])
            await harness.until(lambda sent=elapsed + 1: harness.server.statistics().bytes_in == sent)
            harness.server.sweep()
            harness.clock.advance(FRAME_GRACE_SECONDS / 9)
        harness.server.sweep()
        assert await client.is_closed()
        assert harness.server.statistics().connections_closed == {"slow frame": 1}
    assert "too slowly" in caplog.text


async def test_a_client_that_stops_reading_is_closed_but_a_slow_one_is_not(serving, caplog):
    size = 20_000_000

    async def handle(request: QueuedRequest) -> Answer:
        return [request.header.correlation_id.to_bytes(4, "big"), bytes(size)]

    # A kernel that adapts its buffers might take so much that reading on makes no room for more to be sent.
    async with serving(handle, connections_max_idle_ms=60_000, socket_send_buffer_bytes=100 * 1024) as harness:
        slow, deaf = await harness.connect(), await harness.connect()
        await slow.send(1)
        await deaf.send(1)
        await trio.testing.wait_all_tasks_blocked(0.05)
        harness.server.sweep()
        for _ in range(4):
            harness.clock.advance(40)
            sent = harness.server.statistics().bytes_out
            await slow.exactly(4_000_000)
            await harness.until(lambda sent=sent: harness.server.statistics().bytes_out > sent)
            harness.server.sweep()
        await slow.exactly(size + 8 - 16_000_000)
        await harness.until(lambda: harness.server.statistics().connections == 1)
        assert harness.server.statistics().connections_closed == {"stuck response": 1}
    assert "does not read" in caplog.text


# ---- readings


async def test_the_readings_lie_between_nothing_and_everything(serving):
    async with serving(num_network_threads=2, num_io_threads=2) as harness:
        client = await harness.connect()
        for number in range(50):
            await client.ask(number)
        harness.server.sample(perf_counter_ns())
        statistics = harness.server.statistics()
        ratios = [
            statistics.loop_busy_ratio,
            statistics.network_idle_ratio,
            statistics.handler_idle_ratio,
            *(processor.idle_ratio for processor in statistics.processors),
            *(slot.idle_ratio for slot in statistics.handlers.slots),
        ]
        assert all(0 <= ratio <= 1 for ratio in ratios)
        assert statistics.loop_busy_ratio > 0
        assert statistics.network_idle_ratio < 1
        assert statistics.requests == 50
        [metrics] = harness.server.channel.metrics.by_api.values()
        assert metrics.since_start().count == 50


async def test_a_processor_is_idle_while_its_requests_are_handled(serving):
    gate = Gate()
    async with serving(gate.handle, num_network_threads=1) as harness:
        client = await harness.connect()
        await client.send(1, b"wait")
        await harness.until(lambda: gate.held)
        now = perf_counter_ns()
        harness.server.sample(now)
        harness.server.sample(now + 10**9)
        [processor] = harness.server.statistics().processors
        assert processor.idle_ratio == 1


async def test_subscribers_get_the_readings_once_a_second(nursery, autojump_clock):
    server = idle_server()
    await nursery.start(server.run)
    times = []
    server.subscribe(lambda statistics: times.append(trio.current_time()))
    began = trio.current_time()
    await trio.sleep(5.5)
    assert [time - began for time in times] == pytest.approx([1, 2, 3, 4, 5])


async def test_beats_that_a_busy_loop_missed_are_not_made_up_for(nursery, mock_clock):
    server = idle_server()
    await nursery.start(server.run)
    times = []
    server.subscribe(lambda statistics: times.append(trio.current_time()))
    for seconds in (0.0, 4.0, 0.5, 0.5, 0.5, 0.5):
        mock_clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()
    assert times == pytest.approx([4.0, 5.0, 6.0])


def idle_server() -> SocketServer:
    return SocketServer([Listener("PLAINTEXT", "127.0.0.1", 0)], handle=Gate().handle, is_served=lambda *_: True)


# ---- starting and stopping


async def test_each_listener_reports_the_port_it_was_given(nursery):
    listeners = [Listener("PLAINTEXT", "127.0.0.1", 0), Listener("INTERNAL", "localhost", 0)]
    server = SocketServer(listeners, handle=Gate().handle, is_served=lambda api_key, version: True)
    bound = server.bind()
    assert await nursery.start(server.run) == bound
    assert bound["PLAINTEXT"][1] != bound["INTERNAL"][1]
    assert all(port for _, port in bound.values())
    nursery.cancel_scope.cancel()


def test_a_taken_port_leaves_no_other_port_open():
    settings: Any = {"handle": Gate().handle, "is_served": lambda api_key, version: True}
    first = SocketServer([Listener("A", "127.0.0.1", 0)], **settings)
    port = first.bind()["A"][1]
    second = SocketServer([Listener("B", "127.0.0.1", 0), Listener("C", "127.0.0.1", port)], **settings)
    with pytest.raises(OSError, match="in use"):
        second.bind()
    assert second.bound_addresses == {}
    first._acceptors[0].sock.close()


async def test_draining_answers_what_is_in_flight_and_closes_the_rest(serving):
    gate = Gate()
    async with serving(gate.handle) as harness:
        busy, idle = await harness.connect(), await harness.connect()
        await idle.ask(1)
        await busy.send(1, b"wait")
        await harness.until(lambda: gate.held == 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.server.drain, trio.current_time() + 15)
            assert await idle.is_closed()
            assert not harness.ended.is_set()
            with pytest.raises(OSError, match="connect"):
                await trio.open_tcp_stream("127.0.0.1", harness.port)
            gate.opened.set()
            assert await busy.receive() == (1, b"wait")
            assert await busy.is_closed()
            await busy.stream.aclose()
        await harness.ended.wait()


async def test_an_answer_survives_draining_though_its_client_had_sent_more(serving):
    body = bytes(3_000_000)
    gate = Gate()
    async with serving(gate.handle) as harness:
        client = await harness.connect()
        async with trio.open_nursery() as nursery:
            await client.send(1, body)
            await harness.until(lambda: gate.held == 1)
            await client.send(2, b"never answered")
            nursery.start_soon(harness.server.drain, trio.current_time() + 15)
            await trio.testing.wait_all_tasks_blocked(0.01)
            gate.opened.set()
            assert await client.receive() == (1, body)
            assert await client.is_closed()
            await client.stream.aclose()
        await harness.ended.wait()


async def test_draining_answers_what_is_delayed_and_says_what_it_waits_for(serving, caplog):
    caplog.set_level("INFO")
    gate = Gate(release_handler=True)
    async with serving(gate.handle) as harness:
        clients = [await harness.connect() for _ in range(5)]
        for client in clients:
            await client.send(1, b"poll")
        await harness.until(lambda: gate.held == 5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.server.drain, trio.current_time() + 15)
            await trio.testing.wait_all_tasks_blocked(0.01)
            gate.opened.set()
            for client in clients:
                assert await client.receive() == (1, b"poll")
                assert await client.is_closed()
                await client.stream.aclose()
        await harness.ended.wait()
    assert "5 connections, 5 requests in flight" in caplog.text


async def test_draining_ends_at_its_deadline(serving, caplog):
    gate = Gate()
    async with serving(gate.handle) as harness:
        client = await harness.connect()
        await client.send(1, b"wait")
        await harness.until(lambda: gate.held == 1)
        await harness.server.drain(trio.current_time() + 0.05)
        await harness.ended.wait()
        assert await client.is_closed()
        assert harness.server.statistics().connections == 0
    assert "closed unanswered" in caplog.text


async def test_accepting_stops_before_the_connections_do(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.ask(1)
        harness.server.stop_accepting()
        harness.server.stop_accepting()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", harness.port)
        assert await client.ask(2, b"still here") == b"still here"


async def test_cancelling_the_server_closes_every_connection(serving):
    gate = Gate(release_handler=True)
    async with serving(gate.handle) as harness:
        idle, polling = await harness.connect(), await harness.connect()
        await idle.ask(1)
        await polling.send(1, b"poll")
        await harness.until(lambda: gate.held == 1)
        harness.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            assert await idle.is_closed()
            assert await polling.is_closed()
            assert harness.server.statistics().connections == 0


async def test_a_server_may_be_resized_before_it_runs(nursery):
    server = SocketServer(
        [Listener("A", "127.0.0.1", 0)],
        handle=Gate().handle,
        is_served=lambda api_key, version: True,
        config=SocketServerConfig(num_network_threads=2, num_io_threads=2),
    )
    server.resize_network_threads(1)
    server.resize_network_threads(4)
    server.resize_network_threads(3)
    server.resize_io_threads(1)
    await nursery.start(server.run)
    assert [processor.processor_id for processor in server.statistics().processors] == [0, 1, 2]
    assert server.statistics().handlers.size == 1
    nursery.cancel_scope.cancel()
