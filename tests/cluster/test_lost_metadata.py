"""What proves that a metadata log has lost records is never left behind by a power cut."""

from __future__ import annotations

import itertools
import random
from pathlib import Path, PurePath
from unittest import mock
from uuid import UUID

import attrs
import pytest

from kafka_wire.stored.metadata import TopicRecord
from tests.fakes.metadata_logs import leading_log, take_snapshot
from tests.handlers.wire_client import ADVERTISED, broker_config
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch
from trio_broker.bootstrap import open_services
from trio_broker.cluster import metadata_log
from trio_broker.cluster.lost_metadata import require_whole_log
from trio_broker.cluster.replication_control import NewTopic, TopicTarget
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk_trace import DiskOperation
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.storage.deleted_logs import DeletedLogs, MarkedLogs

DATA = PurePath("/data")
CONFIG = broker_config(Path(DATA))
CUTS = 3
"""At each change: each keeps another part of what was not synced."""


def first_start(runtime: Runtime) -> None:
    leading_log(DATA, runtime).close()


def second_start_with_snapshot(runtime: Runtime) -> None:
    log = leading_log(DATA, runtime)
    take_snapshot(log, [TopicRecord(name="orders", topic_id=UUID(int=1).bytes)])
    log.close()


def runtime_on(disk: SimulatedDisk) -> Runtime:
    return attrs.evolve(real_runtime(ManualClock()), disk=disk)


def cut_before(disk: SimulatedDisk, number: int, seed: int) -> list[SimulatedDisk]:
    """Cut the power before the change of that number from now on; return the disk after it, once it happened."""
    survivors: list[SimulatedDisk] = []
    numbers = itertools.count()

    def before(operation: DiskOperation) -> None:
        if operation.kind.changes and next(numbers) == number:
            survivors.append(disk.power_cut(random.Random(seed)))

    disk.trace.before = before
    return survivors


@pytest.mark.parametrize("work", [first_start, second_start_with_snapshot])
def test_a_power_cut_at_any_change_leaves_a_log_that_is_opened_again(work):
    step, has_ended = 0, False
    while not has_ended:
        for seed in range(CUTS):
            disk = SimulatedDisk(ManualClock(), seed)
            disk.make_directory(DATA)
            disk.sync_directory(DATA.parent)
            if work is second_start_with_snapshot:
                first_start(runtime_on(disk))
            survivors = cut_before(disk, step, seed)
            try:
                work(runtime_on(disk))
                has_ended = True
                survivors.append(disk.power_cut(random.Random(seed)))
            except ProcessEnded:
                pass
            disk.trace.before = None
            [after] = survivors
            require_whole_log(after, DATA)
            first_start(runtime_on(after))
        step += 1
    assert step > 20


async def a_topic_whose_deletion_was_cut_short(runtime: Runtime) -> None:
    """Leave the directory of a partition with a record, whose topic was deleted, as a kill does before the rename."""
    async with open_services(CONFIG, runtime, ADVERTISED) as services:
        await services.controller.create_topics([NewTopic(name="orders", num_partitions=1)])
        partition = services.replicas.topic("orders").partition(0)
        await append_to_leader(services.replicas, partition, batch(b"value"))
        with mock.patch.object(DeletedLogs, "mark", return_value=MarkedLogs((), {})):
            await services.controller.delete_topics([TopicTarget("orders")])


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])
async def test_what_is_left_of_a_deleted_topic_has_another_name_before_a_snapshot_forgets_it(monkeypatch, stride):
    """A power cut at any change of a start with a snapshot, by default at every third: the next start finds nothing
    that proves a loss."""
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 0)
    step, has_ended = 0, False
    while not has_ended:
        disk = SimulatedDisk(ManualClock(), step)
        disk.make_directory(DATA)
        disk.sync_directory(DATA.parent)
        await a_topic_whose_deletion_was_cut_short(runtime_on(disk))
        assert disk.is_directory(DATA / "orders-0")
        survivors = cut_before(disk, step, step)
        try:
            async with open_services(CONFIG, runtime_on(disk), ADVERTISED) as services:
                assert services.metadata_log.snapshot is not None
            has_ended = not survivors
        except* ProcessEnded:
            disk.trace.before = None
        for after in survivors:
            async with open_services(CONFIG, runtime_on(after), ADVERTISED) as services:
                assert not services.replicas.topics
        step += stride
    assert step > 50
