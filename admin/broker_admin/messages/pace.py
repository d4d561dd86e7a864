"""Work of low priority: Python in a worker thread, in slices, each begun when the event loop has nothing to do.

Only one thread at a time runs Python, and a thread that computes would hold up the event loop for the five milliseconds
after which the interpreter takes turns by itself. So a slice is short, and the next one waits until the event loop had
nothing else to do for two rounds, or has waited long enough.

Source: docs/decisions/0026-compaction-in-slices.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, thread_time

import trio

SLICE_SECONDS = 0.0005
"""Of CPU time. A request that comes meanwhile waits for the end of a slice. Handing one to a thread takes about a sixth
of that. Time in which the thread waits for a CPU is none of it: on a busy machine slices would end with nothing done.
"""

MAX_ROUNDS = 40
"""Rounds of the event loop that a slice waits for an idle one: a busy broker slows searches down, and stops none."""

IDLE_ROUNDS_SECONDS = 0.00005
"""Two rounds of the event loop that take longer ran other tasks: alone they take some ten microseconds, and a small
request takes a hundred. Trio shuffles the tasks of a round, so others are sure to have run within two, not within one.
How many tasks can run does not tell: those of the present round are not among them.
"""


def run_slice(work: Iterator[None]) -> bool:
    """Go on with ``work`` for a slice; whether it has ended. Runs in a worker thread."""
    ends_at = thread_time() + SLICE_SECONDS
    return all(thread_time() < ends_at for _ in work)


async def run_in_slices(work: Iterator[None], limiter: trio.CapacityLimiter) -> None:
    """Do all of ``work`` in worker threads, a slice at a time."""
    while not await trio.to_thread.run_sync(run_slice, work, limiter=limiter):
        await wait_for_idle_rounds()


async def wait_for_idle_rounds() -> None:
    """Let other tasks run until two rounds were idle, or ``MAX_ROUNDS`` have passed."""
    for _ in range(MAX_ROUNDS // 2):
        began = perf_counter()
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        if perf_counter() - began < IDLE_ROUNDS_SECONDS:
            return
