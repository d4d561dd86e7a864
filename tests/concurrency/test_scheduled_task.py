"""Duties come round by the clock, whatever a round does."""

from __future__ import annotations

import logging

import trio

from trio_broker.concurrency.scheduled_task import NEVER_MS, ScheduledTask, start_scheduled


async def test_a_round_that_fails_is_logged_and_the_next_one_comes(nursery, autojump_clock, caplog):
    rounds = []

    async def fail() -> None:
        rounds.append(trio.current_time())
        raise RuntimeError("broken")

    start_scheduled(nursery, ScheduledTask("sweeping", lambda: 1000, fail))
    with caplog.at_level(logging.ERROR):
        await trio.sleep(3.5)
    assert len(rounds) == 3
    assert "sweeping failed" in caplog.text


async def test_a_changed_interval_counts_from_the_next_round_on(nursery, autojump_clock):
    intervals = [1000, 5000]
    rounds = []

    async def note() -> None:
        rounds.append(trio.current_time())
        intervals.pop(0)

    begin = trio.current_time()
    start_scheduled(nursery, ScheduledTask("sweeping", lambda: intervals[0] if intervals else NEVER_MS, note))
    await trio.sleep(80_000)
    assert [round(moment - begin) for moment in rounds] == [1, 6]


async def test_the_first_round_comes_an_interval_after_the_initial_delay(nursery, autojump_clock):
    rounds = []

    async def note() -> None:
        rounds.append(trio.current_time())

    begin = trio.current_time()
    start_scheduled(nursery, ScheduledTask("sweeping", lambda: 1000, note, initial_delay_ms=30_000))
    await trio.sleep(32.5)
    assert [round(moment - begin) for moment in rounds] == [31, 32]
