"""Blocking work done on the event loop at once: what tests use that are about neither threads nor the disk's time.

Each piece of work in a thread costs three switches of threads, which are half of the CPU of a test that opens a broker
on files in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import outcome
import trio
from trio.lowlevel import cancel_shielded_checkpoint

from trio_broker.runtime.simulated_workers import SimulatedWorkers, nothing

T = TypeVar("T")


class InlineWorkers(SimulatedWorkers):
    """See ``Workers``: without delays, so that work begins and ends in the order in which it was asked for."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        return await self.run_unlimited(work)

    async def run_unlimited(self, work: Callable[[], T], thread_is_free: Callable[[], object] = nothing) -> T:
        await cancel_shielded_checkpoint()
        result = outcome.capture(work)
        thread_is_free()
        await cancel_shielded_checkpoint()
        return result.unwrap()
