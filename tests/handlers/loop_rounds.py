"""Counts the rounds of the event loop that another task gets while a handler works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio


@attrs.define
class LoopRounds:
    """``count`` grows by one whenever the other task has run."""

    count: int = 0

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.count += 1


@asynccontextmanager
async def counted_rounds() -> AsyncIterator[LoopRounds]:
    """Count for as long as the block lasts."""
    rounds = LoopRounds()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.run)
        await trio.lowlevel.checkpoint()
        yield rounds
        nursery.cancel_scope.cancel()
