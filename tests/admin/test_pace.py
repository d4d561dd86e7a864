"""Searches leave the event loop to requests."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import pytest
import trio

from broker_admin.messages import pace
from broker_admin.messages.pace import IDLE_ROUNDS_SECONDS, MAX_ROUNDS, SLICE_SECONDS, run_slice, wait_for_idle_rounds


async def test_a_slice_waits_while_other_tasks_take_the_time_of_the_event_loop() -> None:
    steps = 0

    async def keep_busy() -> None:
        nonlocal steps
        while True:
            steps += 1
            ends_at = perf_counter() + 2 * IDLE_ROUNDS_SECONDS
            while perf_counter() < ends_at:
                pass
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_busy)
        await trio.lowlevel.checkpoint()
        before = steps
        await wait_for_idle_rounds()
        # Which of the two tasks comes first in a round is chance.
        assert MAX_ROUNDS - 1 <= steps - before <= MAX_ROUNDS + 1
        nursery.cancel_scope.cancel()


def test_a_slice_counts_the_time_that_its_thread_had_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the wall's clock it would end with nothing done on a machine whose CPUs others have."""
    used = 0.0
    monkeypatch.setattr(pace, "thread_time", lambda: used)
    monkeypatch.setattr(pace, "perf_counter", lambda: 1e9)
    taken = 0

    def work() -> Iterator[None]:
        nonlocal used, taken
        while True:
            taken += 1
            used += SLICE_SECONDS / 4
            yield

    assert not run_slice(work())
    assert taken == 4
