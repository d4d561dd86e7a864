"""Both engines make the bytes that ``kafka_wire`` makes; batches end where they are to."""

from __future__ import annotations

import math
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.records.batch import BATCH_HEADER_BYTES, build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from tests.spark.producer.arrow_rows import Row, arrow_batch, rows
from trio_broker.client.producer.producer_batch import UnsequencedBatch, encode_batch
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer import record_encoder
from trio_broker.spark.producer.record_encoder import (
    NumbaEngine,
    PlainEngine,
    RecordAccumulator,
    RecordEngine,
    RowIds,
    best_engine,
)
from trio_broker.spark.producer.row_columns import read_columns
from trio_broker.spark.producer.row_ids import HEADER, RowId, TaskId

PARTITION = TopicPartition("orders", 0)
TASK = TaskId(UUID(int=77), 5, 6)
NOW_MS = 1_650_000_000_000

ENGINES: list[RecordEngine] = [NumbaEngine(), PlainEngine()]

engines = pytest.mark.parametrize("engine", ENGINES, ids=["numba", "plain"])


def batches(
    engine: RecordEngine,
    given_rows: list[Row],
    *,
    pieces: int = 1,
    batch_size: int = 1 << 20,
    codec: Codec = Codec.NONE,
    row_ids: RowIds | None = None,
) -> list[UnsequencedBatch]:
    accumulator = RecordAccumulator(engine, batch_size, codec, row_ids=row_ids)
    full: list[UnsequencedBatch] = []
    step = math.ceil(len(given_rows) / pieces)
    for start in range(0, len(given_rows), step):
        some = arrow_batch(given_rows[start : start + step])
        columns = read_columns(some, topic="orders", now_ms=NOW_MS, with_row_ids=row_ids is not None)
        full += accumulator.add(PARTITION, columns, np.arange(len(columns)), start)
    full += accumulator.close_all()
    assert accumulator.open_bytes == 0
    return full


def numbered(given_rows: list[Row]) -> list[NewRecord]:
    records = [row.record(NOW_MS) for row in given_rows]
    for number, record in enumerate(records):
        record.headers = (*record.headers, (HEADER, RowId(TASK, number).to_bytes()))
    return records


@engines
@given(given_rows=rows, pieces=st.integers(1, 3), codec=st.sampled_from(Codec))
def test_the_bytes_are_those_of_build_batch(engine: RecordEngine, given_rows: list[Row], pieces: int, codec: Codec):
    [batch] = batches(engine, given_rows, pieces=pieces, codec=codec)

    expected = build_batch(
        [row.record(NOW_MS) for row in given_rows], codec=codec, producer_id=9, producer_epoch=2, base_sequence=40
    )
    assert encode_batch(batch, producer_id=9, producer_epoch=2, base_sequence=40).data == expected


@engines
@given(given_rows=rows, pieces=st.integers(1, 3))
def test_row_ids_come_behind_the_rows_own_headers(engine: RecordEngine, given_rows: list[Row], pieces: int):
    [batch] = batches(engine, given_rows, pieces=pieces, row_ids=RowIds(TASK))

    assert encode_batch(batch, -1, -1, -1).data == build_batch(numbered(given_rows))


@given(given_rows=rows, pieces=st.integers(1, 3), batch_size=st.integers(0, 700))
def test_batches_end_in_the_same_places_whichever_engine(given_rows: list[Row], pieces: int, batch_size: int):
    numba, plain = (batches(engine, given_rows, pieces=pieces, batch_size=batch_size) for engine in ENGINES)

    assert [encode_batch(batch, 1, 1, 1).data for batch in numba] == [
        encode_batch(batch, 1, 1, 1).data for batch in plain
    ]


@given(given_rows=rows, pieces=st.integers(1, 3), batch_size=st.integers(0, 700))
def test_no_batch_of_several_records_is_larger_than_batch_size(given_rows: list[Row], pieces: int, batch_size: int):
    made = batches(ENGINES[0], given_rows, pieces=pieces, batch_size=batch_size)

    for batch in made:
        assert batch.record_count == 1 or batch.size_bytes <= batch_size
    values = [
        record.value for batch in made for record in next(read_batches(encode_batch(batch, 1, 1, 1).data)).records()
    ]
    assert values == [row.value for row in given_rows]


@engines
def test_batches_of_equal_rows_are_nearly_full(engine: RecordEngine):
    made = batches(engine, [Row(value=bytes(100))] * 5000, pieces=10, batch_size=64 * 1024)

    sizes = [batch.size_bytes for batch in made[:-1]]
    assert len(sizes) == 8
    assert all(60 * 1024 < size <= 64 * 1024 for size in sizes), sizes


def test_a_batch_has_no_more_records_than_readers_take(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record_encoder, "MOST_RECORDS", 7)

    made = batches(ENGINES[0], [Row(value=b"")] * 20, pieces=4)

    assert [batch.record_count for batch in made] == [7, 7, 6]


def test_open_bytes_are_those_of_all_open_batches():
    accumulator = RecordAccumulator(ENGINES[0], 1 << 20)
    columns = read_columns(arrow_batch([Row(value=bytes(50))] * 4), topic="orders", now_ms=0)

    for number in range(3):
        assert accumulator.add(TopicPartition("orders", number), columns, np.arange(4), 0) == []

    sizes = {batch.size_bytes - BATCH_HEADER_BYTES for batch in batches(ENGINES[0], [Row(value=bytes(50))] * 4)}
    assert sizes == {accumulator.open_bytes // 3}


def test_only_the_rows_that_are_named_are_taken():
    accumulator = RecordAccumulator(ENGINES[0], 1 << 20)
    columns = read_columns(arrow_batch([Row(value=b"%d" % number) for number in range(6)]), topic="t", now_ms=0)

    accumulator.add(PARTITION, columns, np.array([1, 3, 4]), 0)

    [batch] = accumulator.close_all()
    read = list(next(read_batches(encode_batch(batch, 1, 1, 1).data)).records())
    assert [record.value for record in read] == [b"1", b"3", b"4"]


def test_the_engine_of_machine_code_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch):
    assert isinstance(best_engine(), NumbaEngine)

    def absent(self: NumbaEngine) -> None:
        raise ImportError

    monkeypatch.setattr(NumbaEngine, "__init__", absent)
    assert isinstance(best_engine(), PlainEngine)
