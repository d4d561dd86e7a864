"""The time that a task may hold the event loop, by Trio's clock."""

from __future__ import annotations

import socket

import trio
import trio.testing

from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import (
    InTurns,
    YieldBudget,
    clear_in_turns,
    partition_in_turns,
    sorted_distinct,
)


async def test_a_budget_is_spent_when_its_time_is_over_and_new_after_a_yield(mock_clock: trio.testing.MockClock):
    budget = YieldBudget(5)
    with trio.testing.assert_no_checkpoints():
        mock_clock.jump(4.9)
        await budget.maybe_yield()
        assert not budget.is_spent
        mock_clock.jump(0.2)
        assert budget.is_spent
    with trio.testing.assert_checkpoints():
        await budget.maybe_yield()
    assert not budget.is_spent


async def test_items_that_take_no_time_come_without_a_checkpoint(mock_clock: trio.testing.MockClock):
    with trio.testing.assert_no_checkpoints():
        assert [item async for item in InTurns(range(100_000))] == list(range(100_000))


async def test_values_are_sorted_each_once_in_turns(monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    values = [(number * 7919) % 5000 for number in range(12_000)]
    steps = sorted_distinct(values)
    assert sum(1 for _ in steps) == 12
    assert list(await run_steps(sorted_distinct(values))) == sorted(set(values))
    assert list(await run_steps(sorted_distinct(iter("")))) == []


async def test_containers_are_emptied_in_turns(monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    numbers, names = list(range(10)), dict.fromkeys("abc")
    assert sum(1 for _ in clear_in_turns(numbers, names)) == 13
    assert not numbers
    assert not names


async def test_values_are_divided_in_turns(monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    assert sum(1 for _ in partition_in_turns(range(7), bool)) == 7
    assert await run_steps(partition_in_turns(range(7), lambda number: number % 3 == 0)) == ([0, 3, 6], [1, 2, 4, 5])


async def test_what_has_come_by_the_time_of_a_yield_is_served_before_the_next_turn():
    near, far = socket.socketpair()
    far.setblocking(False)
    served = 0

    async def serve() -> None:
        nonlocal served
        while True:
            await trio.lowlevel.wait_readable(far)
            served += len(far.recv(1))

    budget = YieldBudget(-1)
    with near, far:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(100):
                near.send(b"x")
                await budget.renewed()
                assert served == number + 1
            nursery.cancel_scope.cancel()
