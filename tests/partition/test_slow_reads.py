"""Partitions whose reads are slow beside others: a Fetch waits for its own disk, not for that of others.

The disk and the threads are simulated, and time is virtual. There are four threads for reads, and a slow read takes ten
seconds. No offset is found in memory.
"""

from __future__ import annotations

import errno
import random
from pathlib import PurePath

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch, make_replicas
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import run_steps
from trio_broker.partition.fetch_operation import FetchLimits, FetchTarget
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.slow_work import SLOW_SECONDS as LOOK_SECONDS
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_workers import LONG_DELAY_SECONDS, SimulatedWorkers
from trio_broker.storage.log_reader import LogReader, ReadableLog

DATA, OTHER_DATA = PurePath("/data"), PurePath("/other")
SLOW_SECONDS = 10.0
FOUND_SECONDS = 2 * LOOK_SECONDS
"""After which reads that have begun are known to be slow."""
READ_SECONDS = 2 * LONG_DELAY_SECONDS
"""The longest that the simulated threads let a Fetch wait for its own read."""


@attrs.define(eq=False)
class SlowDisk:
    """Replicas over two directories, whose partitions are looked into."""

    replicas: ReplicaManager
    disk: SimulatedDisk

    def slow_down(self, *partitions: Partition) -> None:
        directories = {partition.log.directory for partition in partitions}
        faults = self.disk.faults
        faults.applies_to = lambda path: path.parent in directories
        faults.cold_reads, faults.slow_reads, faults.slow_read_seconds = 1.0, 1.0, SLOW_SECONDS

    async def lookup_seconds(self, partition: Partition) -> float:
        """How long a client waits that asks for the newest timestamp."""
        began = trio.current_time()
        found = await self.replicas.run_in_thread(partition, LogReader.max_timestamp_offset)
        assert found is not None
        return trio.current_time() - began

    async def keep_looking(self, partition: Partition) -> None:
        while True:
            await self.lookup_seconds(partition)

    async def slowest(self, partition: Partition, count: int) -> float:
        return max([await self.lookup_seconds(partition) for _ in range(count)])


@pytest.fixture
async def slow_disk(nursery):
    clock = ManualClock(NOW_MS)
    disk = SimulatedDisk(clock)
    workers = SimulatedWorkers(random.Random(7), disk.seconds_taken)
    runtime = attrs.evolve(real_runtime(clock), disk=disk, workers=workers)
    replicas = make_replicas(DATA, others=[OTHER_DATA], runtime=runtime)
    await nursery.start(replicas.flusher.run)
    for directory in (DATA, OTHER_DATA):
        nursery.start_soon(replicas.threads_of(directory).run)
    return SlowDisk(replicas, disk)


async def partitions_in(slow_disk: SlowDisk, directory: PurePath, count: int) -> list[Partition]:
    """Partitions that lie in ``directory``, each with a record."""
    name = f"in-{directory.name}"
    partitions = await add_topic(slow_disk.replicas, name, partitions=2 * count, topic_id=name.encode().ljust(16))
    chosen = [partition for partition in partitions if partition.log.directory.parent == directory]
    for partition in chosen:
        await append_to_leader(slow_disk.replicas, partition, batch(b"value"))
    await trio.sleep(SLOW_SECONDS)  # for their syncs
    return chosen[:count]


async def test_slow_partitions_leave_threads_for_the_others_from_the_first_slow_read_on(
    slow_disk, nursery, autojump_clock
):
    good, *slow = await partitions_in(slow_disk, DATA, 5)
    slow_disk.slow_down(*slow)
    for partition in slow:
        nursery.start_soon(slow_disk.lookup_seconds, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert await slow_disk.lookup_seconds(good) <= FOUND_SECONDS + READ_SECONDS
    assert await slow_disk.slowest(good, 50) <= READ_SECONDS
    nursery.cancel_scope.cancel()


async def test_any_number_of_partitions_known_to_be_slow_leaves_the_others_alone(slow_disk, nursery, autojump_clock):
    good, *slow = await partitions_in(slow_disk, DATA, 41)
    slow_disk.slow_down(*slow)
    for partition in slow:
        nursery.start_soon(slow_disk.keep_looking, partition)
    await trio.sleep(100 * SLOW_SECONDS)
    assert await slow_disk.slowest(good, 1000) <= READ_SECONDS
    assert not good.writer.reads_slowly
    nursery.cancel_scope.cancel()


async def test_a_partition_is_slow_until_a_read_of_it_was_not(slow_disk, nursery, autojump_clock):
    good, *slow = await partitions_in(slow_disk, DATA, 9)
    slow_disk.slow_down(*slow)
    for partition in (*slow, good):
        nursery.start_soon(slow_disk.lookup_seconds, partition)
    await trio.sleep(20 * SLOW_SECONDS)
    assert all(partition.writer.reads_slowly for partition in slow)
    slow_disk.disk.faults.slow_reads = 0.0
    for partition in slow:
        for _ in range(100):  # a thread may be late by chance
            await slow_disk.lookup_seconds(partition)
    assert not any(partition.writer.reads_slowly for partition in slow)


async def test_eight_partitions_on_a_disk_that_hangs_leave_produce_and_fetch_in_another_directory_alone(
    slow_disk, nursery, autojump_clock, monkeypatch
):
    """Each request holds its handler's slot until it says that it waits."""
    [good] = await partitions_in(slow_disk, OTHER_DATA, 1)
    hanging = await partitions_in(slow_disk, DATA, 8)
    slow_disk.slow_down(*hanging)
    slots = trio.CapacityLimiter(4)
    limits = FetchLimits(max_wait_seconds=0.0, min_bytes=1, max_bytes=1000)
    answered: list[Partition] = []

    async def fetch(partition: Partition) -> None:
        await slots.acquire()

        def release(phase: RequestPhase) -> None:
            assert phase is RequestPhase.DISK
            slots.release()

        targets = [FetchTarget(0, 0, 1000, partition)]
        [result] = await run_steps(slow_disk.replicas.fetch_steps(targets, limits, release_handler=release))
        assert result.error_code == ErrorCode.NONE
        assert result.record_count > 0
        answered.append(partition)

    read = ReadableLog.read

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if nowait:
            raise BlockingIOError(errno.EAGAIN, "not in the cache")
        fetched = read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)
        assert not isinstance(fetched.records, bytes)
        fetched.records.read()
        return fetched

    monkeypatch.setattr(ReadableLog, "read", cold)
    for partition in hanging:
        nursery.start_soon(fetch, partition)
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(SLOW_SECONDS / 2):
        await slots.acquire()
        info = await append_to_leader(slow_disk.replicas, good, batch(b"value"))
        slots.release()
        assert info.first_offset == 1
        await fetch(good)
    assert answered == [good]
    nursery.cancel_scope.cancel()
