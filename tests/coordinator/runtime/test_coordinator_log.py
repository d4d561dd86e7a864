"""What a shard is loaded from."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast

import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.coordinator.runtime.log import CoordinatorLog
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.log_reader import LogReader
from trio_broker.storage.recovery import open_log

PARTITION = TopicPartition("__consumer_offsets", 0)
MOVER, OTHER = 7, 8
"""Producers."""


@pytest.fixture
def log() -> Log:
    disk = SimulatedDisk(ManualClock())
    directory = PurePath("/data/__consumer_offsets-0")
    disk.make_directory(directory.parent)
    return open_log(
        disk, directory, PARTITION, bytes(16), LogConfig(), recovery_point=0, log_start_offset=0, clean=True, now_ms=0
    ).log


def commit(log: Log, key: bytes, *, producer_id: int = -1, sequence: int = -1) -> None:
    batch = build_batch(
        [NewRecord(0, key, b"value")],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=producer_id >= 0,
    )
    append(log, batch)


def end(log: Log, producer_id: int, *, committed: bool) -> None:
    marker = EndTransactionMarker(committed=committed, coordinator_epoch=0)
    append(log, build_control_batch(marker, timestamp=0, producer_id=producer_id, producer_epoch=0))


def append(log: Log, batch: bytes) -> None:
    log.append(bytearray(batch), leader_epoch=1, now_ms=0, origin=AppendOrigin.COORDINATOR)


def batches(log: Log) -> list[tuple[int, list[bytes]] | tuple[int, bool]]:
    """What a shard that is loaded reads: producer and keys of a batch, or how a producer's transaction ended."""
    unused = cast(Any, None)
    part = CoordinatorLog(unused, unused, leader_epoch=1).read_slice(0, log.log_end_offset, LogReader(log, 0))
    assert part.next_offset == log.log_end_offset
    return [
        (each.producer_id, [key for key, _ in each.records])
        if each.marker is None
        else (each.marker.producer_id, not each.marker.aborted)
        for each in part.batches
    ]


def test_records_of_transactions_and_their_ends_are_read_in_the_order_of_the_log(log: Log) -> None:
    commit(log, b"first", producer_id=MOVER, sequence=0)
    commit(log, b"plain")
    end(log, MOVER, committed=True)
    commit(log, b"of another", producer_id=OTHER, sequence=0)
    commit(log, b"second", producer_id=MOVER, sequence=1)
    end(log, MOVER, committed=False)
    assert batches(log) == [
        (MOVER, [b"first"]),
        (-1, [b"plain"]),
        (MOVER, True),
        (OTHER, [b"of another"]),
        (MOVER, [b"second"]),
        (MOVER, False),
    ]
