"""The same work for many things, some of them at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

import trio

from trio_broker.concurrency.barrier import start_once

T = TypeVar("T")

SIDE_BY_SIDE: Final = 64
"""Works that are under way at a time: more than a log directory has threads for, by default, so that none of these
waits for the event loop."""


async def side_by_side(part: str, things: Collection[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do ``work`` for each of ``things``, ``SIDE_BY_SIDE`` at a time; return when all has ended.

    ``part`` is the name of the tasks. What ``work`` raises is a bug, and ends the task that met it.
    """
    remaining = iter(things)

    async def work_off() -> None:
        for thing in remaining:
            await work(thing)

    async with trio.open_nursery() as nursery:
        for _ in range(min(len(things), SIDE_BY_SIDE)):
            start_once(nursery, part, work_off)
