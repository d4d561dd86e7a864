"""Slots, parking, resizing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.lowlevel import checkpoint
from trio.testing import wait_all_tasks_blocked

from kafka_wire.headers import RequestHeader
from tests.scheduling import RACES, Race, outcomes
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.handler_pool import MAX_RESTING_WORKERS, DelayedAnswer, Handle, HandlerPool, PendingAnswer
from trio_broker.network.request_channel import Answer, ConnectionInfo, QueuedRequest, Reply, RequestChannel

INFO = ConnectionInfo(1, "PLAINTEXT", "10.0.0.1", 5000, "10.0.0.2", 9092)


@attrs.define(eq=False)
class Mailbox:
    """Takes the reply of one request."""

    is_closed: bool = False
    has_more: bool = False
    replies: list[Reply] = attrs.field(factory=list)
    has_come: trio.Event = attrs.field(factory=trio.Event)

    def unmute(self, request: QueuedRequest) -> None:
        """There is nothing behind it."""

    def respond(self, request: QueuedRequest, reply: Reply) -> None:
        self.replies.append(reply)
        self.has_come.set()


def new_request(number: int = 0) -> QueuedRequest:
    return QueuedRequest(RequestHeader(3, 1, number, None), memoryview(b""), INFO, reply_target=Mailbox())


async def reply_of(request: QueuedRequest) -> Reply:
    """The one reply to ``request``."""
    mailbox = request.reply_target
    assert isinstance(mailbox, Mailbox)
    await mailbox.has_come.wait()
    [reply] = mailbox.replies
    return reply


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
        pool.submit(request)
    await wait_all_tasks_blocked()
    return requests


async def test_no_more_requests_are_handled_at_a_time_than_there_are_slots(nursery):
    gate = Gate()
    pool = await started(nursery, gate, 3)
    requests = await send(pool, 10)
    assert (gate.held, pool.channel.statistics().depth) == (3, 7)
    gate.opened.set()
    assert [await reply_of(request) for request in requests] == [[b"answer"]] * 10
    assert gate.highest == 3
    nursery.cancel_scope.cancel()


async def test_fifty_delayed_polls_go_through_one_slot(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    requests = await send(pool, 50)
    assert (gate.held, pool.statistics().delayed) == (50, 50)
    gate.opened.set()
    assert [await reply_of(request) for request in requests] == [[b"answer"]] * 50
    assert pool.statistics().delayed == 0
    nursery.cancel_scope.cancel()


async def test_a_wait_that_was_announced_before_the_handler_needs_a_task_takes_no_slot(nursery):
    gate = Gate()

    def handle(request: QueuedRequest) -> PendingAnswer:
        request.release_handler(RequestPhase.DISK)
        return gate.handle(request)

    pool = HandlerPool(RequestChannel(100), handle, 1)
    await nursery.start(pool.run)
    requests = await send(pool, 50)
    statistics = pool.statistics()
    assert (gate.held, statistics.delayed, statistics.idle, statistics.in_flight) == (50, 50, 1, 50)
    assert pool.slots[0].busy_time.depth == 0
    gate.opened.set()
    assert [await reply_of(request) for request in requests] == [[b"answer"]] * 50
    assert pool.statistics().delayed == 0
    nursery.cancel_scope.cancel()


async def test_delayed_workers_rest_and_are_used_again(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    for _ in range(3):
        gate.opened = trio.Event()
        await send(pool, 10)
        gate.opened.set()
        await wait_all_tasks_blocked()
    tasks = [child for child in nursery.child_tasks if child.name.endswith("run")]
    [pool_nursery] = tasks[0].child_nurseries
    assert len(pool_nursery.child_tasks) == 10
    nursery.cancel_scope.cancel()


async def test_no_more_workers_rest_than_are_worth_keeping(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    await send(pool, MAX_RESTING_WORKERS + 50)
    gate.opened.set()
    await wait_all_tasks_blocked()
    tasks = [child for child in nursery.child_tasks if child.name.endswith("run")]
    [pool_nursery] = tasks[0].child_nurseries
    assert len(pool_nursery.child_tasks) == MAX_RESTING_WORKERS
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
        assert await reply_of(request) == [b"answer"]
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
    assert pool.statistics().idle == 2
    pool.resize(5)
    await wait_all_tasks_blocked()
    assert pool.statistics().idle == 5
    nursery.cancel_scope.cancel()


async def test_a_request_that_is_delayed_in_a_retired_slot_is_answered_and_the_slot_is_gone(nursery):
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
    assert pool.statistics().idle == 1
    answer.set()
    for request in requests:
        assert await reply_of(request) == [b"answer"]
    nursery.cancel_scope.cancel()


async def test_cancelling_the_pool_answers_what_it_holds(nursery):
    gate = Gate()
    pool = HandlerPool(RequestChannel(10), gate.handle, 1)
    async with trio.open_nursery() as inner:
        await inner.start(pool.run)
        [request] = await send(pool, 1)
        inner.cancel_scope.cancel()
    reply = await reply_of(request)
    assert isinstance(reply, CloseConnection)
    assert reply.cause is CloseCause.STOPPING


async def test_a_slot_is_busy_while_a_request_holds_it_and_idle_while_it_is_delayed(nursery):
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


async def test_time_spent_delayed_is_distinguished_from_time_in_a_slot(nursery):
    gate = Gate(release_handler=True)
    pool = await started(nursery, gate, 1)
    [request] = await send(pool, 1)
    gate.opened.set()
    await reply_of(request)
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


async def test_a_handler_that_does_not_wait_is_done_in_the_turn_of_its_caller(nursery):
    pool = HandlerPool(RequestChannel(10), lambda request: [b"answer"], 1)
    await nursery.start(pool.run)
    for number in range(3):
        mailbox = Mailbox()
        pool.submit(attrs.evolve(new_request(number), reply_target=mailbox))
        assert mailbox.replies == [[b"answer"]]
    statistics = pool.statistics()
    assert (statistics.answered, statistics.in_flight, statistics.idle) == (3, 0, 1)
    assert statistics.slots[0].requests == 3
    nursery.cancel_scope.cancel()


async def test_a_handler_that_does_not_wait_is_queued_where_no_slot_is_idle(nursery):
    gate = Gate()
    pool = HandlerPool(
        RequestChannel(10), lambda request: [b"now"] if request.header.correlation_id else gate.handle(request), 1
    )
    await nursery.start(pool.run)
    held, queued = new_request(0), new_request(1)
    pool.submit(held)
    pool.submit(queued)
    assert (pool.channel.statistics().depth, queued.began_ns) == (1, 0)
    gate.opened.set()
    assert await reply_of(held) == [b"answer"]
    assert await reply_of(queued) == [b"now"]
    assert pool.statistics().idle == 1
    nursery.cancel_scope.cancel()


async def test_what_a_handler_raises_in_its_callers_turn_closes_one_connection(nursery, caplog):
    def handle(request: QueuedRequest) -> Answer:
        if request.header.correlation_id:
            raise CloseConnection("malformed")
        raise RuntimeError("a bug of ours")

    pool = HandlerPool(RequestChannel(10), handle, 1)
    await nursery.start(pool.run)
    requests = [new_request(0), new_request(1)]
    for request in requests:
        pool.submit(request)
    replies = [await reply_of(request) for request in requests]
    assert [str(reply) for reply in replies] == ["its handler failed", "malformed"]
    assert (pool.statistics().failed, pool.statistics().idle) == (1, 1)
    assert "a bug of ours" in caplog.text
    nursery.cancel_scope.cancel()


class Delays:
    """A handler whose answers wait for a call; ``replies`` are what the waits of a request end in, one after the
    other."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies
        self.calls: list[Callable[[], None]] = []
        self.closed = 0

    def handle(self, request: QueuedRequest) -> DelayedAnswer:
        request.release_handler(RequestPhase.DISK)
        return self.delayed(iter(self.replies))

    def delayed(self, replies: Iterator[Any]) -> DelayedAnswer:
        def resume() -> Answer | PendingAnswer | DelayedAnswer:
            match next(replies):
                case Exception() as error:
                    raise error
                case "again":
                    return self.delayed(replies)
                case reply:
                    answer: Answer | PendingAnswer | DelayedAnswer = reply
                    return answer

        return DelayedAnswer(self.calls.append, resume, self.close)

    def close(self) -> None:
        self.closed += 1

    def call_all(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def replies_to(request: QueuedRequest) -> list[Reply]:
    mailbox = request.reply_target
    assert isinstance(mailbox, Mailbox)
    return mailbox.replies


async def delaying(nursery: trio.Nursery, delays: Delays) -> HandlerPool:
    pool = HandlerPool(RequestChannel(100), delays.handle, 1)
    await nursery.start(pool.run)
    return pool


async def test_a_delayed_answer_holds_no_slot_and_no_task_and_comes_in_the_turn_of_the_call(nursery):
    delays = Delays([b"answer"])
    pool = await delaying(nursery, delays)
    requests = [new_request(number) for number in range(50)]
    for request in requests:
        pool.submit(request)
    assert (len(delays.calls), pool.statistics().delayed, pool.statistics().idle) == (50, 50, 1)
    delays.call_all()
    assert [replies_to(request) for request in requests] == [[[b"answer"]]] * 50
    assert all(request.waits and request.waits.disk_ns for request in requests)
    statistics = pool.statistics()
    assert (statistics.delayed, statistics.in_flight, statistics.answered, statistics.failed) == (0, 0, 50, 0)
    assert not pool._resting, "no worker was ever started"


async def test_what_a_delayed_answer_waits_for_next_may_need_a_task_or_another_call(nursery):
    async def last() -> Answer:
        await checkpoint()
        return [b"last"]

    delays = Delays("again", last())
    pool = await delaying(nursery, delays)
    request = new_request()
    pool.submit(request)
    delays.call_all()
    assert (len(delays.calls), replies_to(request)) == (1, [])
    delays.call_all()
    assert await reply_of(request) == [b"last"]
    statistics = pool.statistics()
    assert (statistics.delayed, statistics.in_flight, statistics.idle) == (0, 0, 1)


async def test_a_request_from_the_queue_may_be_delayed_and_its_worker_goes_on(nursery):
    gate, delays = Gate(), Delays([b"delayed"])
    handlers: list[Handle] = [gate.handle, delays.handle, lambda request: [b"at once"]]
    pool = HandlerPool(RequestChannel(100), lambda request: handlers[request.header.correlation_id](request), 1)
    await nursery.start(pool.run)
    held, delayed, last = await send(pool, 3)
    assert pool.channel.statistics().depth == 2
    gate.opened.set()
    assert await reply_of(held) == [b"answer"]
    assert await reply_of(last) == [b"at once"]
    await wait_all_tasks_blocked()
    assert (replies_to(delayed), pool.statistics().delayed, pool.statistics().idle) == ([], 1, 1)
    delayed.release_handler(RequestPhase.DISK)
    assert pool.statistics().idle == 1, "its worker's slot is not its own any more"
    delays.call_all()
    assert replies_to(delayed) == [[b"delayed"]]
    assert pool.statistics().delayed == 0


async def test_a_delayed_answer_that_fails_ends_its_connection_only(nursery, caplog):
    delays = Delays(ValueError("a bug"))
    pool = await delaying(nursery, delays)
    request = new_request()
    pool.submit(request)
    delays.call_all()
    reply = await reply_of(request)
    assert isinstance(reply, CloseConnection)
    assert reply.cause is CloseCause.FAILURE
    assert (pool.statistics().failed, pool.statistics().delayed) == (1, 0)


async def test_delayed_requests_are_given_up_when_the_pool_ends(nursery):
    delays = Delays([b"answer"])
    pool = HandlerPool(RequestChannel(100), delays.handle, 1)
    async with trio.open_nursery() as inner:
        await inner.start(pool.run)
        requests = await send(pool, 3)
        inner.cancel_scope.cancel()
    late = new_request()
    pool.submit(late)
    for request in (*requests, late):
        [reply] = replies_to(request)
        assert isinstance(reply, CloseConnection)
        assert reply.cause is CloseCause.STOPPING
    delays.call_all()
    assert delays.closed == 4
    assert (pool.statistics().delayed, pool.statistics().in_flight) == (0, 0)


@pytest.mark.parametrize("end", ["a slot is added", "the slot is given back", "the request before is answered"])
async def test_a_queued_request_is_handled_at_whatever_moment(nursery, autojump_clock, end):
    async def new_race() -> Race[Reply]:
        opened, goes_on = trio.Event(), trio.Event()

        async def handle(request: QueuedRequest) -> Answer:
            if request.header.correlation_id == 0:
                await opened.wait()
                request.release_handler()
                await goes_on.wait()
            return [b"answer"]

        pool = HandlerPool(RequestChannel(1), handle, 1)
        await nursery.start(pool.run)
        first, *others = (new_request(number) for number in range(3))
        for request in (first, *others):
            pool.submit(request)
        if end == "the request before is answered":
            goes_on.set()
        event = partial(pool.resize, 2) if end == "a slot is added" else opened.set
        return Race(partial(reply_of, others[-1]), event)

    assert await outcomes(new_race) == [[b"answer"]] * RACES
    nursery.cancel_scope.cancel()
