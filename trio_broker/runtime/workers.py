"""Threads as the broker sees them: blocking work that is done beside the event loop.

The real ones are threads of this process. The simulated ones do the work on the event loop, after a delay that follows
from the seed, so that every order in which threads could end is one that a simulation can try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class Workers(Protocol):
    """What does blocking work."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        """Return the result of ``work``, done in a thread under ``limiter``. Not cancellable once it has begun."""
        ...
