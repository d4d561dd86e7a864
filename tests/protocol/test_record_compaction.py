"""What compaction does to the bytes of a batch, against what the readers of records say of it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    RecordBatch,
    TimestampType,
    assemble_batch,
    build_batch,
    read_batch_header,
)
from kafka_wire.records.compaction import empty_batch, read_columns, rewrite_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import NewRecord, Record

NOW_MS = 1_700_000_000_000
HORIZON_MS = NOW_MS + 86_400_000

RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.integers(NOW_MS - 100_000, NOW_MS + 100_000),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def as_batch(data: bytes | bytearray) -> RecordBatch:
    return RecordBatch(read_batch_header(data), memoryview(data))


def batch_of(*records: NewRecord, **options: object) -> RecordBatch:
    return as_batch(build_batch(records, **{"base_offset": 100, **options}))  # type: ignore[arg-type]


def keyed(count: int) -> list[NewRecord]:
    return [NewRecord(NOW_MS + index, b"k%d" % index, b"v") for index in range(count)]


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_the_columns_say_what_the_records_say(records: list[NewRecord], codec: Codec) -> None:
    batch = batch_of(*records, codec=codec)
    columns, read = read_columns(batch), list(batch.records())
    assert len(columns) == len(read)
    assert columns.keys == [record.key for record in read]
    assert columns.tombstones == [record.value is None for record in read]
    assert [100 + delta for delta in columns.offset_deltas] == [record.offset for record in read]
    base = batch.header.base_timestamp
    assert [base + delta for delta in columns.timestamp_deltas] == [record.timestamp for record in read]


@given(records=RECORDS, codec=st.sampled_from(Codec), data=st.data(), horizon=st.sampled_from([None, HORIZON_MS]))
def test_what_is_kept_stays_what_it_was(
    records: list[NewRecord], codec: Codec, data: st.DataObject, horizon: int | None
) -> None:
    """Offsets, timestamps, keys, values, headers; and the range of offsets and sequences of the batch."""
    batch = batch_of(*records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=5, transactional=True)
    read = list(batch.records())
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(read))), min_size=1)))
    rewritten = as_batch(rewrite_batch(batch, read_columns(batch), kept, delete_horizon_ms=horizon))
    rewritten.verify_crc()
    assert list(rewritten.records()) == [read[index] for index in kept]
    before, after = batch.header, rewritten.header
    for name in ("base_offset", "last_offset", "last_sequence", "base_sequence", "producer_id", "producer_epoch"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.codec, after.is_transactional) == (codec, True)
    assert after.record_count == len(kept)
    assert after.max_timestamp == max(read[index].timestamp for index in kept)
    assert after.has_delete_horizon == (horizon is not None)
    assert after.base_timestamp == (read[kept[0]].timestamp if horizon is None else horizon)


def test_a_horizon_that_is_passed_on_leaves_the_records_bytes_alone() -> None:
    batch = batch_of(*keyed(3))
    once = as_batch(rewrite_batch(batch, read_columns(batch), [0, 1, 2], delete_horizon_ms=HORIZON_MS))
    twice = as_batch(rewrite_batch(once, read_columns(once), [1, 2], delete_horizon_ms=HORIZON_MS))
    assert once.payload().endswith(twice.payload())
    assert list(twice.records()) == list(batch.records())[1:]


def test_log_append_time_stays_the_time_of_all_records() -> None:
    data = bytearray(build_batch(keyed(3), base_offset=100))
    as_batch(data).amend(attributes=TIMESTAMP_TYPE_BIT, max_timestamp=NOW_MS + 5000)
    batch = as_batch(bytes(data))
    rewritten = as_batch(rewrite_batch(batch, read_columns(batch), [2], delete_horizon_ms=None))
    assert rewritten.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert rewritten.header.base_timestamp == rewritten.header.max_timestamp == NOW_MS + 5000
    assert [record.timestamp for record in rewritten.records()] == [NOW_MS + 5000]


def test_a_batch_with_gaps_is_compacted_again() -> None:
    records = [
        Record(103, NOW_MS, b"a", b"1"),
        Record(107, NOW_MS + 1, b"b", b"2"),
        Record(109, NOW_MS + 2, b"c", None),
    ]
    batch = as_batch(build_batch(records, base_offset=100))
    columns = read_columns(batch)
    assert columns.offset_deltas == [3, 7, 9]
    rewritten = as_batch(rewrite_batch(batch, columns, [1], delete_horizon_ms=None))
    assert [record.offset for record in rewritten.records()] == [107]
    assert rewritten.header.last_offset == 109


@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_keeps_its_place_and_its_producer(codec: Codec) -> None:
    batch = batch_of(*keyed(4), codec=codec, producer_id=7, producer_epoch=3, base_sequence=11, transactional=True)
    data = empty_batch(batch.header)
    emptied = as_batch(data)
    emptied.verify_crc()
    header = emptied.header
    assert len(data) == BATCH_HEADER_BYTES
    assert list(emptied.records()) == []
    assert len(read_columns(emptied)) == 0
    assert (header.base_offset, header.last_offset, header.last_sequence) == (100, 103, 14)
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 3, True)
    assert (header.base_timestamp, header.max_timestamp) == (-1, NOW_MS + 3)
    assert header.codec is Codec.NONE


def test_an_emptied_batch_has_no_horizon_left() -> None:
    batch = batch_of(*keyed(1))
    with_horizon = as_batch(rewrite_batch(batch, read_columns(batch), [0], delete_horizon_ms=HORIZON_MS))
    assert not as_batch(empty_batch(with_horizon.header)).header.has_delete_horizon


@pytest.mark.parametrize(
    ("block", "count", "reason"),
    [
        (b"", 1, "1 records in 0 bytes"),
        (b"\x10" + bytes(6), 1, "a record of 8 bytes where 6 are left"),
        (b"\x0c\x00\x00\x00\x01\x01\x00" + b"\x00", 1, "1 bytes after the last record"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", 1, "an offset delta of 1 after -1, up to 0"),
        (b"\x0c\x00\x00\x00\x7e\x01\x00", 1, "a key of 63 bytes"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1, "a key of -2 bytes"),
        (b"\x0b\x00\x00\x00\x01\x01\x00", 1, "a record of -6 bytes"),
        (b"\x0c\x00\x00\x00\xff\xff\xff", 1, "the records end early"),
    ],
)
def test_records_that_break_the_format_are_refused(block: bytes, count: int, reason: str) -> None:
    header = attrs.evolve(batch_of(*keyed(1)).header, record_count=count, last_offset_delta=0)
    with pytest.raises(InvalidRecord, match=reason):
        read_columns(as_batch(assemble_batch(header, block)))


@given(block=st.binary(max_size=60), count=st.integers(0, 5))
def test_garbage_is_refused_or_read_never_worse(block: bytes, count: int) -> None:
    header = attrs.evolve(batch_of(*keyed(1)).header, record_count=count, last_offset_delta=10)
    batch = as_batch(assemble_batch(header, block))
    try:
        columns = read_columns(batch)
    except InvalidRecord:
        return
    assert len(columns) == count
    assert columns.starts[-1] == len(block)
