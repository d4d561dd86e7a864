"""Threads of a machine in memory: work is done on the event loop, after a delay that follows from the seed.

A thread of a real machine begins some time after it was asked for, and the event loop takes notice some time after it
has ended. Both delays are drawn for each piece of work, so one seed is one order in which work begins, has its effects,
and is reported. Time is Trio's, so under a virtual clock a delay costs nothing.

The work itself takes no time on that clock. What it would have taken, for instance the seconds of a slow disk, is asked
for when it has ended (``seconds_taken``), and lies between its effects and the report of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import outcome
import trio

from trio_broker.runtime.randomness import Random

T = TypeVar("T")
Item = TypeVar("Item")

THREADS = 40
"""Without a limiter, as many pieces of work at a time as Trio's own default."""

USUAL_DELAY_SECONDS = 0.0002
"""Most delays are below: a thread that is woken on a machine with time."""

LONG_DELAY_SECONDS = 0.05
"""One delay in ``LONG_DELAY_ODDS`` is up to this: a thread that others keep from a processor. Whole rounds of requests
fit in between."""

LONG_DELAY_ODDS = 20


def no_seconds() -> float:
    """A machine on which blocking work takes no time."""
    return 0.0


def nothing() -> None:
    """What follows when nobody waits for the thread."""


class SimulatedWorkers:
    """See ``Workers``.

    ``seconds_taken`` is called before and after each piece of work, and returns how long all blocking calls since the
    last call of it took. The event loop takes notice of its end up to ``report_passes`` passes later than it is due:
    under a virtual clock that stands still meanwhile, it would else do so before anything else that is due then.
    """

    def __init__(
        self, random: Random, seconds_taken: Callable[[], float] = no_seconds, *, report_passes: int = 0
    ) -> None:
        self._random = random
        self._seconds_taken = seconds_taken
        self._report_passes = report_passes
        self._limiter = trio.CapacityLimiter(THREADS)

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        limiter = limiter or self._limiter
        borrower = object()  # as in a thread, the calling task may hold a token already
        await limiter.acquire_on_behalf_of(borrower)
        try:
            return await self.run_unlimited(work)
        finally:
            limiter.release_on_behalf_of(borrower)

    async def run_unlimited(self, work: Callable[[], T], thread_is_free: Callable[[], object] = nothing) -> T:
        """Do ``work`` between two delays; ``thread_is_free`` is called before the second. Not cancellable."""
        with trio.CancelScope(shield=True):
            await trio.sleep(self._delay())
            self._seconds_taken()
            result = outcome.capture(work)
            if seconds := self._seconds_taken():
                await trio.sleep(seconds)
            thread_is_free()
            await trio.sleep(self._delay())
            if self._report_passes:
                for _ in range(self._random.randrange(self._report_passes + 1)):
                    await trio.lowlevel.checkpoint()
        return result.unwrap()

    def queue(
        self, work: Callable[[Item], object], ended: Callable[[Sequence[Item]], object], *, threads: int
    ) -> SimulatedWorkQueue[Item]:
        return SimulatedWorkQueue(self, work, ended, threads)

    def _delay(self) -> float:
        is_long = self._random.randrange(LONG_DELAY_ODDS) == 0
        return self._random.uniform(0, LONG_DELAY_SECONDS if is_long else USUAL_DELAY_SECONDS)


class SimulatedWorkQueue(Generic[Item]):
    """See ``WorkQueue``. Items begin in the order in which they were put; the delays decide in which order they end,
    and which of them are reported together."""

    def __init__(
        self,
        workers: SimulatedWorkers,
        work: Callable[[Item], object],
        ended: Callable[[Sequence[Item]], object],
        threads: int,
    ) -> None:
        self.threads = threads
        self._workers = workers
        self._work = work
        self._ended = ended
        self._queue: deque[Item] = deque()
        self._done: list[Item] = []
        self._begun = 0
        self._nursery: trio.Nursery | None = None

    def put(self, item: Item, /) -> None:
        self._queue.append(item)
        self._begin()

    def resize(self, threads: int) -> None:
        self.threads = threads
        self._begin()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._begin()
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _begin(self) -> None:
        while self._nursery is not None and self._queue and self._begun < self.threads:
            self._begun += 1
            self._nursery.start_soon(self._run_item, self._queue.popleft(), name="work queue")

    async def _run_item(self, item: Item) -> None:
        def thread_is_free() -> None:
            # The thread takes the next item at once; the event loop learns of this one later.
            self._done.append(item)
            self._begun -= 1
            self._begin()

        await self._workers.run_unlimited(partial(self._work, item), thread_is_free)
        # With those that have ended during the second delay of this one.
        if done := self._done:
            self._done = []
            self._ended(done)
