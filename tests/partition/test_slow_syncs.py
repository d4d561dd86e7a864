"""Partitions whose syncs are slow beside others: an acknowledgement waits for its own disk, not for that of others.

The disk and the threads are simulated, and time is virtual. There are four threads for syncs, and a slow sync takes ten
seconds.
"""

from __future__ import annotations

import random
from pathlib import PurePath

import attrs
import pytest
import trio

from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch, make_replicas
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.slow_work import SLOW_SECONDS as LOOK_SECONDS
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_workers import LONG_DELAY_SECONDS, SimulatedWorkers

DATA, OTHER_DATA = PurePath("/data"), PurePath("/other")
SLOW_SECONDS = 10.0
FOUND_SECONDS = 2 * LOOK_SECONDS
"""After which syncs that have begun are known to be slow."""
SYNC_SECONDS = 2 * LONG_DELAY_SECONDS
"""The longest that the simulated threads let an acknowledgement wait for its own sync."""


@attrs.define(eq=False)
class SlowDisk:
    """Replicas in fsync mode, over two directories; ``slow`` are the files whose syncs are slow."""

    replicas: ReplicaManager
    disk: SimulatedDisk

    def slow_down(self, *partitions: Partition) -> None:
        directories = {partition.log.directory for partition in partitions}
        self.disk.faults.applies_to = lambda path: path.parent in directories
        self.disk.faults.slow_syncs, self.disk.faults.slow_sync_seconds = 1.0, SLOW_SECONDS

    def slow_down_directory(self, directory: PurePath) -> None:
        self.disk.faults.applies_to = lambda path: directory in path.parents
        self.disk.faults.slow_syncs, self.disk.faults.slow_sync_seconds = 1.0, SLOW_SECONDS

    async def acknowledgement_seconds(self, partition: Partition) -> float:
        """How long a producer with acks=all waits."""
        began = trio.current_time()
        info = await append_to_leader(self.replicas, partition, batch(b"value"))
        required = RequiredOffset(partition, info.last_offset + 1)
        await self.replicas.appends.wait_until_replicated(
            [required], timeout_seconds=1000, release_handler=lambda phase: None
        )
        return trio.current_time() - began

    async def keep_producing(self, partition: Partition) -> None:
        while True:
            await self.acknowledgement_seconds(partition)

    async def slowest(self, partition: Partition, count: int) -> float:
        return max([await self.acknowledgement_seconds(partition) for _ in range(count)])


@pytest.fixture
async def slow_disk(nursery):
    clock = ManualClock(NOW_MS)
    disk = SimulatedDisk(clock)
    workers = SimulatedWorkers(random.Random(7), disk.seconds_taken)
    runtime = attrs.evolve(real_runtime(clock), disk=disk, workers=workers)
    replicas = make_replicas(DATA, others=[OTHER_DATA], runtime=runtime)
    await nursery.start(replicas.flusher.run)
    return SlowDisk(replicas, disk)


async def partitions_in(slow_disk: SlowDisk, directory: PurePath, count: int) -> list[Partition]:
    """Partitions that lie in ``directory``, each with a first record."""
    partitions = await add_topic(slow_disk.replicas, partitions=2 * count)
    chosen = [partition for partition in partitions if partition.log.directory.parent == directory]
    for partition in chosen:
        await slow_disk.acknowledgement_seconds(partition)
    return chosen[:count]


async def test_slow_partitions_leave_threads_for_the_others_from_the_first_slow_sync_on(
    slow_disk, nursery, autojump_clock
):
    good, *slow = await partitions_in(slow_disk, DATA, 5)
    slow_disk.slow_down(*slow)
    for partition in slow:
        nursery.start_soon(slow_disk.acknowledgement_seconds, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert await slow_disk.acknowledgement_seconds(good) <= FOUND_SECONDS + SYNC_SECONDS
    assert await slow_disk.slowest(good, 50) <= SYNC_SECONDS
    nursery.cancel_scope.cancel()


async def test_any_number_of_partitions_known_to_be_slow_leaves_the_others_alone(slow_disk, nursery, autojump_clock):
    good, *slow = await partitions_in(slow_disk, DATA, 41)
    slow_disk.slow_down(*slow)
    for partition in slow:
        nursery.start_soon(slow_disk.keep_producing, partition)
    await trio.sleep(20 * SLOW_SECONDS)
    assert all(partition.log_end_offset > 1 for partition in slow)
    assert await slow_disk.slowest(good, 1000) <= SYNC_SECONDS
    nursery.cancel_scope.cancel()


async def test_a_partition_is_slow_until_a_sync_of_it_was_not(slow_disk, nursery, autojump_clock):
    good, *slow = await partitions_in(slow_disk, DATA, 9)
    slow_disk.slow_down(*slow)
    for partition in (*slow, good):
        nursery.start_soon(slow_disk.acknowledgement_seconds, partition)
    await trio.sleep(10 * SLOW_SECONDS)
    assert all(partition.writer.syncs_slowly for partition in slow)
    assert not good.writer.syncs_slowly
    slow_disk.disk.faults.slow_syncs = 0.0
    for partition in slow:
        for _ in range(100):  # a thread may be late by chance
            await slow_disk.acknowledgement_seconds(partition)
    assert not any(partition.writer.syncs_slowly for partition in slow)


async def test_threads_that_took_the_place_of_slow_ones_end_with_them(slow_disk, nursery, autojump_clock):
    good, *slow = await partitions_in(slow_disk, DATA, 9)
    queue = slow_disk.replicas.flusher._queues[DATA]
    slow_disk.slow_down(*slow)
    for partition in (*slow, good):
        nursery.start_soon(slow_disk.acknowledgement_seconds, partition)
    await trio.sleep(SLOW_SECONDS / 2)
    assert queue._usual.threads == 8
    await trio.sleep(3 * SLOW_SECONDS)
    assert queue._usual.threads == 4
    assert slow_disk.replicas.flusher.statistics().threads == 4


async def test_a_directory_whose_disk_hangs_leaves_that_of_another_alone(slow_disk, nursery, autojump_clock):
    [good] = await partitions_in(slow_disk, OTHER_DATA, 1)
    hanging = await add_topic(slow_disk.replicas, "hanging", partitions=80, topic_id=bytes(range(1, 17)))
    hanging = [partition for partition in hanging if partition.log.directory.parent == DATA]
    for partition in hanging:
        await slow_disk.acknowledgement_seconds(partition)
    slow_disk.slow_down_directory(DATA)
    for partition in hanging:
        nursery.start_soon(slow_disk.acknowledgement_seconds, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert len(hanging) > 16
    assert await slow_disk.slowest(good, 50) <= SYNC_SECONDS
    nursery.cancel_scope.cancel()
