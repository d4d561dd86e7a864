"""Which rows come out of a log, and how."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from kafka_wire.records.batch import DELETE_HORIZON_BIT, TimestampType, build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import (
    ControlRecord,
    ControlRecordType,
    build_control_batch,
)
from kafka_wire.records.record import NewRecord, Record
from tests.spark.decoder.decoder_logs import (
    ABORTED,
    COMMITTED,
    NOW_MS,
    TRANSACTIONS,
    batches_of,
    chunk,
    numbered,
    offsets_of,
    table_of,
    transactional,
    with_block,
    with_header,
)
from trio_broker.spark.chunk import AbortedTransactionStart, Chunk
from trio_broker.spark.decoder import Engine
from trio_broker.spark.schema import COLUMNS, arrow_schema

pytestmark = pytest.mark.parametrize("engine", list(Engine))

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_every_column_of_a_record(engine: Engine) -> None:
    record = NewRecord(NOW_MS, b"k", b"v", [("a", b"1"), ("a", None), ("", b"")])
    table = table_of([chunk(build_batch([record], base_offset=7))], engine)
    assert table.schema == arrow_schema(COLUMNS)
    assert table.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp": EPOCH + timedelta(milliseconds=NOW_MS),
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}],
        }
    ]


def test_null_is_not_empty(engine: Engine) -> None:
    records = [NewRecord(1, None, b""), NewRecord(1, b"", None), NewRecord(1, b"k", b"v", [("h", b"")])]
    table = table_of([chunk(build_batch(records))], engine, columns=["value", "key", "headers"])
    assert table.to_pydict() == {
        "value": [b"", None, b"v"],
        "key": [None, b"", b"k"],
        "headers": [None, None, [{"key": "h", "value": b""}]],
    }


def test_header_keys_that_are_not_utf_8_are_replaced(engine: Engine) -> None:
    headers = [(b"gr\xf6\xdfe".decode("utf-8", "surrogateescape"), b"\xf6"), ("größe", None)]
    (row,) = table_of([chunk(build_batch([NewRecord(1, headers=headers)]))], engine, columns=["headers"]).to_pylist()
    assert row["headers"] == [{"key": "gr��e", "value": b"\xf6"}, {"key": "größe", "value": None}]


def test_log_append_time_is_the_batch_s(engine: Engine) -> None:
    records = [NewRecord(1000, b"", b"1"), NewRecord(3000, b"", b"2")]
    log = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME) + numbered(1, 2)
    table = table_of([chunk(log)], engine, columns=["timestamp", "timestampType"])
    times = [EPOCH + timedelta(milliseconds=ms) for ms in (3000, 3000, NOW_MS + 2)]
    assert table.to_pydict() == {"timestamp": times, "timestampType": [1, 1, 0]}


def test_no_timestamp_is_a_millisecond_before_the_epoch_as_in_the_jvm_source(engine: Engine) -> None:
    table = table_of([chunk(build_batch([NewRecord(-1)]))], engine, columns=["timestamp", "timestampType"])
    assert table.to_pydict() == {"timestamp": [EPOCH - timedelta(milliseconds=1)], "timestampType": [0]}


def test_a_delete_horizon_is_where_timestamps_count_from(engine: Engine) -> None:
    batch = numbered(2)
    with_horizon = with_header(batch, attributes=DELETE_HORIZON_BIT)
    assert table_of([chunk(with_horizon)], engine) == table_of([chunk(batch)], engine)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_cut_at_both_ends_of_the_range(engine: Engine, codec: Codec) -> None:
    log = [numbered(10, first, codec=codec) for first in (0, 10, 20, 30)]
    assert offsets_of([chunk(*log)], engine, start=13, end=27) == list(range(13, 27))
    assert offsets_of([chunk(*log)], engine, start=13, end=14) == [13]
    assert offsets_of([chunk(*log)], engine, start=40) == []


def test_an_empty_range_asks_for_nothing(engine: Engine) -> None:
    def never() -> Iterator[Chunk]:
        raise AssertionError("asked")
        yield

    assert offsets_of(never(), engine, start=5, end=5) == []


def test_no_chunk_is_asked_for_behind_the_range(engine: Engine) -> None:
    def two() -> Iterator[Chunk]:
        yield chunk(numbered(10))
        yield chunk(numbered(10, 10))
        raise AssertionError("asked")

    assert offsets_of(two(), engine, start=5, end=20) == list(range(5, 20))


def test_gaps_that_compaction_left_are_no_loss(engine: Engine) -> None:
    kept = build_batch([Record(offset, 1, b"k", b"v") for offset in (3, 100, 101)], base_offset=1)
    emptied = with_block(with_header(numbered(3, 200, codec=Codec.GZIP), record_count=0), b"")
    log = [with_header(kept, last_offset_delta=120), emptied, numbered(1, 300)]
    assert offsets_of([chunk(*log)], engine) == [3, 100, 101, 300]


def test_batches_that_come_again_give_their_rows_once(engine: Engine) -> None:
    log = [numbered(10), numbered(10, 10)]
    assert offsets_of([chunk(*log), chunk(log[1], numbered(5, 20))], engine) == list(range(25))


def test_codecs_may_change_from_batch_to_batch(engine: Engine) -> None:
    log = [numbered(7, 7 * index, codec=codec) for index, codec in enumerate([*Codec, *Codec, Codec.ZSTD, Codec.ZSTD])]
    assert offsets_of([chunk(*log)], engine) == list(range(7 * len(log)))


# --- Transactions ---


def test_aborted_records_are_left_out_until_the_marker(engine: Engine) -> None:
    assert offsets_of([chunk(*TRANSACTIONS, aborted=ABORTED)], engine) == COMMITTED


def test_uncommitted_reading_gives_everything_but_markers(engine: Engine) -> None:
    found = offsets_of([chunk(*TRANSACTIONS, aborted=ABORTED)], engine, read_committed=False)
    assert found == [0, 1, 2, 3, 4, 6, 7, 10, 11, 12, 13]


@pytest.mark.parametrize("cut", range(1, len(TRANSACTIONS)))
def test_transactions_reach_over_chunks(engine: Engine, cut: int) -> None:
    log = [chunk(*TRANSACTIONS[:cut], aborted=ABORTED[:1]), chunk(*TRANSACTIONS[cut:], aborted=ABORTED[1:])]
    assert offsets_of(log, engine) == COMMITTED


@pytest.mark.parametrize("cut", range(1, len(TRANSACTIONS)))
def test_a_transaction_reported_twice_does_not_begin_again(engine: Engine, cut: int) -> None:
    log = [chunk(*TRANSACTIONS[:cut], aborted=ABORTED), chunk(*TRANSACTIONS[cut:], aborted=ABORTED)]
    assert offsets_of(log, engine) == COMMITTED


def test_markers_before_the_range_count(engine: Engine) -> None:
    assert offsets_of([chunk(*TRANSACTIONS, aborted=ABORTED)], engine, start=6) == [6, 7, 10, 11]


def test_a_chunk_that_resumes_skips_what_lies_before_and_knows_only_its_own_transactions(engine: Engine) -> None:
    lost_marker = chunk(transactional(0, 7), aborted=ABORTED[:1])
    again = attrs.evolve(chunk(transactional(4, 7), transactional(10, 7)), resumes_at=5)
    assert offsets_of([lost_marker, again], engine) == [5, 10, 11]
    reported = attrs.evolve(again, aborted=(AbortedTransactionStart(7, 4),))
    assert offsets_of([lost_marker, reported], engine) == []


def test_other_control_records_are_no_rows(engine: Engine) -> None:
    control = ControlRecord(ControlRecordType.LEADER_CHANGE, b"x")
    log = [numbered(1), build_control_batch(control, timestamp=1, base_offset=1), numbered(1, 2)]
    assert offsets_of([chunk(*log)], engine) == [0, 2]


# --- Sizes of Arrow batches ---


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_arrow_batches_have_up_to_batch_rows_rows(engine: Engine, codec: Codec) -> None:
    log = [numbered(10, 10 * index, codec=codec) for index in range(5)]
    for batch_rows, plain in ((8, [8, 2] * 5), (25, [20, 20, 10]), (1, [1] * 50), (1000, [50])):
        batches = batches_of([chunk(*log)], engine, batch_rows=batch_rows)
        full, rest = divmod(50, batch_rows)
        expected = plain if engine is Engine.PLAIN else [batch_rows] * full + [rest] * (rest > 0)
        assert [len(batch) for batch in batches] == expected


def test_small_chunks_are_put_together(engine: Engine) -> None:
    log = [chunk(numbered(3, 3 * index)) for index in range(10)]
    batches = batches_of(log, engine, batch_rows=12)
    assert [len(batch) for batch in batches] == [12, 12, 6]
    assert [row for batch in batches for row in batch["offset"].to_pylist()] == list(range(30))


def test_arrow_batches_have_about_batch_bytes_bytes_and_a_larger_record_comes_alone(engine: Engine) -> None:
    sizes = [400, 400, 400, 5000, 10, 10]
    log = build_batch([NewRecord(1, b"", bytes(size)) for size in sizes], codec=Codec.LZ4)
    batches = batches_of([chunk(log)], engine, batch_bytes=1000)
    assert [[len(value) for value in batch["value"].to_pylist()] for batch in batches] == [
        [400, 400],
        [400],
        [5000],
        [10, 10],
    ]


def test_a_huge_record_with_huge_headers_comes_through(engine: Engine) -> None:
    headers = [(f"h{index}", bytes(100)) for index in range(10_000)]
    record = NewRecord(1, bytes(1_000_000), bytes(3_000_000), headers)
    log = build_batch([NewRecord(1, b"a"), record, NewRecord(1, b"b")], codec=Codec.ZSTD)
    batches = batches_of([chunk(log)], engine, batch_bytes=1000, batch_rows=10)
    assert [len(batch) for batch in batches] == [1, 1, 1]
    (row,) = batches[1].to_pylist()
    assert (len(row["key"]), len(row["value"]), len(row["headers"])) == (1_000_000, 3_000_000, 10_000)


def test_what_was_given_stays_when_memory_is_used_again(engine: Engine) -> None:
    log = [chunk(*(numbered(100, 100 * index, codec=Codec.SNAPPY) for index in range(20)))]
    batches = batches_of(log, engine, batch_rows=150, columns=["value"])
    found = [value for batch in batches for value in batch["value"].to_pylist()]
    assert found == [b"%d" % offset for offset in range(2000)]


@pytest.mark.parametrize("columns", [["topic"], ["timestampType", "partition"], ["headers", "offset"], COLUMNS[::-1]])
def test_columns_come_in_the_order_asked_for(engine: Engine, columns: list[str]) -> None:
    log = [chunk(numbered(3))]
    assert table_of(log, engine, columns=columns).equals(table_of(log, engine).select(columns))
