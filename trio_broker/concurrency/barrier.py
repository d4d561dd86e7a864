"""Barriers: what an exception may cost, where nobody is there to be refused.

An exception that leaves a task of Trio cancels its nursery, and so, from nursery to nursery, ends the broker. Hence
every task that the broker starts is started here: by ``start_background`` if it lasts as long as its nursery, by
``start_once`` if it ends by itself. What fails is a bug, since errors of disks and clients are answered where they
occur. It is logged with its traceback, and the task begins again or has ended; everything else goes on.

Cancellation and KeyboardInterrupt pass, also where they come together with a bug.

Source: docs/decisions/0066-no-task-ends-the-broker.md.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType

import attrs
import trio

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
"""Before what has failed is tried again the first time: most bugs need a moment that does not come twice."""

LONGEST_PAUSE_SECONDS = 60.0
"""Between two tries of what fails each time: a minute without it is short against a restart of the broker."""


@attrs.define
class Barrier:
    """A context that logs what its block raises, by the name ``part``, and goes on behind it.

    ``consequence`` says what follows. One that is entered again and again logs the first, second, fourth, eighth …
    failure in a row, so that a bug that stays does not fill the log.
    """

    part: str
    consequence: str
    _failures: int = attrs.field(default=0, init=False)

    @property
    def has_failed(self) -> bool:
        """Whether the last block raised."""
        return self._failures > 0

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            self._failures = 0
        elif isinstance(error, Exception):
            self._note(error)
        elif isinstance(error, BaseExceptionGroup):
            bugs, others = error.split(Exception)
            if bugs is not None and others is not None:
                self._note(bugs)
                raise others
        return isinstance(error, Exception)

    def _note(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures.bit_count() == 1:
            again = f" for the {self._failures}th time in a row" if self._failures > 2 else ""
            log.error("%s failed%s; %s", self.part, again, self.consequence, exc_info=error)


@attrs.define
class Backoff:
    """How long to wait before something that fails is tried again: twice as long each time, up to
    ``longest_pause_seconds``; once it has worked for longer than that, as at the first time."""

    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    _pause_seconds: float = attrs.field(default=0.0, init=False)
    _tried_again_at: float = attrs.field(default=-math.inf, init=False)

    def next_pause(self) -> float:
        """It has failed: the seconds to wait now."""
        now = trio.current_time()
        has_worked = now - self._tried_again_at > self.longest_pause_seconds
        doubled = min(2 * self._pause_seconds, self.longest_pause_seconds)
        self._pause_seconds = self.first_pause_seconds if has_worked else doubled
        self._tried_again_at = now + self._pause_seconds
        return self._pause_seconds


def start_background(nursery: trio.Nursery, name: str, run: Callable[[], Awaitable[object]]) -> None:
    """Have ``run`` run until ``nursery`` is cancelled or it returns. One that fails begins again after a pause."""
    nursery.start_soon(run_background, name, run, name=name)


@asynccontextmanager
async def background_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends. What the block raises leaves it as it is, in no group:
    for blocks of context managers, whose callers know nothing of the tasks."""
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def run_background(name: str, run: Callable[[], Awaitable[object]]) -> None:
    """As ``start_background``, in the calling task."""
    barrier, backoff = Barrier(name, "it begins again"), Backoff()
    while True:
        with barrier:
            await run()
            return
        await trio.sleep(backoff.next_pause())


def start_once(nursery: trio.Nursery, name: str, run: Callable[[], Awaitable[object]]) -> None:
    """Have ``run`` run, which ends by itself and says to others how, in a task of ``nursery``."""
    nursery.start_soon(run_to_end, name, run, name=name)


async def run_to_end(name: str, run: Callable[[], Awaitable[object]]) -> None:
    """As ``start_once``, in the calling task."""
    with Barrier(name, "it has ended"):
        await run()
