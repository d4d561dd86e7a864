"""Periodic tasks: retention, checkpoints, expiry, background flushes.

Each task is a function that does one run. A run that fails is logged, and the next one is started after the interval as
usual (``barrier``). Runs do their file work in worker threads of their own limiter, so they never delay a produce or a
fetch that waits for a thread.

Source: the intervals are Kafka's, by their keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio

from trio_broker.concurrency.barrier import Barrier, start_background

NEVER_MS = 2**63 - 1
"""What Kafka writes for "no interval": the largest long, in milliseconds."""

MAX_SLEEP_SECONDS = 86_400.0
"""No single sleep is longer, so that an interval of centuries needs no special case and a shorter one is noticed."""


@attrs.frozen
class ScheduledTask:
    """A periodic task. ``interval_ms`` is called before every run, so a live change counts from the next run on.

    The first run comes one interval after ``initial_delay_ms``.
    """

    name: str
    interval_ms: Callable[[], int]
    run: Callable[[], Awaitable[object]]
    initial_delay_ms: int = 0


def start_scheduled(nursery: trio.Nursery, task: ScheduledTask) -> None:
    """Run ``task`` at its interval until ``nursery`` is cancelled, in a task of Trio by its name."""
    start_background(nursery, task.name, partial(run_scheduled, task))


async def run_scheduled(task: ScheduledTask) -> None:
    """Run ``task`` at its interval until cancelled, whatever its runs raise."""
    barrier = barrier_of(task)
    await trio.sleep(task.initial_delay_ms / 1000)
    while True:
        interval_ms = task.interval_ms()
        # An interval above a day runs once a day. With "never" only the setting is read again after a day.
        await trio.sleep(min(interval_ms / 1000, MAX_SLEEP_SECONDS))
        if interval_ms < NEVER_MS:
            with barrier:
                await task.run()


async def run_once(task: ScheduledTask) -> None:
    """Do one run; log an exception instead of raising it."""
    with barrier_of(task):
        await task.run()


def barrier_of(task: ScheduledTask) -> Barrier:
    return Barrier(task.name, "it is tried again at the next interval")
