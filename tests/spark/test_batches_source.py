"""The format ``trio_broker_batches``: one row for each batch, from its header."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from tests.spark.pipelines.broker_records import TIME_MS, numbered, send
from tests.spark.pipelines.memory_log import (
    InMemory,
    StoredBatch,
    batch,
    task_on,
    with_wrong_checksum,
    with_wrong_header,
)
from trio_broker.spark.batches_source import COLUMNS, BatchesTask, batch_options, plan_batches, read_batches
from trio_broker.spark.errors import CorruptData, OptionError
from trio_broker.testing import BrokerThread, broker_in_thread

ALL = tuple(COLUMNS)


def rows(
    log: InMemory,
    start: int = 0,
    end: int = 100,
    *,
    columns: tuple[str, ...] = ALL,
    first: bool = True,
    crc: bool = True,
) -> list[dict[str, Any]]:
    task = task_on(log, start, end)
    task = attrs.evolve(task, decoding=attrs.evolve(task.decoding, verify_crc=crc))
    return [row for each in read_batches(BatchesTask(task, columns, first)) for row in each.to_pylist()]


def test_a_row_tells_what_the_header_says():
    records = [NewRecord(timestamp=TIME_MS + number, key=None, value=b"v" * 50) for number in range(3)]
    data = build_batch(
        records,
        base_offset=7,
        partition_leader_epoch=2,
        codec=Codec.ZSTD,
        producer_id=11,
        producer_epoch=4,
        base_sequence=90,
        transactional=True,
    )
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=TIME_MS)
    assert rows(InMemory((StoredBatch(7, data),))) == [
        {
            "topic": "orders",
            "partition": 0,
            "base_offset": 7,
            "last_offset": 9,
            "leader_epoch": 2,
            "record_count": 3,
            "size_bytes": len(data),
            "codec": "zstd",
            "timestamp_type": 0,
            "base_timestamp": moment,
            "max_timestamp": moment + timedelta(milliseconds=2),
            "producer_id": 11,
            "producer_epoch": 4,
            "base_sequence": 90,
            "is_transactional": True,
            "is_control": False,
            "crc_ok": True,
            "origin": "memory",
        }
    ]


def test_a_wrong_checksum_is_a_row_and_no_error():
    log = InMemory((batch(0, 10), with_wrong_checksum(batch(10, 10)), batch(20, 10)))
    assert [row["crc_ok"] for row in rows(log)] == [True, False, True]
    assert [row["crc_ok"] for row in rows(log, crc=False)] == [None, None, None]


def test_rows_before_a_header_that_is_none_come_and_then_an_error():
    log = InMemory((batch(0, 10), batch(10, 10), with_wrong_header(batch(20, 10))), batches_per_chunk=1)
    task = BatchesTask(task_on(log, 0, 30), ("base_offset",), includes_cut_batch=True)
    read = read_batches(task)
    assert [next(read).to_pydict(), next(read).to_pydict()] == [{"base_offset": [0]}, {"base_offset": [10]}]
    with pytest.raises(CorruptData, match="orders-0 at offset 20: magic 119"):
        next(read)


def test_only_the_columns_asked_for_come_in_the_order_asked_for():
    assert rows(InMemory((batch(0, 10),)), columns=("codec", "record_count")) == [{"codec": "none", "record_count": 10}]


def test_times_that_no_calendar_has_are_null():
    records = [NewRecord(timestamp=time, key=None, value=b"") for time in (-1, 2**62)]
    log = InMemory((StoredBatch(0, build_batch(records)),))
    assert rows(log, columns=("base_timestamp", "max_timestamp")) == [{"base_timestamp": None, "max_timestamp": None}]


def test_the_defaults_are_made_for_looking_at_batches():
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    found = batch_options(given)
    assert (found.read_committed, found.verify_crc) == (False, False)
    asked = batch_options({**given, "verifycrc": "true", "kafka.isolation.level": "read_committed"})
    assert (asked.read_committed, asked.verify_crc) == (True, True)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A broker with a topic of two partitions of ten batches each."""
    with broker_in_thread() as broker:
        broker.create_topic("orders", 2)
        for partition in (0, 1):
            send(broker, "orders", numbered(100), partition=partition, **{"batch.num.messages": 10})
        yield broker


def options(broker: BrokerThread, **further: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", **further}


def test_slices_that_cut_batches_show_each_batch_once(broker: BrokerThread):
    given = batch_options(options(broker, maxRecordsPerPartition="7"))
    tasks = plan_batches(given, ("partition", "base_offset"))
    found = [
        (row["partition"], row["base_offset"])
        for task in tasks
        for each in read_batches(task)
        for row in each.to_pylist()
    ]
    assert len(tasks) > 20
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(0, 100, 10)]


@pytest.mark.spark
def test_spark_finds_the_format_and_groups_by_codec(broker: BrokerThread, spark):
    frame = spark.read.format("trio_broker_batches").options(**options(broker, verifyCrc="true")).load()
    [row] = frame.groupBy("codec", "crc_ok").sum("record_count").collect()
    assert tuple(row) == ("none", True, 200)
    assert frame.columns == list(COLUMNS)


@pytest.mark.spark
def test_a_schema_prunes_and_a_wrong_one_is_refused(broker: BrokerThread, spark):
    reader = spark.read.format("trio_broker_batches").options(**options(broker))
    assert reader.schema("size_bytes bigint").load().count() == 20
    with pytest.raises(Exception, match="'bytes' is no column") as refused:
        reader.schema("bytes bigint").load().count()
    assert OptionError.__name__ in str(refused.value)
