"""The threads in which the files of one log directory are read, and changed beside the appends.

As with syncs (``sync_queue``): each log directory has threads of its own, ``num.io.threads`` of them, so a disk that
hangs holds up no other; and partitions whose reads are slow have as many of their own (``slow_work``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import attrs
import trio

from trio_broker.partition.slow_work import SLOW_SECONDS, SlowWork
from trio_broker.runtime.workers import Workers

T = TypeVar("T")


class Readable(Protocol):
    """Whose files are read; ``reads_slowly`` is its own note."""

    reads_slowly: bool


@attrs.define(eq=False)
class DiskWork:
    """One piece of work. ``owner`` is the partition that it belongs to, None for work on the directory."""

    owner: Readable | None

    def note_slow(self) -> None:
        if self.owner is not None:
            self.owner.reads_slowly = True


class DirectoryThreads:
    """See the head of the file."""

    def __init__(self, workers: Workers, threads: int) -> None:
        self._workers = workers
        self._usual = trio.CapacityLimiter(threads)
        self._slow = trio.CapacityLimiter(threads)
        self._slow_work = SlowWork[DiskWork](threads, set_threads=self._set_usual_threads, found=DiskWork.note_slow)

    async def run(self) -> None:
        """Find out which work is slow, until cancelled. ``do`` needs it only for that."""
        await self._slow_work.run()

    async def do(self, work: Callable[[], T], owner: Readable | None = None) -> T:
        """Return the result of ``work``, done in one of the threads."""
        if owner is not None and owner.reads_slowly:
            return await self._do_slow(work, owner)
        piece = DiskWork(owner)
        self._slow_work.add(piece)
        try:
            return await self._workers.run(work, limiter=self._usual)
        finally:
            self._slow_work.remove(piece)

    async def _do_slow(self, work: Callable[[], T], owner: Readable) -> T:
        deadline = trio.current_time() + SLOW_SECONDS
        result = await self._workers.run(work, limiter=self._slow)
        if trio.current_time() < deadline:
            owner.reads_slowly = False
        return result

    def resize(self, threads: int) -> None:
        """Change how many threads there are for usual work, and for slow; what has begun goes on."""
        self._slow.total_tokens = threads
        self._slow_work.resize(threads)

    def _set_usual_threads(self, threads: int) -> None:
        self._usual.total_tokens = threads
