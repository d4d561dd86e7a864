"""Slots, parking, resizing."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from kafka_wire.headers import RequestHeader
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.handler_pool import MAX_RESTING_WORKERS, HandlerPool
from trio_broker.network.request_channel import Answer, ConnectionInfo, QueuedRequest, RequestChannel
from trio_broker.request_phase import RequestPhase

INFO = ConnectionInfo(1, "PLAINTEXT", "10.0.0.1", 5000, "10.0.0.2", 9092)


def new_request(number: int = 0) -> QueuedRequest:
    return QueuedRequest(RequestHeader(3, 1, number, None), memoryview(b""), INFO)


class Gate:
    """A handler that holds every request until it is opened, and counts how many it holds."""

    def __init__(self, *, release_handler: bool = False) -> None:
        self.opened = trio.Event()
        self.release_handler = release_handler
        self.held = 0
        self.highest = 0

    async def handle(self, request: QueuedRequest) -> Answer:
        if self.release_handler:
            request.release_handler()
            request.release_handler()
        self.held += 1
        self.highest = max(self.highest, self.held)
        try:
            await self.opened.wait()
        finally:
            self.held -= 1
        return [b"answer"]


async def started(nursery: trio.Nursery, gate: Gate, size: int, capacity: int = 1000) -> HandlerPool:
    pool = HandlerPool(RequestChannel(capacity), gate.handle, size)
    await nursery.start(pool.run)
    return pool


async def send(pool: HandlerPool, count: int) -> list[QueuedRequest]:
    requests = [new_request(number) for number in range(count)]
    for request in requests:
        pool.channel.send_nowait(request)
    await wait_all_tasks_blocked()
    return requests


async def test_no_more_requests_are_handled_at_a_time_than_there_are_slots(nursery):
    gate = Gate()
    pool = await started(nursery, gate, 3)
    requests = await send(pool, 10)
    assert (gate.held, pool.channel.statistics().depth) == (3, 7)
    gate.opened.set()
    assert [await request.reply.wait() for request in requests] == [[b"answer"]] * 10
    assert gate.highest == 3
    nursery.cancel_scope.cancel()


async def test_fifty_parked_polls_go_through_one_slot(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    requests = await send(pool, 50)
    assert (gate.held, pool.statistics().parked) == (50, 50)
    gate.opened.set()
    assert [await request.reply.wait() for request in requests] == [[b"answer"]] * 50
    assert pool.statistics().parked == 0
    nursery.cancel_scope.cancel()


async def test_parked_workers_rest_and_are_used_again(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    for _ in range(3):
        gate.opened = trio.Event()
        await send(pool, 10)
        gate.opened.set()
        await wait_all_tasks_blocked()
    tasks = [child for child in nursery.child_tasks if child.name.endswith("run")]
    [pool_nursery] = tasks[0].child_nurseries
    assert len(pool_nursery.child_tasks) == 11
    nursery.cancel_scope.cancel()


async def test_no_more_workers_rest_than_are_worth_keeping(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    await send(pool, MAX_RESTING_WORKERS + 50)
    gate.opened.set()
    await wait_all_tasks_blocked()
    tasks = [child for child in nursery.child_tasks if child.name.endswith("run")]
    [pool_nursery] = tasks[0].child_nurseries
    assert len(pool_nursery.child_tasks) == MAX_RESTING_WORKERS + 1
    nursery.cancel_scope.cancel()


async def test_growing_takes_effect_at_once(nursery):
    gate = Gate()
    pool = await started(nursery, gate, 1)
    await send(pool, 10)
    pool.resize(4)
    await wait_all_tasks_blocked()
    assert gate.held == 4
    assert [slot.slot for slot in pool.statistics().slots] == [0, 1, 2, 3]
    nursery.cancel_scope.cancel()


async def test_shrinking_lets_requests_in_hand_be_answered_and_takes_no_new_ones(nursery):
    gate = Gate()
    pool = await started(nursery, gate, 4)
    requests = await send(pool, 6)
    pool.resize(1)
    assert (gate.held, pool.size) == (4, 1)
    gate.opened.set()
    for request in requests:
        assert await request.reply.wait() == [b"answer"]
    gate.opened, gate.highest = trio.Event(), 0
    await send(pool, 5)
    assert (gate.held, gate.highest) == (1, 1)
    nursery.cancel_scope.cancel()


async def test_shrinking_retires_idle_slots_without_a_request(nursery):
    gate = Gate()
    pool = await started(nursery, gate, 8)
    await wait_all_tasks_blocked()
    pool.resize(2)
    await wait_all_tasks_blocked()
    assert pool.channel.statistics().receivers_waiting == 2
    pool.resize(5)
    await wait_all_tasks_blocked()
    assert pool.channel.statistics().receivers_waiting == 5
    nursery.cancel_scope.cancel()


async def test_a_request_that_parks_in_a_retired_slot_is_answered_and_the_slot_is_gone(nursery):
    entered, go_on, answer = trio.Event(), trio.Event(), trio.Event()

    async def handle(request: QueuedRequest) -> Answer:
        entered.set()
        await go_on.wait()
        request.release_handler()
        await answer.wait()
        return [b"answer"]

    pool = HandlerPool(RequestChannel(10), handle, 2)
    await nursery.start(pool.run)
    await wait_all_tasks_blocked()
    requests = await send(pool, 2)
    await entered.wait()
    pool.resize(1)
    go_on.set()
    await wait_all_tasks_blocked()
    assert pool.channel.statistics().receivers_waiting == 1
    answer.set()
    for request in requests:
        assert await request.reply.wait() == [b"answer"]
    nursery.cancel_scope.cancel()


async def test_cancelling_the_pool_answers_what_it_holds(nursery):
    gate = Gate()
    pool = HandlerPool(RequestChannel(10), gate.handle, 1)
    async with trio.open_nursery() as inner:
        await inner.start(pool.run)
        [request] = await send(pool, 1)
        inner.cancel_scope.cancel()
    reply = await request.reply.wait()
    assert isinstance(reply, CloseConnection)
    assert reply.cause is CloseCause.STOPPING


async def test_a_slot_is_busy_while_a_request_holds_it_and_idle_while_it_is_parked(nursery):
    gate = Gate()
    pool = await started(nursery, gate, 2)
    pool.sample(slot_times(pool))
    await send(pool, 1)
    now = slot_times(pool) + 10**9
    pool.sample(now)
    ratios = sorted(slot.idle_ratio for slot in pool.statistics().slots)
    assert ratios[0] < 0.1
    assert ratios[1] > 0.99
    gate.opened.set()
    await wait_all_tasks_blocked()
    statistics = pool.statistics()
    assert (statistics.answered, statistics.in_flight, statistics.failed) == (1, 0, 0)
    nursery.cancel_scope.cancel()


async def test_time_spent_parked_is_told_apart_from_time_in_a_slot(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    [request] = await send(pool, 1)
    gate.opened.set()
    await request.reply.wait()
    assert request.queued_ns <= request.began_ns
    assert request.waits is not None
    assert (request.waits.phase, request.waits.disk_ns) == (RequestPhase.PURGATORY, 0)
    assert 0 < request.waits.purgatory_ns <= request.answered_ns - request.began_ns
    nursery.cancel_scope.cancel()


def slot_times(pool: HandlerPool) -> int:
    return max(slot.idle.seen_at_ns for slot in pool.slots)


async def test_a_resize_after_the_end_changes_the_size_and_starts_nothing():
    """A live change of num.io.threads may arrive while the broker stops."""
    async with trio.open_nursery() as nursery:
        pool = await started(nursery, Gate(), size=2)
        nursery.cancel_scope.cancel()
    pool.resize(4)
    assert pool.size == 4
