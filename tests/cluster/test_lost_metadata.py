"""What proves that a metadata log has lost records is never left behind by a power cut."""

from __future__ import annotations

import random
from pathlib import PurePath
from uuid import UUID

import attrs
import pytest

from kafka_wire.stored.metadata import TopicRecord
from trio_broker.cluster.lost_metadata import require_whole_log
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk_trace import DiskOperation
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded

DATA = PurePath("/data")
CUTS = 15
"""At each operation: each keeps another part of what was not synced."""


def first_start(runtime: Runtime) -> None:
    MetadataLog.open(DATA, runtime, node_id=1).close()


def second_start_with_snapshot(runtime: Runtime) -> None:
    log = MetadataLog.open(DATA, runtime, node_id=1)
    log.take_snapshot([TopicRecord(name="orders", topic_id=UUID(int=1).bytes)])
    log.close()


def runtime_on(disk: SimulatedDisk) -> Runtime:
    return attrs.evolve(real_runtime(ManualClock()), disk=disk)


def cut_before(disk: SimulatedDisk, number: int, seed: int) -> list[SimulatedDisk]:
    """Cut the power before the operation of that number; return the disk after it, once it happened."""
    survivors: list[SimulatedDisk] = []

    def before(operation: DiskOperation) -> None:
        if operation.number == number:
            survivors.append(disk.power_cut(random.Random(seed)))

    disk.trace.before = before
    return survivors


@pytest.mark.parametrize("work", [first_start, second_start_with_snapshot])
def test_a_power_cut_at_any_operation_leaves_a_log_that_is_opened_again(work):
    step, has_ended = 0, False
    while not has_ended:
        for seed in range(CUTS):
            disk = SimulatedDisk(ManualClock(), seed)
            disk.make_directory(DATA)
            disk.sync_directory(DATA.parent)
            if work is second_start_with_snapshot:
                first_start(runtime_on(disk))
            survivors = cut_before(disk, disk.trace.count + step, seed)
            try:
                work(runtime_on(disk))
                has_ended = True
            except ProcessEnded:
                disk.trace.before = None
                [after] = survivors
                require_whole_log(after, DATA)
                first_start(runtime_on(after))
        step += 1
    assert step > 20
