"""Group commit: one sync makes the appends of many requests durable.

Appends go to the file at once; a caller that needs them on disk asks for a sync of the partition. Each partition has at
most one sync under way. What is appended meanwhile is covered by the next one, which is queued as soon as the first has
ended: so latency is one to two syncs, and throughput does not depend on how many clients wait.

Syncs are done by workers: worker threads, as many as the limiter has tokens (``num.io.threads``, live), that take
partition after partition from one queue. A fast disk syncs in less time than a thread takes to be handed a task and
to hand back its result; a worker pays that once for many syncs, and results that come close together wake the event
loop once.

An error from a sync is final. The kernel may have dropped the dirty pages and would report success the next time, so a
retry would acknowledge what is lost: the partition goes offline instead, and nothing is synced there again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty, Queue
from time import perf_counter_ns
from typing import Protocol

import attrs
import trio

from trio_broker.histogram import Histogram, HistogramSnapshot
from trio_broker.replication.thread_occupancy import ThreadOccupancy, ThreadOccupancyStatistics

SYNCS_PER_TURN = 32
"""A worker gives its token back after so many, to the next task that waits for a worker thread."""

WORKER_LINGERS_SECONDS = 0.001
"""How long a worker waits for more before it ends: producers that were just released append again within this time."""


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


@attrs.frozen
class QueuedSync:
    """A partition that waits for a thread since ``queued_ns``."""

    partition: Syncable
    queued_ns: int


@attrs.frozen
class SyncOutcome:
    """How one sync ended: the offset it reached to, or what went wrong, or None when none was needed any more."""

    partition: Syncable
    result: int | Exception | None
    wait_ns: int = 0
    sync_ns: int = 0


class Flusher:
    """Syncs the partitions that ask for it.

    ``request``, ``wait_idle`` and the reporting of results run on the event loop, ``_sync_queue`` in the workers'
    threads; they share the queue, the deque of outcomes and that of the ``ThreadOccupancy``, all safe for that.
    """

    def __init__(self, limiter: trio.CapacityLimiter, failed: Callable[[Syncable, Exception], None]) -> None:
        """``failed`` is called with the partition that could not be synced, and the error; it takes the partition
        offline."""
        self.limiter = limiter
        self._failed = failed
        # Queued or syncing; the event is set when the partition has nothing more to sync.
        self._under_way: dict[Syncable, trio.Event] = {}
        # Not a SimpleQueue, though it is quicker: in CPython 3.11 its get forgets the timeout when another thread took
        # what it was woken for, and then waits for ever, with a worker thread's token.
        self._queue: Queue[QueuedSync] = Queue()
        self._outcomes: deque[SyncOutcome] = deque()
        self._nursery: trio.Nursery | None = None
        self._workers = 0
        # Workers that wait for more. A set, since adding and discarding are atomic across threads and a counter is not.
        self._lingering: set[object] = set()
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
                self._start_workers()
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._stops = True
        finally:
            self._nursery = None
            self._report()
            for done in self._under_way.values():
                done.set()

    def request(self, partition: Syncable) -> None:
        """Have everything appended to ``partition`` so far made durable, soon."""
        if partition in self._under_way or not partition.needs_sync:
            return  # one that is under way is looked at again when its sync ends
        self._under_way[partition] = trio.Event()
        self._enqueue(partition)
        self._start_workers()

    async def wait_idle(self, partition: Syncable) -> None:
        """Wait until no sync of ``partition`` is under way, so that its files may be closed."""
        done = self._under_way.get(partition)
        if done is not None and self._nursery is not None:
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
        queued = QueuedSync(partition, perf_counter_ns())
        self._occupancy.note_queued(queued.queued_ns)
        self._queue.put(queued)

    # ---- workers

    def _start_workers(self) -> None:
        """Open workers for what is queued, as many as there may be; those that linger take something themselves.

        More tokens count from the next request or result on, which is at most one sync later.
        """
        if self._nursery is None or self._stops:
            return
        wanted = self._queue.qsize() - len(self._lingering)
        while wanted > 0 and self._workers < self.limiter.total_tokens:
            self._workers += 1
            wanted -= 1
            self._nursery.start_soon(self._worker)

    async def _worker(self) -> None:
        try:
            await trio.to_thread.run_sync(self._sync_queue, trio.lowlevel.current_trio_token(), limiter=self.limiter)
        finally:
            self._workers -= 1
            # Something may have been queued while this one was counted on and already on its way out.
            self._start_workers()

    def _sync_queue(self, token: trio.lowlevel.TrioToken) -> None:
        """Sync partition after partition until there are none, or it is another's turn. Runs in a worker thread."""
        for _ in range(SYNCS_PER_TURN):
            if self._stops or self._workers > self.limiter.total_tokens:
                return
            queued = self._take()
            if queued is None:
                return
            began_ns = perf_counter_ns()
            self._occupancy.note_begun(began_ns)
            result = self._sync(queued.partition)
            ended_ns = perf_counter_ns()
            self._occupancy.note_ended(ended_ns)
            outcome = SyncOutcome(queued.partition, result, began_ns - queued.queued_ns, ended_ns - began_ns)
            self._outcomes.append(outcome)
            token.run_sync_soon(self._report, idempotent=True)

    def _take(self) -> QueuedSync | None:
        """The next partition, waiting a moment for one."""
        lingerer = object()
        self._lingering.add(lingerer)
        try:
            return self._queue.get(timeout=WORKER_LINGERS_SECONDS)
        except Empty:
            return None
        finally:
            self._lingering.discard(lingerer)

    def _sync(self, partition: Syncable) -> int | Exception | None:
        if not partition.needs_sync:
            return None  # it failed, or was deleted, while it was queued
        try:
            return partition.sync()
        # Passed on as a value: it would otherwise end the worker, and with it the broker's nursery.
        except Exception as error:
            return error

    # ---- results

    def _report(self) -> None:
        """Tell the partitions how their syncs ended. Nothing may escape: it would end the event loop."""
        self._occupancy.settle(perf_counter_ns(), self.limiter.total_tokens)
        while self._outcomes:
            outcome = self._outcomes.popleft()
            partition = outcome.partition
            if outcome.result is not None:
                # Counted here rather than in the threads, whose additions could lose one another's.
                self._sync_times.record(outcome.sync_ns)
                self._wait_times.record(outcome.wait_ns)
            self._tell(partition, outcome.result)
            if partition.needs_sync and not self._stops:
                self._enqueue(partition)
            else:
                self._under_way.pop(partition).set()
        self._start_workers()

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
