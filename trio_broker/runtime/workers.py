"""Threads as the broker sees them: blocking work that is done beside the event loop.

The real ones are threads of this process. The simulated ones do the work on the event loop, after a delay that follows
from the seed, so that every order in which threads could end is one that a simulation can try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")
Item = TypeVar("Item")
Put = TypeVar("Put", contravariant=True)


class WorkQueue(Protocol[Put]):
    """Items, and threads of its own that take one after the other.

    It has as many threads as items were ever under way at a time, and no more than ``threads``. One that waits for an
    item costs nothing, and to wake it costs less than to hand the item to ``Workers.run``.
    """

    @property
    def threads(self) -> int:
        """How many items are worked on at a time, at most."""
        ...

    def put(self, item: Put, /) -> None:
        """Have the item done, which is anything but None. One that is put before ``run`` is done once that runs."""
        ...

    def resize(self, threads: int) -> None:
        """Change how many threads there may be. One that is surplus finishes its item first."""
        ...

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do what is put until cancelled; then wait for what is worked on, and drop the rest."""
        ...


class Workers(Protocol):
    """What does blocking work."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        """Return the result of ``work``, done in a thread under ``limiter``. Not cancellable once it has begun."""
        ...

    def queue(
        self, work: Callable[[Item], object], ended: Callable[[Sequence[Item]], object], *, threads: int
    ) -> WorkQueue[Item]:
        """Return a queue whose threads do ``work`` on each item; ``ended`` is called on the event loop with the items
        that have ended since its last call. Neither may raise."""
        ...
