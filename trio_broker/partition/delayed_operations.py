"""Requests that wait: a Produce for its records to be safe, a Fetch for enough records to be there, a DeleteRecords for
other replicas to delete as well.

A delayed request registers with each of its partitions, is woken at most once, and then looks at the partitions itself
to see what came true: waking says "look again" and nothing else, so a spurious wake costs one look and can do no
harm. A missing wake would cost the client its whole timeout; so a partition that fails, is deleted or is led elsewhere
wakes everyone too.

All of this happens on the event loop, between checkpoints, and therefore needs no lock.

Source: the idea is Kafka's DelayedOperationPurgatory, with Trio's timeouts in the place of its timing wheel.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import trio

from trio_broker.partition.state import Advance

PRUNED_ABOVE = 1000
"""Deadlines kept before those of completed operations are looked for; one takes about 100 bytes."""


class DelayedProduce:
    """A Produce that waits for the high watermarks of several partitions: it completes when the last of them is
    reached, or when its time is over.

    Steps wait for it with a task (``wait``) or without one (``when_complete``): what answers it is then called in the
    turn in which the sync that it waits for is reported.
    """

    __slots__ = ("_on_complete", "_reaper", "_timeout_seconds", "partitions_pending")

    def __init__(self, timeout_seconds: float, reaper: ExpirationReaper) -> None:
        self._timeout_seconds = timeout_seconds
        self._reaper = reaper
        self._on_complete: Callable[[], None] | None = None
        self.partitions_pending = 0

    def partition_completed(self) -> None:
        """One of the partitions got there, or never will."""
        self.partitions_pending -= 1
        if self.partitions_pending <= 0:
            self.complete()

    def complete(self) -> None:
        """Let what waits go on; the first call does."""
        on_complete, self._on_complete = self._on_complete, None
        if on_complete is not None:
            on_complete()

    def when_complete(self, on_complete: Callable[[], None]) -> None:
        """Have ``on_complete`` called once. It must not raise, nor append to a partition: one may be in its caller."""
        self._on_complete = on_complete
        self._reaper.add(self, trio.current_time() + self._timeout_seconds)

    @property
    def is_awaited(self) -> bool:
        """Whether something waits, and it has not completed."""
        return self._on_complete is not None

    async def wait(self) -> None:
        """Wait for it in the calling task."""
        if self.partitions_pending:
            completed = trio.Event()
            self._on_complete = completed.set
            with trio.move_on_after(max(self._timeout_seconds, 0.0)):
                await completed.wait()

    __call__ = wait


class OperationDeadline(NamedTuple):
    """When a Produce is over (Trio's clock). ``order`` keeps the heap from comparing operations."""

    deadline: float
    order: int
    operation: DelayedProduce


class ExpirationReaper:
    """Completes each DelayedProduce that no task waits for when its time is over.

    One that completes before stays in the heap until its deadline, or until there are too many: nearly all do, and to
    find each in the heap would cost more than it.

    Source: Kafka's ExpiredOperationReaper.
    """

    def __init__(self) -> None:
        self._heap: list[OperationDeadline] = []
        self._order = itertools.count()
        self._prune_above = PRUNED_ABOVE
        self._wakes_at = math.inf
        self._is_earlier = trio.Event()

    def add(self, operation: DelayedProduce, deadline: float) -> None:
        """Have ``operation`` completed at ``deadline``, unless it is by then."""
        heapq.heappush(self._heap, OperationDeadline(deadline, next(self._order), operation))
        if len(self._heap) > self._prune_above:
            self._heap = [each for each in self._heap if each.operation.is_awaited]
            heapq.heapify(self._heap)
            self._prune_above = max(PRUNED_ABOVE, 2 * len(self._heap))
        if deadline < self._wakes_at:
            self._is_earlier.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0].deadline <= now:
                heapq.heappop(self._heap).operation.complete()
            self._wakes_at = self._heap[0].deadline if self._heap else math.inf
            self._is_earlier = trio.Event()
            with trio.move_on_at(self._wakes_at):
                await self._is_earlier.wait()


class DelayedFetch:
    """A Fetch that waits for ``min_bytes``, from whichever of its partitions they come, until it is woken or its time
    is over.

    It is registered with its partitions in the turn in which it has looked at them, before any other task can change
    one: what comes between the look and the wait then ends the wait at once.

    Counting bytes as they become visible is what spares it a full look at all its partitions after every append. One
    that reads only committed records counts them where no transaction holds any back, and a replica's counts what is
    appended. One of a replica may await each move of a high watermark as well.
    """

    __slots__ = (
        "_event",
        "_min_bytes",
        "awaits_high_watermark",
        "bytes_missing",
        "is_of_replica",
        "is_woken",
        "reads_committed",
    )

    def __init__(
        self,
        min_bytes: int,
        *,
        reads_committed: bool = False,
        is_of_replica: bool = False,
        awaits_high_watermark: bool = False,
    ) -> None:
        self._min_bytes = min_bytes
        self.reads_committed = reads_committed
        self.is_of_replica = is_of_replica
        self.awaits_high_watermark = awaits_high_watermark
        self._event: trio.Event | None = None
        self.begin_to_read()

    def begin_to_read(self) -> None:
        """Its partitions are about to be read: what they have shown so far counts no more."""
        self.bytes_missing = self._min_bytes
        self.is_woken = False

    def found(self, size_bytes: int) -> None:
        """Its partitions were read, and had ``size_bytes``.

        What became visible during that may be part of them, and counts twice then: at worst it reads once more.
        """
        self._come_closer(size_bytes)

    def advanced(self, advance: Advance, visible_bytes: int) -> None:
        """One of the partitions lets ``visible_bytes`` more be seen."""
        if self.awaits_high_watermark:
            self.wake()
        elif self.reads_committed and advance is not Advance.DECIDED:
            # Bytes are no measure where transactions are open: a small marker may uncover much.
            if advance is Advance.RELEASED:
                self.wake()
        else:
            self._come_closer(visible_bytes)

    def appended(self, size_bytes: int) -> None:
        """A replica's: one of the partitions has so many bytes more."""
        self._come_closer(size_bytes)

    def _come_closer(self, size_bytes: int) -> None:
        self.bytes_missing -= size_bytes
        if self.bytes_missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Let it read again, whatever there is."""
        self.is_woken = True
        if self._event is not None:
            self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until it is woken, at most ``seconds``; tell whether it was, which may have been before."""
        if not self.is_woken:
            self._event = trio.Event()
            with trio.move_on_after(max(seconds, 0.0)):
                await self._event.wait()
        return self.is_woken


class DelayedDeleteRecords:
    """A DeleteRecords that waits until the other replicas of its partitions have deleted as well, until it is woken or
    its time is over."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        """Let it look again."""
        self._event.set()

    async def wait_until(self, deadline: float) -> bool:
        """Wait until it is woken; tell whether it was by ``deadline`` (Trio's clock). The next wait is for another
        time."""
        with trio.move_on_at(deadline):
            await self._event.wait()
        was_woken, self._event = self._event.is_set(), trio.Event()
        return was_woken


class HighWatermarkWaiter(NamedTuple):
    """A delayed Produce and the high watermark it waits for. ``order`` keeps equal offsets first come, first served.

    A tuple, because a heap compares its items five times for each that passes through, and tuples do that in C.
    """

    required_offset: int
    order: int
    delayed: DelayedProduce


class DelayedOperations:
    """The requests that wait for one partition, until what its readers may see changes."""

    __slots__ = ("_order", "deletions", "fetches", "produces", "replica_fetches")

    def __init__(self) -> None:
        # A heap by the offset waited for.
        self.produces: list[HighWatermarkWaiter] = []
        # In the order in which they came, as a dict; a set of objects has another order each time.
        self.fetches: dict[DelayedFetch, None] = {}
        # Apart: most appends have none of these to notify, and what becomes visible is nothing to them.
        self.replica_fetches: dict[DelayedFetch, None] = {}
        self.deletions: dict[DelayedDeleteRecords, None] = {}
        self._order = itertools.count()

    def add_produce(self, required_offset: int, delayed: DelayedProduce) -> None:
        """Notify ``delayed`` when the high watermark reaches ``required_offset``, or when the partition fails or
        is led elsewhere."""
        delayed.partitions_pending += 1
        heapq.heappush(self.produces, HighWatermarkWaiter(required_offset, next(self._order), delayed))

    def remove_produce(self, delayed: DelayedProduce) -> None:
        """Forget a Produce whose time is over."""
        # A heap has no cheaper removal; this happens only when a Produce times out or its client goes.
        kept = [waiter for waiter in self.produces if waiter.delayed is not delayed]
        heapq.heapify(kept)
        self.produces = kept

    def add_fetch(self, delayed: DelayedFetch) -> None:
        """Notify ``delayed`` of every byte that becomes visible, a replica's of every byte that is appended, and of all
        else after which it must read again."""
        if delayed.is_of_replica:
            self.replica_fetches[delayed] = None
        if delayed.awaits_high_watermark or not delayed.is_of_replica:
            self.fetches[delayed] = None

    def remove_fetch(self, delayed: DelayedFetch) -> None:
        """Forget a Fetch that reads again, or whose time is over."""
        self.fetches.pop(delayed, None)
        self.replica_fetches.pop(delayed, None)

    def appended(self, size_bytes: int) -> None:
        """Replicas may read ``size_bytes`` more."""
        for delayed in self.replica_fetches:
            delayed.appended(size_bytes)

    def advanced(self, advance: Advance, high_watermark: int, visible_bytes: int) -> None:
        """Readers may see ``visible_bytes`` more, up to ``high_watermark``."""
        produces = self.produces
        # Waiters leave the heap before their tasks run, so none is woken twice.
        while produces and produces[0].required_offset <= high_watermark:
            heapq.heappop(produces).delayed.partition_completed()
        for delayed in self.fetches:
            delayed.advanced(advance, visible_bytes)

    def wake_deletions(self) -> None:
        """The low watermark may have moved: each DeleteRecords looks again."""
        for delayed in self.deletions:
            delayed.wake()

    def wake_fetches(self) -> None:
        """Something else has changed than what is visible: each Fetch reads again."""
        for delayed in (*self.fetches, *self.replica_fetches):
            delayed.wake()

    def release(self) -> None:
        """The partition has failed, or is led elsewhere: nothing that waits for it here will come."""
        # Counted as completed, not woken: a Produce to several partitions goes on waiting for the others.
        for waiter in self.produces:
            waiter.delayed.partition_completed()
        self.produces.clear()
        self.wake_deletions()
        self.wake_fetches()
