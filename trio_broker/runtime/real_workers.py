"""Threads of this process."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
Item = TypeVar("Item")


class RealWorkers:
    """See ``Workers``: the threads are Trio's."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        return await trio.to_thread.run_sync(work, limiter=limiter)

    def queue(
        self, work: Callable[[Item], object], ended: Callable[[Sequence[Item]], object], *, threads: int
    ) -> ThreadWorkQueue[Item]:
        return ThreadWorkQueue(work, ended, threads)


class ThreadWorkQueue(Generic[Item]):
    """See ``WorkQueue``. Items that end close together wake the event loop once.

    ``_take_items`` runs in the threads, everything else on the event loop; they share the queue and the deques of ended
    items and of surplus threads, all safe for that.
    """

    def __init__(self, work: Callable[[Item], object], ended: Callable[[Sequence[Item]], object], threads: int) -> None:
        self.threads = threads
        self._work = work
        self._ended = ended
        # None wakes a thread that may be surplus.
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._done: deque[Item] = deque()
        self._under_way = 0
        self._started = 0
        # One entry for each thread that is to end, not counted in ``_started`` any more. The thread that takes it ends.
        self._surplus: deque[None] = deque()
        self._nursery: trio.Nursery | None = None

    def put(self, item: Item, /) -> None:
        self._under_way += 1
        self._queue.put(item)
        if self._started < self.threads and self._started < self._under_way:
            self._start_threads()

    def resize(self, threads: int) -> None:
        self.threads = threads
        if self._started > threads:
            self._end_threads(self._started - threads)
        else:
            self._start_threads()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._start_threads()
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None
                    self._end_threads(self._started)
        finally:
            self._report()

    def _start_threads(self) -> None:
        """Have a thread for each item under way, and no more than there may be."""
        if self._nursery is None:
            return
        while self._started < min(self.threads, self._under_way):
            self._started += 1
            if not self._take_surplus():  # else one that was to end goes on
                self._nursery.start_soon(self._run_thread, name="work queue")

    def _end_threads(self, count: int) -> None:
        """Let ``count`` threads end, each as soon as it has no item under way."""
        self._started -= count
        for _ in range(count):
            self._surplus.append(None)
            self._queue.put(None)

    def _take_surplus(self) -> bool:
        """Whether a thread was to end, and has been taken off the list. One thread at most takes each entry."""
        try:
            self._surplus.pop()
        except IndexError:
            return False
        return True

    async def _run_thread(self) -> None:
        token = trio.lowlevel.current_trio_token()
        # Under a limiter of its own: a thread that waits for items must not hold a token that others want.
        await trio.to_thread.run_sync(self._take_items, token, limiter=trio.CapacityLimiter(math.inf))

    def _take_items(self, token: trio.lowlevel.TrioToken) -> None:
        """Do item after item until this thread is surplus. Runs in a thread."""
        while True:
            item = self._queue.get()
            if self._surplus and self._take_surplus():
                if item is not None:
                    self._queue.put(item)
                return
            if item is None:
                continue
            self._work(item)
            self._done.append(item)
            token.run_sync_soon(self._report, idempotent=True)

    def _report(self) -> None:
        """Report what has ended."""
        done = [self._done.popleft() for _ in range(len(self._done))]
        self._under_way -= len(done)
        if done:
            self._ended(done)
