"""Group commit: who is released when, and what an error means.

Syncs end when a test says so, and Trio's clock stands still, so none of them is a slow one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.waits import within
from trio_broker.partition.flusher import Flusher
from trio_broker.runtime.real_workers import RealWorkers

DATA = PurePath("/data")


@attrs.define(eq=False)
class SlowPartition:
    """A partition whose syncs end when the test says so."""

    log_end: int = 0
    durable: int = 0
    syncs: int = 0
    syncs_slowly: bool = False
    log_directory: PurePath = DATA
    error: Exception | None = None
    failed_with: Exception | None = None
    begun: threading.Semaphore = attrs.Factory(lambda: threading.Semaphore(0))
    gate: threading.Semaphore = attrs.Factory(lambda: threading.Semaphore(0))

    @property
    def needs_sync(self) -> bool:
        return self.failed_with is None and self.durable < self.log_end

    def sync(self) -> Callable[[], None]:
        reached = self.log_end
        self.syncs += 1
        self.begun.release()
        assert within(lambda seconds: self.gate.acquire(timeout=seconds), 20)
        if self.error is not None:
            raise self.error
        return partial(self.durable_up_to, reached)

    def durable_up_to(self, offset: int) -> None:
        self.durable = offset


def note_failure(partition: Any, error: Exception) -> None:
    partition.failed_with = error


def syncs_of(partitions: list[SlowPartition]) -> int:
    return sum(partition.syncs for partition in partitions)


async def sync_begun(partition: SlowPartition) -> None:
    """Wait until a sync of the partition is under way."""
    assert await trio.to_thread.run_sync(lambda: within(lambda seconds: partition.begun.acquire(timeout=seconds), 20))


@pytest.fixture
async def flusher(nursery):
    made = Flusher(RealWorkers(), 2, note_failure)
    await nursery.start(made.run)
    return made


async def test_one_sync_covers_all_appends_before_it(flusher, mock_clock):
    partition = SlowPartition(log_end=1)
    flusher.request(partition)
    await sync_begun(partition)
    for end in (2, 3, 4):
        partition.log_end = end
        flusher.request(partition)
    partition.gate.release()
    await sync_begun(partition)
    assert partition.durable == 1
    partition.gate.release()
    await flusher.wait_idle(partition)
    assert (partition.durable, partition.syncs) == (4, 2)


async def test_several_wait_for_the_end_of_one_sync(flusher, mock_clock):
    partition = SlowPartition(log_end=1)
    flusher.request(partition)
    await sync_begun(partition)
    async with trio.open_nursery() as waiting:
        for _ in range(2):
            waiting.start_soon(flusher.wait_idle, partition)
        await trio.testing.wait_all_tasks_blocked()
        partition.gate.release()
    assert partition.durable == 1


async def test_a_partition_has_one_sync_under_way_and_the_limiter_bounds_them_all(flusher, mock_clock):
    begun = threading.Semaphore(0)
    gate = threading.Semaphore(0)
    partitions = [SlowPartition(log_end=1, begun=begun, gate=gate) for _ in range(6)]
    for partition in partitions:
        flusher.request(partition)
        flusher.request(partition)
    for _ in range(2):
        await sync_begun(partitions[0])
    await trio.testing.wait_all_tasks_blocked()
    assert syncs_of(partitions) == 2
    flusher.resize(4)
    gate.release()
    for _ in range(3):
        await sync_begun(partitions[0])
    await trio.testing.wait_all_tasks_blocked()
    assert syncs_of(partitions) == 5, "one has ended, four are under way, one has to wait"
    for _ in range(5):
        gate.release()
    for partition in partitions:
        await flusher.wait_idle(partition)
    assert [partition.durable for partition in partitions] == [1] * 6
    statistics = flusher.statistics()
    assert (statistics.syncs, statistics.partitions_under_way, statistics.failures) == (6, 0, 0)


async def test_the_time_in_which_all_threads_sync_and_others_wait_is_counted(flusher, mock_clock):
    begun = threading.Semaphore(0)
    gate = threading.Semaphore(0)
    partitions = [SlowPartition(log_end=1, begun=begun, gate=gate) for _ in range(5)]
    for partition in partitions:
        flusher.request(partition)
    for _ in range(2):
        await sync_begun(partitions[0])
    before = flusher.statistics()
    assert (before.threads, before.occupancy.busy, before.occupancy.waiting) == (2, 2, 3)
    later = flusher.statistics()
    passed_ns = later.occupancy.all_busy_ns - before.occupancy.all_busy_ns
    assert passed_ns > 0
    assert later.occupancy.busy_ns[2] - before.occupancy.busy_ns[2] == passed_ns
    assert later.occupancy.waiting_ns - before.occupancy.waiting_ns == 3 * passed_ns
    for _ in partitions:
        gate.release()
    for partition in partitions:
        await flusher.wait_idle(partition)
    statistics = flusher.statistics()
    assert (statistics.sync_times.count, statistics.wait_times.count) == (5, 5)
    # A thread notes its end after it has reported.
    assert statistics.occupancy.waiting == 0


async def test_fewer_threads_count_from_the_next_sync_on(flusher, mock_clock):
    gate = threading.Semaphore(0)
    partitions = [SlowPartition(log_end=1, gate=gate) for _ in range(6)]
    for partition in partitions:
        flusher.request(partition)
    await trio.testing.wait_all_tasks_blocked()
    flusher.resize(1)
    for _ in partitions:
        gate.release()
    for partition in partitions:
        await flusher.wait_idle(partition)
    assert flusher.statistics().threads == 1
    assert [partition.durable for partition in partitions] == [1] * 6


async def test_fewer_and_more_threads_under_load_lose_no_sync_and_start_none_too_many(flusher, mock_clock):
    counter = ConcurrencyCounter()
    partitions = [BusyPartition(counter) for _ in range(12)]
    for number in range(1, 301):
        flusher.resize((1, 5, 2, 8, 3)[number % 5])
        for partition in partitions:
            partition.log_end = number
            flusher.request(partition)
        await trio.lowlevel.checkpoint()
    for partition in partitions:
        await flusher.wait_idle(partition)
    assert [partition.durable for partition in partitions] == [300] * 12
    assert counter.peak <= 8
    flusher.resize(1)
    for partition in partitions:
        partition.log_end += 1
        flusher.request(partition)
    for partition in partitions:
        await flusher.wait_idle(partition)
    assert flusher.statistics().threads == 1
    assert (flusher.statistics().failures, flusher.statistics().occupancy.waiting) == (0, 0)


async def test_offsets_of_a_partition_become_durable_in_order_and_only_after_their_sync(flusher, mock_clock):
    """``BusyPartition`` asserts it: a failed assertion would be a failure of its sync."""
    partition = BusyPartition(ConcurrencyCounter())
    for number in range(1, 501):
        partition.log_end = number
        flusher.request(partition)
        await trio.lowlevel.checkpoint()
    await flusher.wait_idle(partition)
    assert partition.durable == partition.synced == 500
    assert flusher.statistics().failures == 0


@attrs.define
class ConcurrencyCounter:
    """How many syncs are under way, and the most there were."""

    lock: Any = attrs.Factory(threading.Lock)
    present: int = 0
    peak: int = 0

    def add(self, difference: int) -> None:
        with self.lock:
            self.present += difference
            self.peak = max(self.peak, self.present)


@attrs.define(eq=False)
class BusyPartition:
    """A partition whose syncs take no time, and that refuses what is out of order."""

    counter: ConcurrencyCounter
    log_end: int = 0
    syncs_slowly: bool = False
    log_directory: PurePath = DATA
    synced: int = 0
    durable: int = 0

    @property
    def needs_sync(self) -> bool:
        return self.durable < self.log_end

    def sync(self) -> Callable[[], None]:
        self.counter.add(1)
        self.synced = self.log_end
        self.counter.add(-1)
        return partial(self.durable_up_to, self.synced)

    def durable_up_to(self, offset: int) -> None:
        assert self.durable < offset <= self.synced, f"{self.durable} < {offset} <= {self.synced}"
        self.durable = offset


async def test_stopping_leaves_the_rest_unsynced_and_ends(nursery, mock_clock):
    flusher = Flusher(RealWorkers(), 1, note_failure)
    begun, gate = threading.Semaphore(0), threading.Semaphore(0)
    partitions = [SlowPartition(log_end=1, begun=begun, gate=gate) for _ in range(3)]
    async with trio.open_nursery() as inner:
        await inner.start(flusher.run)
        for partition in partitions:
            flusher.request(partition)
        await sync_begun(partitions[0])
        inner.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()  # the flusher knows by now
        gate.release()
    assert [partition.durable for partition in partitions] == [1, 0, 0]
    for partition in partitions:
        await flusher.wait_idle(partition)


async def test_a_failed_sync_is_final_and_never_repeated(flusher, mock_clock):
    partition = SlowPartition(log_end=1, error=OSError("the disk is gone"))
    flusher.request(partition)
    partition.gate.release()
    await flusher.wait_idle(partition)
    flusher.request(partition)
    await flusher.wait_idle(partition)
    assert partition.syncs == 1
    assert partition.durable == 0
    assert isinstance(partition.failed_with, OSError)
    assert flusher.statistics().failures == 1


async def test_a_failure_leaves_other_partitions_alone(flusher, mock_clock):
    bad, good = SlowPartition(log_end=1, error=OSError("gone")), SlowPartition(log_end=1)
    for partition in (bad, good):
        flusher.request(partition)
        partition.gate.release()
        await flusher.wait_idle(partition)
    assert good.durable == 1


async def test_requests_before_the_start_are_served_after_it(nursery, mock_clock):
    flusher = Flusher(RealWorkers(), 1, note_failure)
    partition = SlowPartition(log_end=1)
    partition.gate.release()
    flusher.request(partition)
    await nursery.start(flusher.run)
    await flusher.wait_idle(partition)
    assert partition.durable == 1


async def test_no_thread_outlives_the_flusher(nursery, mock_clock):
    flusher = Flusher(RealWorkers(), 4, note_failure)
    async with trio.open_nursery() as inner:
        await inner.start(flusher.run)
        partitions = [BusyPartition(ConcurrencyCounter(), log_end=1) for _ in range(4)]
        for partition in partitions:
            flusher.request(partition)
        for partition in partitions:
            await flusher.wait_idle(partition)
        inner.cancel_scope.cancel()
    assert trio.testing.active_thread_count() == 0
