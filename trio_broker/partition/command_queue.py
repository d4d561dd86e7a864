"""Commands that are executed one at a time, in their order of arrival.

A command that need not wait is an ordinary call: it has no checkpoint, so it is made where ``is_busy`` is false, and
nothing can come between. One that must wait, for a worker thread or for those before it, goes through ``execute``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from trio.lowlevel import ParkingLot

T = TypeVar("T")


class CommandQueue:
    """See the head of the file. ``is_busy`` is an attribute, since every append reads it."""

    def __init__(self) -> None:
        self.is_busy = False
        self._waiting = ParkingLot()

    async def execute(self, command: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``command``, which is called once all that came before has ended.

        It is then carried to its end: a caller that is cancelled meanwhile would leave what a thread did to the files
        without what has to follow from it.
        """
        if self.is_busy:
            # Cancelled here, it was never begun; otherwise the one that ended has left ``is_busy`` set for it.
            await self._waiting.park()
        self.is_busy = True
        try:
            with trio.CancelScope(shield=True):
                result = await command()
            # Behind the scope, which by its type could have swallowed the result.
            return result  # noqa: RET504
        finally:
            if self._waiting:
                self._waiting.unpark()
            else:
                self.is_busy = False

    async def wait_idle(self) -> None:
        """Wait until all that has come so far has ended."""
        await self.execute(trio.lowlevel.checkpoint)
