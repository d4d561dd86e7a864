"""A broker is killed while rows are written, and started again: every row is there once, in order."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import UUID

import attrs
import pytest
from confluent_kafka import Message

from tests.spark.producer.arrow_rows import Row, arrow_batch
from tests.spark.producer.consumed_records import headers_of, read_back, values_of
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.murmur2 import murmur2
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.record_writer import RecordWriter
from trio_broker.spark.producer.row_ids import Deduplicator, TaskId, find_row_id
from trio_broker.testing import BrokerProcess

TOPIC = "survivor"
PARTITIONS = 3
KILLS = (300, 600)
WRITES, ROWS = 900, 100


def partition_of(key: bytes) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % PARTITIONS


OLD_MS = 1_700_000_000_000
"""Older than ``producer.id.expiration.ms``, by which brokers forget producers. A crash must not be what makes them."""

TASK = TaskId(UUID(int=9), 0, 0)


def deduplicated(partition: int, messages: list[Message]) -> list[Message]:
    deduplicator, place = Deduplicator(), TopicPartition(TOPIC, partition)
    ids = [find_row_id(headers_of(message)) for message in messages]
    return [
        message
        for message, row_id in zip(messages, ids, strict=True)
        if row_id is not None and deduplicator.is_new(place, row_id)
    ]


@pytest.mark.soak
@pytest.mark.parametrize("timestamp_ms", [None, OLD_MS], ids=["young", "old"])
def test_a_broker_killed_while_rows_are_written_has_each_once_and_in_order(tmp_path: Path, timestamp_ms: int | None):
    """Synced logs: what was acknowledged must be there after the crash, and what was not is sent again."""
    overrides = {"num.partitions": str(PARTITIONS), "log.durability": "fsync"}
    with BrokerProcess(tmp_path / "broker", overrides) as broker:
        settings = ProducerSettings(parse_addresses(broker.bootstrap_servers), retry_backoff_max_ms=200)
        with RecordWriter(attrs.evolve(settings, batch_size=4000), topic=TOPIC, task_id=TASK) as writer:
            for number in range(WRITES):
                if number in KILLS:
                    # While the writer goes on: its thread is sending, and the answers of some batches are lost.
                    broker.kill()
                    restarting = threading.Thread(target=broker.start)
                    restarting.start()
                first = number * ROWS
                rows = [Row(b"%d" % (each % 11), b"%d" % each, timestamp_ms) for each in range(first, first + ROWS)]
                writer.write(arrow_batch(rows))
                if number in KILLS:
                    restarting.join()
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS)

    assert writer.written.record_count == WRITES * ROWS
    for partition, messages in found.items():
        expected = [b"%d" % each for each in range(WRITES * ROWS) if partition_of(b"%d" % (each % 11)) == partition]
        assert values_of(messages) == expected
        assert values_of(deduplicated(partition, messages)) == expected
