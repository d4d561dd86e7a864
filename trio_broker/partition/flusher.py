"""Group commit: one sync makes the appends of many requests durable.

Appends go to the file at once; a caller that needs them on disk asks for a sync of the partition. Each partition has at
most one sync under way. What is appended meanwhile is covered by the next one, which is queued as soon as the first has
ended: so latency is one to two syncs, and throughput does not depend on how many clients wait.

Syncs are done by threads of the flusher's own, which live as long as it runs: as many as partitions were ever to be
synced at a time, at most as many as the limiter has tokens (``num.io.threads``, live). They take partition after
partition from one queue; a thread that waits there costs nothing, and to wake it costs less than to hand a task to a
pool. Results that come close together wake the event loop once.

An error from a sync is final. The kernel may have dropped the dirty pages and would report success the next time, so a
retry would acknowledge what is lost: the partition goes offline instead, and nothing is synced there again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Protocol

import attrs
import trio

from trio_broker.histogram import Histogram, HistogramSnapshot
from trio_broker.partition.thread_occupancy import ThreadOccupancy, ThreadOccupancyStatistics


class Syncable(Protocol):
    """What the flusher needs to know about a partition."""

    @property
    def needs_sync(self) -> bool:
        """Whether something was appended that no sync has covered."""
        ...

    def sync(self) -> int:
        """Make everything appended so far durable; return the offset it reaches to. Blocks; runs in a worker thread."""
        ...

    def durable_up_to(self, offset: int) -> None:
        """Everything before ``offset`` is on disk. Called on the event loop."""
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

    ``result`` is the offset it reached to, or what went wrong, or None when none was needed any more.
    """

    partition: Syncable
    queued_ns: int
    began_ns: int = 0
    ended_ns: int = 0
    result: int | Exception | None = None


class Flusher:
    """Syncs the partitions that ask for it.

    ``request``, ``wait_idle`` and the reporting of results run on the event loop, ``_sync_queue`` in the threads; they
    share the queue, the deques of ended syncs and of surplus threads and that of the ``ThreadOccupancy``, all safe for
    that.
    """

    def __init__(self, limiter: trio.CapacityLimiter, failed: Callable[[Syncable, Exception], None]) -> None:
        """``failed`` is called with the partition that could not be synced, and the error; it takes the partition
        offline. Of ``limiter`` only the number of tokens counts: a thread that waits for work must not hold one."""
        self.limiter = limiter
        self._failed = failed
        # Queued or syncing; the event, if somebody waits, is set when the partition has nothing more to sync.
        self._under_way: dict[Syncable, trio.Event | None] = {}
        # None wakes a thread that may be surplus.
        self._queue: SimpleQueue[PartitionSync | None] = SimpleQueue()
        self._ended: deque[PartitionSync] = deque()
        self._nursery: trio.Nursery | None = None
        self._threads = 0
        # One entry for each thread that is to end, not counted in ``_threads`` any more. The thread that takes it ends.
        self._surplus: deque[None] = deque()
        self._stops = False
        self._failures = 0
        self._occupancy = ThreadOccupancy()
        self._sync_times = Histogram()
        self._wait_times = Histogram()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve requests until cancelled. What was requested before it runs is synced first."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._match_threads()
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._stops = True
                    self._end_threads(self._threads)
        finally:
            self._nursery = None
            self._report()
            for done in self._under_way.values():
                if done is not None:
                    done.set()

    def request(self, partition: Syncable) -> None:
        """Have everything appended to ``partition`` so far made durable, soon."""
        if partition in self._under_way or not partition.needs_sync:
            return  # one that is under way is looked at again when its sync ends
        self._under_way[partition] = None
        self._enqueue(partition)
        self._match_threads()

    async def wait_idle(self, partition: Syncable) -> None:
        """Wait until no sync of ``partition`` is under way, so that its files may be closed."""
        if partition in self._under_way and self._nursery is not None:
            done = self._under_way[partition] = self._under_way[partition] or trio.Event()
            await done.wait()

    def statistics(self) -> FlusherStatistics:
        self._occupancy.settle(perf_counter_ns(), self.limiter.total_tokens)
        return FlusherStatistics(
            threads=int(self.limiter.total_tokens),
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

    # ---- threads

    def _match_threads(self) -> None:
        """Have a thread for each partition under way, and no more than there may be.

        Another number of tokens counts from the next request or result on, which is at most one sync later.
        """
        if self._nursery is None or self._stops:
            return
        allowed = self.limiter.total_tokens
        if self._threads > allowed:
            self._end_threads(self._threads - int(allowed))
        while self._threads < allowed and self._threads < len(self._under_way):
            self._threads += 1
            if not self._take_surplus():  # else one that was to end goes on
                self._nursery.start_soon(self._run_thread, name="sync thread")

    def _end_threads(self, count: int) -> None:
        """Let ``count`` threads end, each as soon as it has no sync under way."""
        self._threads -= count
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
        await trio.to_thread.run_sync(self._sync_queue, token, limiter=trio.CapacityLimiter(math.inf))

    def _sync_queue(self, token: trio.lowlevel.TrioToken) -> None:
        """Sync partition after partition until this thread is surplus. Runs in a thread."""
        while True:
            sync = self._queue.get()
            if self._surplus and self._take_surplus():
                if sync is not None:
                    self._queue.put(sync)
                return
            if sync is None:
                continue
            sync.began_ns = perf_counter_ns()
            self._occupancy.note_begun(sync.began_ns)
            sync.result = self._sync(sync.partition)
            sync.ended_ns = perf_counter_ns()
            self._occupancy.note_ended(sync.ended_ns)
            self._ended.append(sync)
            token.run_sync_soon(self._report, idempotent=True)

    def _sync(self, partition: Syncable) -> int | Exception | None:
        if not partition.needs_sync:
            return None  # it failed, or was deleted, while it was queued
        try:
            return partition.sync()
        # Passed on as a value: it would otherwise end the thread, and with it the broker's nursery.
        except Exception as error:
            return error

    # ---- results

    def _report(self) -> None:
        """Tell the partitions how their syncs ended. Nothing may escape: it would end the event loop."""
        self._occupancy.settle(perf_counter_ns(), self.limiter.total_tokens)
        while self._ended:
            sync = self._ended.popleft()
            partition = sync.partition
            if sync.result is not None:
                # Counted here rather than in the threads, whose additions could lose one another's.
                self._sync_times.record(sync.ended_ns - sync.began_ns)
                self._wait_times.record(sync.began_ns - sync.queued_ns)
            self._tell(partition, sync.result)
            if partition.needs_sync and not self._stops:
                self._enqueue(partition)
            elif (done := self._under_way.pop(partition)) is not None:
                done.set()
        self._match_threads()

    def _tell(self, partition: Syncable, result: int | Exception | None) -> None:
        """Move the partition on, or take it offline: whatever went wrong, these appends are not known to be durable."""
        try:
            if isinstance(result, Exception):
                raise result
            if result is not None:
                partition.durable_up_to(result)
        except Exception as error:
            self._failures += 1
            self._failed(partition, error)
