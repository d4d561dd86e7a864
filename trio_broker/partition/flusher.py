"""Group commit: one sync makes the appends of many requests durable.

Appends go to the file at once; a caller that needs them on disk asks for a sync of the partition. Each partition has at
most one sync under way. What is appended meanwhile is covered by the next one, which is queued as soon as the first has
ended: so latency is one to two syncs, and throughput does not depend on how many clients wait.

Syncs are done by the threads of a ``WorkQueue``: as many as partitions were ever to be synced at a time, at most
``num.io.threads``, live. Results that come close together wake the event loop once.

An error from a sync is final. The kernel may have dropped the dirty pages and would report success the next time, so a
retry would acknowledge what is lost: the partition goes offline instead, and nothing is synced there again. Only one
that did not begin, for want of a descriptor, is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from trio_broker.histogram import Histogram, HistogramSnapshot
from trio_broker.partition.thread_occupancy import ThreadOccupancy, ThreadOccupancyStatistics
from trio_broker.runtime.descriptors import NO_DESCRIPTORS
from trio_broker.runtime.measurement import perf_counter_ns
from trio_broker.runtime.workers import Workers, WorkQueue


class Syncable(Protocol):
    """What the flusher needs to know about a partition."""

    @property
    def needs_sync(self) -> bool:
        """Whether something was appended that no sync has covered."""
        ...

    def sync(self) -> Callable[[], None]:
        """Make everything appended so far durable, and change nothing else. Blocks; runs in a worker thread.

        What it returns takes note of that, and is called on the event loop.
        """
        ...


@attrs.frozen
class FlusherStatistics:
    """``threads`` is how many may sync at a time, ``partitions_under_way`` counts those that sync or wait for one.

    Times and counts only grow. ``wait_times`` are from a request to the beginning of its sync.
    """

    threads: int
    partitions_under_way: int
    failures: int
    occupancy: ThreadOccupancyStatistics
    sync_times: HistogramSnapshot
    wait_times: HistogramSnapshot

    @property
    def syncs(self) -> int:
        return self.sync_times.count


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


class Flusher:
    """Syncs the partitions that ask for it.

    ``_sync`` runs in the threads, everything else on the event loop; they share the ``ThreadOccupancy``, which is safe
    for that.
    """

    def __init__(self, workers: Workers, threads: int, failed: Callable[[Syncable, Exception], None]) -> None:
        """``failed`` is called with the partition that could not be synced, and the error; it takes the partition
        offline."""
        self._failed = failed
        # Queued or syncing; the event, if somebody waits, is set when the partition has nothing more to sync.
        self._under_way: dict[Syncable, trio.Event | None] = {}
        # Of those under way: no descriptor was left for their sync.
        self._postponed: list[Syncable] = []
        self._queue: WorkQueue[PartitionSync] = workers.queue(self._sync, self._report, threads=threads)
        self._runs = False
        self._failures = 0
        self._occupancy = ThreadOccupancy()
        self._sync_times = Histogram()
        self._wait_times = Histogram()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve requests until cancelled. What was requested before it runs is synced first."""
        self._runs = True
        try:
            await self._queue.run(task_status)
        finally:
            self._runs = False
            for done in self._under_way.values():
                if done is not None:
                    done.set()

    def request(self, partition: Syncable) -> None:
        """Have everything appended to ``partition`` so far made durable, soon."""
        if partition in self._under_way or not partition.needs_sync:
            return  # one that is under way is looked at again when its sync ends
        self._under_way[partition] = None
        self._enqueue(partition)

    async def retry_postponed(self) -> None:
        """Sync the partitions for which no descriptor was left; called now and then, so that they do not spin."""
        postponed, self._postponed = self._postponed, []
        for partition in postponed:
            self._enqueue(partition)

    async def wait_idle(self, partition: Syncable) -> None:
        """Wait until no sync of ``partition`` is under way, so that its files may be closed."""
        if partition in self._under_way and self._runs:
            done = self._under_way[partition] = self._under_way[partition] or trio.Event()
            await done.wait()

    def resize(self, threads: int) -> None:
        """Change how many partitions may sync at a time; syncs under way go on."""
        self._occupancy.settle(perf_counter_ns(), self._queue.threads)
        self._queue.resize(threads)

    def statistics(self) -> FlusherStatistics:
        threads = self._queue.threads
        self._occupancy.settle(perf_counter_ns(), threads)
        return FlusherStatistics(
            threads=threads,
            partitions_under_way=len(self._under_way),
            failures=self._failures,
            occupancy=self._occupancy.statistics(),
            sync_times=self._sync_times.snapshot(),
            wait_times=self._wait_times.snapshot(),
        )

    def _enqueue(self, partition: Syncable) -> None:
        queued_ns = perf_counter_ns()
        self._occupancy.note_queued(queued_ns)
        self._queue.put(PartitionSync(partition, queued_ns))

    def _sync(self, sync: PartitionSync) -> None:
        """Do one sync. Runs in a thread."""
        sync.began_ns = perf_counter_ns()
        self._occupancy.note_begun(sync.began_ns)
        try:
            # Else it failed, or was deleted, while it was queued.
            if sync.partition.needs_sync:
                sync.result = sync.partition.sync()
        # Passed on as a value: it would otherwise end the thread, and with it the broker's nursery.
        except Exception as error:
            sync.result = error
        sync.ended_ns = perf_counter_ns()
        self._occupancy.note_ended(sync.ended_ns)

    def _report(self, syncs: Sequence[PartitionSync]) -> None:
        """Tell the partitions how their syncs ended. Nothing may escape: it would end the event loop."""
        self._occupancy.settle(perf_counter_ns(), self._queue.threads)
        for sync in syncs:
            partition = sync.partition
            if sync.result is not None:
                # Counted here rather than in the threads, whose additions could lose one another's.
                self._sync_times.record(sync.ended_ns - sync.began_ns)
                self._wait_times.record(sync.began_ns - sync.queued_ns)
            self._tell(partition, sync.result)
            if partition.needs_sync and is_postponed(sync.result):
                self._postponed.append(partition)
            elif partition.needs_sync:
                self._enqueue(partition)
            elif (done := self._under_way.pop(partition)) is not None:
                done.set()

    def _tell(self, partition: Syncable, result: Callable[[], None] | Exception | None) -> None:
        """Move the partition on, or take it offline: whatever went wrong, these appends are not known to be durable."""
        try:
            if isinstance(result, Exception):
                raise result
            if result is not None:
                result()
        except Exception as error:
            self._failures += 1
            self._failed(partition, error)


def is_postponed(result: object) -> bool:
    """Whether a sync did not begin, since no descriptor was left: nothing is known to be lost."""
    return isinstance(result, OSError) and result.errno in NO_DESCRIPTORS
