"""The syncs of one log directory, and the threads that do them.

A sync holds its thread for as long as the disk takes. A few partitions with slow ones would hold all threads, and the
acknowledgements of every other partition would wait for them. Hence:

* Each log directory has threads of its own: a disk that hangs holds up no other.
* While syncs wait, one that has been under way for ``SLOW_SECONDS`` is slow, and a thread is added for it
  (``slow_work``).
* The partition of a slow sync is slow too, until one of its syncs takes less, and is synced by threads for such ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Protocol

import attrs
import trio

from trio_broker.concurrency.barrier import start_background
from trio_broker.partition.slow_work import SLOW_SECONDS, SlowWork
from trio_broker.runtime.workers import Workers, WorkQueue


class Syncable(Protocol):
    """What the flusher needs to know about a partition; ``syncs_slowly`` is its own note."""

    syncs_slowly: bool

    @property
    def log_directory(self) -> PurePath:
        """Where its files are, and those of other partitions."""
        ...

    @property
    def needs_sync(self) -> bool:
        """Whether something was appended that no sync has covered."""
        ...

    def sync(self) -> Callable[[], None]:
        """Make everything appended so far durable, and change nothing else. Blocks; runs in a worker thread.

        What it returns takes note of that, and is called on the event loop.
        """
        ...


@attrs.define(eq=False)
class PartitionSync:
    """One sync of a partition, from its request on. Times are those of ``perf_counter_ns``.

    ``result`` is what takes note of it, or what went wrong, or None when none was needed any more.
    """

    partition: Syncable
    queued_ns: int
    began_ns: int = 0
    ended_ns: int = 0
    result: Callable[[], None] | Exception | None = None
    deadline: float = 0.0
    """Of a slow partition, by Trio's clock: one that has ended by then, its wait included, was not slow."""

    def note_slow(self) -> None:
        self.partition.syncs_slowly = True


class SyncQueue:
    """See the head of the file. All of it runs on the event loop, except ``sync``, which runs in the threads."""

    def __init__(
        self,
        workers: Workers,
        sync: Callable[[PartitionSync], object],
        ended: Callable[[Sequence[PartitionSync]], object],
        threads: int,
    ) -> None:
        """``ended`` is called with the syncs that have ended since its last call."""
        self._ended = ended
        self._usual: WorkQueue[PartitionSync] = workers.queue(sync, self._usual_ended, threads=threads)
        self._slow: WorkQueue[PartitionSync] = workers.queue(sync, self._slow_ended, threads=threads)
        self._slow_work = SlowWork(threads, set_threads=self._usual.resize, found=PartitionSync.note_slow)

    async def run(self) -> None:
        """Do what is put until cancelled; then wait for what has begun. What was put before is done now."""
        async with trio.open_nursery() as nursery:
            start_background(nursery, "syncs", self._usual.run)
            start_background(nursery, "syncs of slow partitions", self._slow.run)
            start_background(nursery, "slow syncs", self._slow_work.run)

    def put(self, sync: PartitionSync) -> None:
        """Have the sync done."""
        if sync.partition.syncs_slowly:
            sync.deadline = trio.current_time() + SLOW_SECONDS
            self._slow.put(sync)
            return
        self._slow_work.add(sync)
        self._usual.put(sync)

    def resize(self, threads: int) -> None:
        """Change how many threads there are for the usual syncs, and for the slow ones; what has begun goes on."""
        self._slow_work.resize(threads)
        self._slow.resize(threads)

    def _usual_ended(self, syncs: Sequence[PartitionSync]) -> None:
        for sync in syncs:
            self._slow_work.remove(sync)
        self._ended(syncs)

    def _slow_ended(self, syncs: Sequence[PartitionSync]) -> None:
        now = trio.current_time()
        for sync in syncs:
            if now < sync.deadline:
                sync.partition.syncs_slowly = False
        self._ended(syncs)
