"""Simulated threads: one order for each seed, many orders for many seeds, and the rules of real threads in each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import trio
from trio._core._run import _r as trio_random

from trio_broker.runtime.simulated_workers import SimulatedWorkers

Trace = list[str]


@pytest.fixture(autouse=True)
def scheduling_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Trio choose between tasks by its own random numbers alone, which ``trace_of`` seeds."""
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)


async def several_at_a_time(workers: SimulatedWorkers, trace: Trace, limiter: trio.CapacityLimiter | None) -> None:
    async def one(number: int) -> None:
        await workers.run(partial(trace.append, f"work {number}"), limiter=limiter)
        trace.append(f"result {number}")

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(one, number)


async def six_items(workers: SimulatedWorkers, trace: Trace, threads: int) -> None:
    done = trio.Event()

    def ended(items: Sequence[int]) -> None:
        trace.append(f"ended {list(items)}")
        reported.extend(items)
        if len(reported) == 6:
            done.set()

    reported: list[int] = []
    queue = workers.queue(lambda item: trace.append(f"work {item}"), ended, threads=threads)
    async with trio.open_nursery() as nursery:
        for number in range(3):
            queue.put(number)
        await nursery.start(queue.run)
        for number in range(3, 6):
            queue.put(number)
        await done.wait()
        nursery.cancel_scope.cancel()


def trace_of(scenario: Callable[..., object], seed: int, *arguments: object) -> Trace:
    trace: Trace = []
    trio_random.seed(seed)
    trio.run(scenario, SimulatedWorkers(random.Random(seed)), trace, *arguments, clock=autojump())  # type: ignore[arg-type]
    return trace


def autojump() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


SCENARIOS = [(several_at_a_time, None), (six_items, 3)]


@pytest.mark.parametrize(("scenario", "argument"), SCENARIOS)
def test_a_seed_gives_the_same_order_each_time(scenario, argument):
    for seed in range(20):
        assert trace_of(scenario, seed, argument) == trace_of(scenario, seed, argument)


@pytest.mark.parametrize(("scenario", "argument"), SCENARIOS)
def test_many_seeds_give_many_orders(scenario, argument):
    assert len({tuple(trace_of(scenario, seed, argument)) for seed in range(20)}) == 20


def test_results_come_after_the_work_and_not_in_the_order_of_it():
    traces = [trace_of(several_at_a_time, seed, None) for seed in range(20)]
    for trace in traces:
        for number in range(6):
            assert trace.index(f"work {number}") < trace.index(f"result {number}")
    orders = [
        ([entry[5:] for entry in trace if "work" in entry], [entry[7:] for entry in trace if "result" in entry])
        for trace in traces
    ]
    assert any(works != results for works, results in orders)


def test_one_thread_does_items_in_order():
    for seed in range(20):
        trace = trace_of(six_items, seed, 1)
        assert [entry for entry in trace if entry.startswith("work")] == [f"work {number}" for number in range(6)]


def test_items_that_end_close_together_are_reported_together_in_some_orders():
    reports = [entry for seed in range(20) for entry in trace_of(six_items, seed, 3) if entry.startswith("ended")]
    assert any("," in report for report in reports)


async def test_a_limiter_bounds_what_is_under_way_though_its_caller_holds_a_token(autojump_clock):
    limiter = trio.CapacityLimiter(2)
    workers, highest = SimulatedWorkers(random.Random(1)), 0

    def note() -> None:
        nonlocal highest
        highest = max(highest, int(limiter.borrowed_tokens))

    async with limiter:
        await workers.run(note, limiter=limiter)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(partial(workers.run, note, limiter=limiter))
    assert highest == 2
    assert limiter.borrowed_tokens == 0


async def test_what_work_raises_is_raised_by_the_call(autojump_clock):
    def fail() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        await SimulatedWorkers(random.Random(1)).run(fail)


async def test_work_that_has_begun_is_done_in_spite_of_a_cancellation(autojump_clock):
    done: list[bool] = []
    with trio.CancelScope(deadline=trio.current_time() + 1e-9):
        await SimulatedWorkers(random.Random(1)).run(partial(done.append, True))
        assert done, "the cancellation comes at the next checkpoint"
    with trio.CancelScope() as scope:
        scope.cancel()
        await SimulatedWorkers(random.Random(1)).run(partial(done.append, False))
    assert done == [True], "what has not begun is not done"


async def test_the_time_that_a_slow_disk_takes_lies_between_the_work_and_its_result(autojump_clock):
    disk_seconds = 0.0
    done_at = 0.0

    def take_seconds() -> float:
        nonlocal disk_seconds
        taken, disk_seconds = disk_seconds, 0.0
        return taken

    def slow_sync() -> None:
        nonlocal disk_seconds, done_at
        disk_seconds += 30.0
        done_at = trio.current_time()

    workers = SimulatedWorkers(random.Random(1), take_seconds)
    disk_seconds = 100.0  # of somebody else, before
    await workers.run(slow_sync)
    assert 30.0 <= trio.current_time() - done_at < 40.0


async def test_a_thread_of_a_queue_is_taken_and_nothing_reported_while_the_disk_is_slow(autojump_clock):
    seconds_of: list[float] = []
    begun: list[float] = []
    reported: dict[float, float] = {}

    def work(seconds: float) -> None:
        begun.append(seconds)
        seconds_of.append(seconds)

    def take_seconds() -> float:
        return seconds_of.pop() if seconds_of else 0.0

    def ended(items: Sequence[float]) -> None:
        reported.update(dict.fromkeys(items, trio.current_time()))

    queue = SimulatedWorkers(random.Random(1), take_seconds).queue(work, ended, threads=2)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        for seconds in (30.0, 20.0, 1.0):
            queue.put(seconds)
        await trio.sleep(10)
        assert (begun, reported) == ([30.0, 20.0], {})
        await trio.sleep(40)
        nursery.cancel_scope.cancel()
    assert {item: round(at - start) for item, at in reported.items()} == {20.0: 20, 1.0: 21, 30.0: 30}


async def test_a_stop_waits_for_what_is_worked_on_and_drops_the_rest(autojump_clock):
    begun: list[int] = []
    ended: list[int] = []
    queue = SimulatedWorkers(random.Random(1)).queue(begun.append, ended.extend, threads=2)
    async with trio.open_nursery() as nursery:
        for number in range(5):
            queue.put(number)
        await nursery.start(queue.run)
        nursery.cancel_scope.cancel()
    assert sorted(begun) == sorted(ended) == [0, 1]


async def test_a_queue_of_another_size_works_on_so_many_items_from_then_on(autojump_clock):
    begun: list[int] = []
    workers = SimulatedWorkers(random.Random(1))
    queue = workers.queue(begun.append, lambda numbers: None, threads=4)
    queue.resize(1)
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        for number in range(20):
            queue.put(number)
        await trio.sleep(10)
        assert begun == list(range(20)), "one after the other"
        queue.resize(4)
        for number in range(20, 40):
            queue.put(number)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert begun[20:] != list(range(20, 40))
    assert sorted(begun) == list(range(40))
