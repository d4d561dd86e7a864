"""What comes round by the clock: retention, checkpoints, expiry, background flushes.

Each task is a function that does one round. A round that fails is logged, and the next one comes all the same: an
exception that left its task would end the nursery, and with it the broker. Rounds do their file work in worker threads
of their own limiter, so they can never keep a produce or a fetch from its thread.

Source: the intervals are Kafka's, by their keys.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

log = logging.getLogger(__name__)

NEVER_MS = 2**63 - 1
"""What Kafka writes for "no interval": the largest long, in milliseconds."""

MAX_SLEEP_SECONDS = 86_400.0
"""No single sleep is longer, so that an interval of centuries needs no special case and a shorter one is noticed."""


@attrs.frozen
class ScheduledTask:
    """One thing to do again and again. ``interval_ms`` is asked before every round, so a live change counts at once."""

    name: str
    interval_ms: Callable[[], int]
    run: Callable[[], Awaitable[object]]


async def run_scheduled(task: ScheduledTask, initial_delay_ms: int = 0) -> None:
    """Do the rounds of ``task`` until cancelled, whatever they raise."""
    await trio.sleep(initial_delay_ms / 1000)
    while True:
        interval_ms = task.interval_ms()
        await trio.sleep(min(interval_ms / 1000, MAX_SLEEP_SECONDS))
        if interval_ms < NEVER_MS:
            await run_once(task)


async def run_once(task: ScheduledTask) -> None:
    """One round, and the barrier around it."""
    try:
        await task.run()
    except Exception:
        log.exception("%s failed; it is tried again at the next interval", task.name)
