"""The queue of threads: what runs at a time, what is reported together, and what remains when it stops."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Sequence

import outcome
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.waits import within
from trio_broker.runtime.real_workers import WAKE, RealWorkers, ThreadWorkQueue, wakeup_descriptors

WAIT_SECONDS = 20


class Gates:
    """Work that begins, and ends once it is let through. ``reports`` has what was reported together."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.started: list[int] = []
        self.reports: list[list[int]] = []
        self.reported = trio.Event()

    def work(self, item: int) -> None:
        self.started.append(item)
        self.begun.release()
        assert within(lambda seconds: self.gate.acquire(timeout=seconds), WAIT_SECONDS)

    def ended(self, items: Sequence[int]) -> None:
        self.reports.append(list(items))
        self.reported.set()
        self.reported = trio.Event()

    def make_queue(self, threads: int) -> ThreadWorkQueue[int]:
        return RealWorkers().queue(self.work, self.ended, threads=threads)

    async def wait_begun(self, count: int) -> None:
        for _ in range(count):
            assert await trio.to_thread.run_sync(
                lambda: within(lambda seconds: self.begun.acquire(timeout=seconds), WAIT_SECONDS)
            )

    async def wait_reported(self, count: int) -> None:
        while sum(map(len, self.reports)) < count:
            await self.reported.wait()


@pytest.fixture
def gates() -> Gates:
    return Gates()


async def test_items_begin_in_order_and_no_more_at_a_time_than_there_are_threads(gates: Gates, nursery: trio.Nursery):
    queue = gates.make_queue(2)
    for item in range(5):
        queue.put(item)
    await nursery.start(queue.run)
    await gates.wait_begun(2)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(gates.started) == [0, 1]
    gates.gate.release()
    await gates.wait_begun(1)
    assert gates.started[2:] == [2]
    for _ in range(4):
        gates.gate.release()
    await gates.wait_reported(5)
    assert sorted(item for report in gates.reports for item in report) == list(range(5))


async def test_items_that_end_before_the_loop_looks_are_reported_together(gates: Gates, nursery: trio.Nursery):
    queue = gates.make_queue(1)
    await nursery.start(queue.run)
    for item in range(3):
        queue.put(item)
    await gates.wait_begun(1)
    # Without a checkpoint from here on, the loop cannot look before the last of them has begun.
    for _ in range(3):
        gates.gate.release()
    for _ in (1, 2):
        assert within(lambda seconds: gates.begun.acquire(timeout=seconds), WAIT_SECONDS)
    await gates.wait_reported(3)
    assert gates.reports[0][:2] == [0, 1]


async def test_a_pipe_wakes_the_loop_where_there_is_no_eventfd(
    gates: Gates, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(os, "eventfd")
    woken, waking = wakeup_descriptors()
    assert woken != waking
    for descriptor in (woken, waking):
        os.close(descriptor)
    queue = gates.make_queue(1)
    await nursery.start(queue.run)
    for item in range(3):
        queue.put(item)
        gates.gate.release()
        await gates.wait_reported(item + 1)
    assert sorted(item for report in gates.reports for item in report) == [0, 1, 2]


async def test_items_that_end_before_the_loop_looks_wake_it_once(
    gates: Gates, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
):
    write, wakes = os.write, []

    def counted_write(number: int, data: bytes) -> int:
        if data is WAKE:
            wakes.append(data)
        return write(number, data)

    monkeypatch.setattr(os, "write", counted_write)
    queue = gates.make_queue(1)
    await nursery.start(queue.run)
    for item in range(3):
        queue.put(item)
    await gates.wait_begun(1)
    # Without a checkpoint from here on, the loop cannot look before the last of them has begun.
    for _ in (1, 2):
        gates.gate.release()
        assert within(lambda seconds: gates.begun.acquire(timeout=seconds), WAIT_SECONDS)
    assert len(wakes) == 1
    gates.gate.release()
    await gates.wait_reported(3)


async def test_a_surplus_thread_finishes_its_item_and_takes_no_other(gates: Gates, nursery: trio.Nursery):
    queue = gates.make_queue(2)
    await nursery.start(queue.run)
    for item in range(4):
        queue.put(item)
    await gates.wait_begun(2)
    queue.resize(1)
    gates.gate.release()
    gates.gate.release()
    await gates.wait_begun(1)
    await gates.wait_reported(2)
    await trio.testing.wait_all_tasks_blocked()
    assert len(gates.started) == 3, "one thread is left, and it has an item"
    for _ in range(2):
        gates.gate.release()
    await gates.wait_reported(4)


async def test_threads_of_a_queue_hold_no_token_that_other_work_needs(gates: Gates, nursery: trio.Nursery):
    queue = gates.make_queue(2)
    await nursery.start(queue.run)
    for item in range(2):
        queue.put(item)
    await gates.wait_begun(2)
    assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    for _ in range(2):
        gates.gate.release()


async def test_more_threads_take_what_waits_at_once(gates: Gates, nursery: trio.Nursery):
    queue = gates.make_queue(1)
    await nursery.start(queue.run)
    for item in range(3):
        queue.put(item)
    await gates.wait_begun(1)
    queue.resize(3)
    await gates.wait_begun(2)
    for _ in range(3):
        gates.gate.release()
    await gates.wait_reported(3)


async def test_a_stop_waits_for_what_is_worked_on_and_drops_the_rest(gates: Gates):
    queue = gates.make_queue(1)
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        for item in range(3):
            queue.put(item)
        await gates.wait_begun(1)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        gates.gate.release()
    assert gates.started == [0]
    assert gates.reports == [[0]]
    assert trio.testing.active_thread_count() == 0


@pytest.mark.parametrize(
    "error", [BlockingIOError("the socket is full"), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)]
)
async def test_what_a_refused_work_refers_to_is_freed_at_once(error: Exception) -> None:
    """Not when the collector comes: it may be an open file whose space is wanted back."""

    class Held:
        def work(self) -> None:
            raise error

    held = Held()
    freed = weakref.ref(held)
    gc.disable()
    try:
        result = await outcome.acapture(RealWorkers().run, held.work)
        del held
        assert isinstance(result, outcome.Error)
        assert freed() is None
    finally:
        gc.enable()


async def test_a_bug_in_a_thread_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await RealWorkers().run(lambda: 1 // 0)
    assert caught.traceback[-1].name == "<lambda>"
