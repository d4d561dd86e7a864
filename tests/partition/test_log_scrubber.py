"""The scrubber finds what rots in sealed segments, on a simulated disk, and says so."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import PurePath

import attrs
import pytest

from tests.partition.real_logs import make_partition
from tests.storage.data_directories import CONFIG, ORDERS, write_data_directory
from tests.storage.managed_logs import load_logs
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.log_scrubber import LogScrubber
from trio_broker.partition.partition import Partition
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage import checkpoints, file_names
from trio_broker.storage.log_manager import LogManager

DATA = PurePath("/data")
RATE = "log.scrubber.io.max.bytes.per.second"


@attrs.define
class Hosted:
    """Partitions over the logs of a manager."""

    held: list[Partition]

    def partitions(self) -> Iterator[Partition]:
        return iter(self.held)


@attrs.define
class Broker:
    """A scrubber over the logs of a simulated disk."""

    disk: SimulatedDisk
    manager: LogManager
    replicas: Hosted
    scrubber: LogScrubber

    @property
    def orders(self) -> Partition:
        return next(each for each in self.replicas.held if each.topic_partition == ORDERS)


def open_broker(disk: SimulatedDisk, clock: ManualClock, **settings: str) -> Broker:
    manager = LogManager([DATA], disk=disk, random=random.Random(2), node_id=1, clock=clock)
    manager.open()
    load_logs(manager, lambda partition, topic_id: CONFIG)
    replicas = Hosted([make_partition(log) for log in manager.logs.values()])

    async def change_directories(work):
        return work()

    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(DATA), **settings})
    runtime = attrs.evolve(real_runtime(clock), disk=disk)
    scrubber = LogScrubber(replicas, manager, config, runtime, change_directories=change_directories)
    return Broker(disk, manager, replicas, scrubber)


@pytest.fixture
def broker(autojump_clock) -> Broker:
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    write_data_directory(disk, DATA)
    return open_broker(disk, clock)


async def test_a_pass_reads_every_sealed_segment_and_finds_nothing(broker):
    await broker.scrubber.finish_pass()
    statistics = broker.scrubber.statistics()
    sealed = [each for partition in broker.replicas.held for each in partition.log.segments[:-1]]
    assert (statistics.passes, statistics.segments, statistics.damaged) == (1, len(sealed), ())
    assert statistics.bytes_read == sum(each.size for each in sealed)


@pytest.mark.parametrize("position", [0, 8, 20, 90, 700])
async def test_a_bit_that_rots_is_found_and_reported(broker, caplog, position):
    segment = broker.orders.log.segments[1]
    broker.disk.rot(segment.file.path, position)
    with caplog.at_level(logging.ERROR):
        await broker.scrubber.finish_pass()
    (damaged,) = broker.scrubber.statistics().damaged
    assert (damaged.topic_partition, damaged.path) == (ORDERS, segment.file.path)
    assert damaged.position <= position
    assert "orders-0: damage in" in caplog.text


async def test_a_file_that_cannot_be_read_is_damage_too(broker):
    path = broker.orders.log.segments[1].file.path
    broker.disk.faults.failing_reads = 1.0
    broker.disk.faults.applies_to = lambda each: each == path
    await broker.scrubber.finish_pass()
    (damaged,) = broker.scrubber.statistics().damaged
    assert "cannot be read" in damaged.reason


async def test_what_a_later_pass_finds_whole_is_no_damage_any_more(broker):
    broker.disk.faults.failing_reads = 1.0
    await broker.scrubber.finish_pass()
    assert broker.scrubber.statistics().damaged
    broker.disk.faults.failing_reads = 0.0
    await broker.scrubber.finish_pass()
    assert broker.scrubber.statistics().damaged == ()


async def test_the_pace_is_bounded(autojump_clock):
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    write_data_directory(disk, DATA)
    broker = open_broker(disk, clock, **{RATE: "1024"})
    began = autojump_clock.current_time()
    await broker.scrubber.finish_pass()
    seconds = autojump_clock.current_time() - began
    assert seconds >= broker.scrubber.statistics().bytes_read / 1024 - 1


async def test_the_next_start_goes_on_where_the_pass_was(broker):
    segments = broker.orders.log.segments
    checkpoints.write_offsets(broker.disk, DATA / file_names.SCRUBBER_CHECKPOINT, {ORDERS: segments[2].base_offset})
    scrubber = broker.scrubber
    scrubber._positions = scrubber._read_positions()
    await scrubber.finish_pass()
    others = sum(len(each.log.segments) - 1 for each in broker.replicas.held if each is not broker.orders)
    assert scrubber.statistics().segments == others + len(segments) - 1 - 2
    assert checkpoints.read_offsets(broker.disk, DATA / file_names.SCRUBBER_CHECKPOINT) == {}
