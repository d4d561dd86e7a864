"""What a power cut must not take although nothing asked for it lately: pages that a failed sync dropped, and names."""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.recovery import open_log

DATA = PurePath("/var/lib/broker")


def opened(disk: SimulatedDisk) -> Log:
    return open_log(
        disk,
        DATA / "orders-0",
        TopicPartition("orders", 0),
        bytes(range(16)),
        LogConfig(),
        recovery_point=0,
        log_start_offset=0,
        clean=False,
        now_ms=0,
    ).log


def batch(value: bytes) -> bytearray:
    return bytearray(build_batch([NewRecord(0, None, value)]))


@pytest.mark.parametrize("seed", range(20))
def test_records_that_a_start_found_survive_the_power_cut_after_it(seed: int):
    """A sync failed and the process was started again: Linux counts the pages as clean, so they are written again."""
    disk = SimulatedDisk(ManualClock(), seed)
    LogDirectory(disk, DATA).open()
    log = opened(disk)
    log.append(batch(b"synced"), leader_epoch=0, now_ms=0)
    log.sync()
    disk.sync_directory(DATA)
    log.append(batch(b"dropped"), leader_epoch=0, now_ms=0)
    disk.faults.failing_syncs = 1.0
    with pytest.raises(StorageFailed):
        log.sync()
    disk.faults.failing_syncs = 0.0

    disk = disk.crash()
    found = opened(disk)
    found.sync_after_crash()
    assert found.log_end_offset == 2, "the page cache still has the second record"

    disk = disk.power_cut(random.Random(seed))
    assert opened(disk).log_end_offset == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_data_directory_itself_survives_a_power_cut(seed: int):
    disk = SimulatedDisk(ManualClock(), seed)
    LogDirectory(disk, DATA).open()
    disk = disk.power_cut(random.Random(seed))
    assert disk.is_directory(DATA)
