"""Group commit: one sync makes the appends of many requests durable.

Appends go to the file at once; a caller that needs them on disk asks for a sync of the partition. Each partition has at
most one sync under way. What is appended meanwhile is covered by the next one, which is queued as soon as the first has
ended: so latency is one to two syncs, and throughput does not depend on how many clients wait.

Syncs are done by the threads of a ``SyncQueue`` for each log directory, up to ``num.io.threads`` of them, live; slow
partitions have as many of their own. Results that come close together wake the event loop once.

An error from a sync is final. The kernel may have dropped the dirty pages and would report success the next time, so a
retry would acknowledge what is lost: the partition goes offline instead, and nothing is synced there again. Only one
that did not begin, for want of a descriptor, is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

import attrs
import trio

from trio_broker.common.histogram import Histogram, HistogramSnapshot
from trio_broker.concurrency.barrier import Barrier, start_background
from trio_broker.partition.sync_queue import PartitionSync, Syncable, SyncQueue
from trio_broker.partition.thread_occupancy import ThreadOccupancy, ThreadOccupancyStatistics
from trio_broker.runtime.descriptors import NO_DESCRIPTORS
from trio_broker.runtime.measurement import perf_counter_ns
from trio_broker.runtime.workers import Workers


@attrs.frozen
class FlusherStatistics:
    """``threads`` is how many may sync at a time in a log directory, those that are slow aside.

    ``partitions_under_way`` counts those that sync or wait for a thread.

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
        self._workers = workers
        self._threads = threads
        self._queues: dict[PurePath, SyncQueue] = {}
        self._nursery: trio.Nursery | None = None
        self._runs = False
        self._failures = 0
        self._barrier = Barrier("the end of a sync", "other partitions are not concerned")
        self._occupancy = ThreadOccupancy()
        self._sync_times = Histogram()
        self._wait_times = Histogram()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve requests until cancelled. What was requested before it runs is synced first."""
        self._runs = True
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for queue in self._queues.values():
                    start_background(nursery, "sync queue", queue.run)
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None
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
            if (done := self._under_way[partition]) is None:
                done = self._under_way[partition] = trio.Event()
            await done.wait()

    def resize(self, threads: int) -> None:
        """Change how many partitions may sync at a time; syncs under way go on."""
        self._occupancy.advance_to(perf_counter_ns(), self._threads)
        self._threads = threads
        for queue in self._queues.values():
            queue.resize(threads)

    def statistics(self) -> FlusherStatistics:
        self._occupancy.advance_to(perf_counter_ns(), self._threads)
        return FlusherStatistics(
            threads=self._threads,
            partitions_under_way=len(self._under_way),
            failures=self._failures,
            occupancy=self._occupancy.statistics(),
            sync_times=self._sync_times.snapshot(),
            wait_times=self._wait_times.snapshot(),
        )

    def _enqueue(self, partition: Syncable) -> None:
        queued_ns = perf_counter_ns()
        self._occupancy.note_queued(queued_ns)
        queue = self._queues.get(partition.log_directory) or self._new_queue(partition.log_directory)
        queue.put(PartitionSync(partition, queued_ns))

    def _new_queue(self, directory: PurePath) -> SyncQueue:
        queue = self._queues[directory] = SyncQueue(self._workers, self._sync, self._report, self._threads)
        if self._nursery is not None:
            start_background(self._nursery, "sync queue", queue.run)
        return queue

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
        """Tell the partitions how their syncs ended, each of them whatever becomes of the others."""
        self._occupancy.advance_to(perf_counter_ns(), self._threads)
        for sync in syncs:
            if sync.result is not None:
                # Counted here rather than in the threads, whose additions could lose one another's.
                self._sync_times.record(sync.ended_ns - sync.began_ns)
                self._wait_times.record(sync.began_ns - sync.queued_ns)
            # Let go of here: the queue keeps its last syncs, and with them the files of segments open, and the space of
            # those that are deleted.
            result, sync.result = sync.result, None
            with self._barrier:
                self._tell(sync.partition, result)
            self._go_on(sync.partition, result)

    def _go_on(self, partition: Syncable, result: object) -> None:
        """Have ``partition`` synced again if it needs that, else let go of it."""
        if partition.needs_sync and is_postponed(result):
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
