"""A data directory as a clean stop leaves it, with a file of every kind, to be damaged."""

from __future__ import annotations

import random
from pathlib import PurePath
from typing import Final

from kafka_wire.records.batch import RecordBatch, build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import TopicRecord, encode_metadata_record
from kafka_wire.stored.offset_commits import encode_commit_key, encode_commit_value
from tests.storage.managed_logs import create_log
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import Disk
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager

ORDERS: Final = TopicPartition("orders", 0)
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
METADATA: Final = TopicPartition("__cluster_metadata", 0)
TOPIC_IDS: Final = {ORDERS: bytes(15) + b"\x07", OFFSETS: bytes(15) + b"\x08", METADATA: bytes(15) + b"\x01"}
CONFIG: Final = LogConfig(
    internal_segment_bytes=2000, segment_index_bytes=800, index_interval_bytes=200, retention_ms=-1
)
NOW_MS: Final = 1_700_000_000_000
BATCHES: Final = 40
VALUE: Final = b"a value of some length, so that a segment has few"


def write_data_directory(disk: Disk, path: PurePath, *, clean: bool = True) -> None:
    """Make a data directory with a plain topic of many segments and two leader epochs, some transactions of which were
    aborted, committed offsets, and a metadata log that knows both topics."""
    clock = ManualClock()
    manager = LogManager([path], disk=disk, random=random.Random(1), node_id=1, clock=clock)
    manager.open()
    logs = {each: create_log(manager, each, topic_id, CONFIG) for each, topic_id in TOPIC_IDS.items()}
    topics = [TopicRecord(name=each.topic, topic_id=TOPIC_IDS[each]) for each in (ORDERS, OFFSETS)]
    append(logs[METADATA], build_batch([NewRecord(NOW_MS, None, encode_metadata_record(each)) for each in topics]))
    for number in range(5):
        key, value = encode_commit_key("group", "orders", number), encode_commit_value(number, 0, "", NOW_MS)
        append(logs[OFFSETS], build_batch([NewRecord(NOW_MS, key, value)]))
    _write_orders(logs[ORDERS])
    for log in logs.values():
        log.sync()
    manager.checkpoints.write()
    manager.close(clean=clean, high_watermarks={each: log.log_end_offset for each, log in logs.items()})


def _write_orders(log: Log) -> None:
    for number in range(BATCHES):
        epoch = 0 if number < BATCHES // 2 else 3
        log.begin_epoch(epoch)
        is_transactional = number % 5 == 4
        records = [NewRecord(NOW_MS + 10 * number + i, b"k%d" % number, VALUE) for i in range(3)]
        data = build_batch(
            records,
            codec=Codec.GZIP if number % 3 == 2 else Codec.NONE,
            producer_id=9 if is_transactional else 8,
            producer_epoch=0,
            base_sequence=3 * (number // 5) if is_transactional else 3 * (number - number // 5),
            transactional=is_transactional,
        )
        append(log, data, epoch)
        if is_transactional:
            marker = EndTransactionMarker(committed=number % 2 == 0, coordinator_epoch=0)
            control = build_control_batch(marker, timestamp=NOW_MS + 10 * number, producer_id=9, producer_epoch=0)
            append(log, control, epoch, AppendOrigin.COORDINATOR)


def append(log: Log, data: bytes, epoch: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append(memoryview(bytearray(data)), origin=origin, leader_epoch=epoch, now_ms=NOW_MS)


def batches_in(content: bytes) -> list[tuple[int, RecordBatch]]:
    """The batches of a log file, each with its position."""
    found, position = [], 0
    for batch in read_batches(content):
        found.append((position, batch))
        position += batch.header.size_bytes
    return found
