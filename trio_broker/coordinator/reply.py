"""A request that waits for its answer, from the side of the one who asked.

The ticket under which a group keeps a request is a ``Reply``. The group answers in some later event, perhaps another
member's request; the answer wakes the task of the one who asked, which then still waits until the records that the
answer speaks of are safe.

Source: the idea is Kafka's CoordinatorRuntime, which completes a write when its records are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

NOTHING_AWAITED = -1


class Reply:
    """Room for one answer. Compared by identity, so it can be a ticket."""

    __slots__ = ("_event", "_response", "is_given", "required_offset")

    def __init__(self) -> None:
        self.is_given = False
        self.required_offset = NOTHING_AWAITED
        self._response: Any = None
        self._event: trio.Event | None = None

    def give(self, response: Any, required_offset: int = NOTHING_AWAITED) -> None:
        """Answer; the answer is true once the high watermark of the group's partition reaches ``required_offset``."""
        assert not self.is_given, f"answered twice: {self._response}, {response}"
        self._response = response
        self.required_offset = required_offset
        self.is_given = True
        if self._event is not None:
            self._event.set()

    async def wait(self, park: Callable[[], None]) -> Any:
        """The answer, as soon as it is given; ``park`` is called first if that takes others."""
        if not self.is_given:
            park()
            self._event = trio.Event()
            await self._event.wait()
        return self._response
