"""The clock of brokers in tests."""

from __future__ import annotations

import time

import trio
import trio.testing

from trio_broker.testing.advancing_clock import AdvancingClock


def test_it_tells_the_time_of_the_machine():
    clock = AdvancingClock()
    before_ms = time.time_ns() // 1_000_000
    assert before_ms <= clock.now_ms() <= time.time_ns() // 1_000_000


def test_advancing_moves_both_readings():
    clock = AdvancingClock()
    at_ms, at = clock.now_ms(), clock.monotonic()
    clock.advance(1000)
    assert clock.now_ms() >= at_ms + 1_000_000
    assert clock.monotonic() >= at + 1000


def test_a_sleeping_task_wakes_when_the_clock_passes_its_deadline():
    clock = AdvancingClock()

    async def sleep_an_hour() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 3600)
            await trio.testing.wait_all_tasks_blocked()
            clock.advance(3600)

    before = time.monotonic()
    trio.run(sleep_an_hour, clock=clock)
    assert time.monotonic() - before < 60
