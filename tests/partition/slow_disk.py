"""Replicas over two directories on a simulated disk that is slow for some partitions.

The disk and the threads are simulated, and time is virtual. There are four threads for reads and four for syncs, and a
slow read or sync takes ten seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import PurePath

import attrs
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
from trio_broker.storage.log_reader import LogReader

DATA, OTHER_DATA = PurePath("/data"), PurePath("/other")
SLOW_SECONDS = 10.0
FOUND_SECONDS = 2 * LOOK_SECONDS
"""After which work that has begun is known to be slow."""
QUICK_SECONDS = 2 * LONG_DELAY_SECONDS
"""The longest that the simulated threads let a client wait for its own read or sync."""


@attrs.define(eq=False)
class SlowDisk:
    """Replicas in fsync mode. In those of ``kind`` "reads" no offset is found in memory."""

    replicas: ReplicaManager
    disk: SimulatedDisk
    kind: str

    def slow_down(self, *partitions: Partition) -> None:
        directories = {partition.log.directory for partition in partitions}
        self.slow_down_files(lambda path: path.parent in directories)

    def slow_down_files(self, are_slow: Callable[[PurePath], bool]) -> None:
        faults = self.disk.faults
        faults.applies_to = are_slow
        if self.kind == "reads":
            faults.cold_reads, faults.slow_reads, faults.slow_read_seconds = 1.0, 1.0, SLOW_SECONDS
        else:
            faults.slow_syncs, faults.slow_sync_seconds = 1.0, SLOW_SECONDS

    def mend(self) -> None:
        self.disk.faults.slow_reads = self.disk.faults.slow_syncs = 0.0

    def is_slow(self, partition: Partition) -> bool:
        """Whether the broker takes it for slow."""
        return partition.writer.reads_slowly if self.kind == "reads" else partition.writer.syncs_slowly

    async def seconds(self, partition: Partition) -> float:
        """How long a client waits that asks for the newest timestamp, or a producer with acks=all."""
        began = trio.current_time()
        if self.kind == "reads":
            assert await self.replicas.run_in_thread(partition, LogReader.max_timestamp_offset) is not None
        else:
            await self.acknowledge(partition)
        return trio.current_time() - began

    async def acknowledge(self, partition: Partition) -> None:
        info = await append_to_leader(self.replicas, partition, batch(b"value"))
        required = RequiredOffset(partition, info.last_offset + 1)
        await self.replicas.appends.wait_until_replicated(
            [required], timeout_seconds=1000, release_handler=lambda phase: None
        )

    async def keep_on(self, partition: Partition) -> None:
        while True:
            await self.seconds(partition)

    async def slowest(self, partition: Partition, count: int) -> float:
        return max([await self.seconds(partition) for _ in range(count)])

    async def partitions_in(self, directory: PurePath, count: int) -> list[Partition]:
        """Partitions that lie in ``directory``, each with a record."""
        name = f"in-{directory.name}"
        partitions = await add_topic(self.replicas, name, partitions=2 * count, topic_id=name.encode().ljust(16))
        chosen = [partition for partition in partitions if partition.log.directory.parent == directory]
        for partition in chosen:
            await self.acknowledge(partition)
        return chosen[:count]


async def open_slow_disk(nursery: trio.Nursery, kind: str) -> SlowDisk:
    clock = ManualClock(NOW_MS)
    disk = SimulatedDisk(clock)
    workers = SimulatedWorkers(random.Random(7), disk.seconds_taken)
    runtime = attrs.evolve(real_runtime(clock), disk=disk, workers=workers)
    replicas = make_replicas(DATA, others=[OTHER_DATA], runtime=runtime)
    await nursery.start(replicas.flusher.run)
    for directory in (DATA, OTHER_DATA):
        nursery.start_soon(replicas.threads_of(directory).run)
    return SlowDisk(replicas, disk, kind)
