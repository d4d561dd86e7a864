"""Batches are Kafka's byte for byte, their headers are cheap, and the leader stamps them in place."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    RecordBatch,
    TimestampType,
    build_batch,
    read_batch_header,
    read_batches,
    recompress_batch,
)
from kafka_wire.records.compression import Codec
from kafka_wire.records.errors import CorruptRecordBatch, DecompressionTooLarge, InvalidRecord
from kafka_wire.records.record import NewRecord, Record, RecordsSummary

GOLDEN = bytes.fromhex(
    "000000000000006400000052000000030265689caf0000000000020000018bcfe568000000018bcfe56807ffffffffffffffffffffffffffff"
    "000000031c000000046b31047631020268027810000a02010476320010000e04046b330100"
)
"""Base 100, epoch 3, three records; Kafka's own classes read it so."""

T = 1_700_000_000_000
GOLDEN_RECORDS = [
    Record(100, T, b"k1", b"v1", (("h", b"x"),)),
    Record(101, T + 5, None, b"v2"),
    Record(102, T + 7, b"k3", None),
]


def only(data: bytes | bytearray) -> RecordBatch:
    (batch,) = read_batches(data)
    return batch


def changed(data: bytes, **fields: int) -> RecordBatch:
    """Return the batch in ``data`` with other values in its header."""
    batch = only(data)
    return RecordBatch(attrs.evolve(batch.header, **fields), batch.buffer)


def some_batch(count: int = 3, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([NewRecord(T + number, b"k%d" % number, b"v") for number in range(count)], codec=codec)


# --- the golden batch ---


def test_the_golden_batch_is_read_as_kafka_reads_it() -> None:
    batch = only(GOLDEN)
    batch.verify_crc()
    assert batch.header == BatchHeader(100, 82, 3, 2, 0x65689CAF, 0, 2, T, T + 7, -1, -1, -1, 3)
    assert list(batch.records()) == GOLDEN_RECORDS
    assert batch.keys_and_values() == [(record.key, record.value) for record in GOLDEN_RECORDS]
    assert batch.validate_records() == RecordsSummary(3, T, T + 7, null_keys=True)


def test_the_golden_batch_is_written_byte_for_byte() -> None:
    assert build_batch(GOLDEN_RECORDS, base_offset=100, partition_leader_epoch=3) == GOLDEN


def test_stamping_a_producers_batch_gives_the_golden_one() -> None:
    new = [NewRecord(record.timestamp, record.key, record.value, record.headers) for record in GOLDEN_RECORDS]
    batch = bytearray(build_batch(new))
    assert read_batch_header(batch).base_offset == 0
    only(batch).stamp(base_offset=100, partition_leader_epoch=3)
    assert batch == GOLDEN


# --- the header ---


def test_what_follows_from_the_header() -> None:
    header = only(GOLDEN).header
    assert (header.size_bytes, header.last_offset, header.next_offset) == (len(GOLDEN), 102, 103)
    assert (header.codec, header.timestamp_type) == (Codec.NONE, TimestampType.CREATE_TIME)
    assert not any((header.is_transactional, header.is_control, header.has_delete_horizon, header.has_producer_id))
    assert header.last_sequence == -1


def test_each_attribute_bit_means_one_thing() -> None:
    header = only(GOLDEN).header
    meanings = {
        attributes: (h.codec, h.timestamp_type, h.is_transactional, h.is_control, h.has_delete_horizon)
        for attributes in (0x04, 0x08, 0x10, 0x20, 0x40)
        for h in [attrs.evolve(header, attributes=attributes)]
    }
    assert meanings == {
        0x04: (Codec.ZSTD, TimestampType.CREATE_TIME, False, False, False),
        0x08: (Codec.NONE, TimestampType.LOG_APPEND_TIME, False, False, False),
        0x10: (Codec.NONE, TimestampType.CREATE_TIME, True, False, False),
        0x20: (Codec.NONE, TimestampType.CREATE_TIME, False, True, False),
        0x40: (Codec.NONE, TimestampType.CREATE_TIME, False, False, True),
    }


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(number: int) -> None:
    with pytest.raises(InvalidRecord, match="codec"):
        changed(GOLDEN, attributes=number).validate_records()


@pytest.mark.parametrize(("base", "last"), [(0, 2), (2**31 - 3, 2**31 - 1), (2**31 - 2, 0), (2**31 - 1, 1)])
def test_sequences_wrap_to_zero(base: int, last: int) -> None:
    assert changed(GOLDEN, base_sequence=base).header.last_sequence == last


def test_a_header_is_read_in_place_and_without_the_rest() -> None:
    assert read_batch_header(b"xyz" + GOLDEN[:BATCH_HEADER_BYTES], 3) == only(GOLDEN).header


@pytest.mark.parametrize("length", [0, 12, BATCH_HEADER_BYTES - 1])
def test_too_few_bytes_for_a_header_are_refused(length: int) -> None:
    with pytest.raises(CorruptRecordBatch) as refusal:
        read_batch_header(GOLDEN[:length])
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("batch_length", [-(2**31), -1, 0, 48])
def test_a_batch_shorter_than_its_header_is_refused(batch_length: int) -> None:
    with pytest.raises(CorruptRecordBatch):
        read_batch_header(GOLDEN[:8] + batch_length.to_bytes(4, "big", signed=True) + GOLDEN[12:])


@pytest.mark.parametrize(
    ("magic", "code"),
    [(0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)],
)
def test_other_magics_are_refused(magic: int, code: ErrorCode) -> None:
    with pytest.raises(CorruptRecordBatch) as refusal:
        read_batch_header(GOLDEN[:16] + bytes([magic]) + GOLDEN[17:])
    assert refusal.value.code is code


# --- several batches ---


def test_batches_follow_one_another_without_copies() -> None:
    data = bytearray(GOLDEN + some_batch() + some_batch(1))
    batches = list(read_batches(data))
    assert [batch.header.record_count for batch in batches] == [3, 3, 1]
    assert all(batch.buffer.obj is data for batch in batches)


@pytest.mark.parametrize("cut", [1, 30, len(GOLDEN) - BATCH_HEADER_BYTES, len(GOLDEN) - 1])
def test_a_batch_that_is_cut_short_is_left_out(cut: int) -> None:
    assert [batch.header.base_offset for batch in read_batches(GOLDEN + GOLDEN[:-cut])] == [100]


def test_garbage_after_a_batch_is_refused_once_the_batch_is_out() -> None:
    batches = read_batches(GOLDEN + b"\xff" * 100)
    assert next(batches).header.base_offset == 100
    with pytest.raises(CorruptRecordBatch):
        next(batches)


# --- the CRC ---


def test_any_flipped_bit_behind_the_crc_is_found() -> None:
    for position in range(21, len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptRecordBatch) as refusal:
            only(damaged).verify_crc()
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_leader_stamps_without_touching_the_crc() -> None:
    data = bytearray(GOLDEN)
    stamped = only(data)
    stamped.stamp(base_offset=2**40, partition_leader_epoch=17)
    batch = only(data)
    assert batch.header == stamped.header
    batch.verify_crc()
    assert (batch.header.base_offset, batch.header.partition_leader_epoch) == (2**40, 17)
    assert [record.offset for record in batch.records()] == [2**40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_is_everyones_time_and_redoes_the_crc() -> None:
    data = bytearray(some_batch(codec=Codec.GZIP) + b"next")
    amended = next(read_batches(data))
    amended.amend(attributes=amended.header.attributes | TIMESTAMP_TYPE_BIT, max_timestamp=T + 99)
    batch = next(read_batches(data))
    batch.verify_crc()
    assert batch.header == amended.header
    assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.header.codec is Codec.GZIP
    assert [record.timestamp for record in batch.records()] == [T + 99] * 3
    assert data.endswith(b"next")


# --- records ---

some_bytes = st.none() | st.binary(max_size=50)
new_records = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 2**42),
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(records=new_records, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**62))
def test_any_batch_comes_back(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    data = build_batch(records, base_offset=base_offset, codec=codec, producer_id=5, producer_epoch=2, base_sequence=9)
    batch = only(data)
    batch.verify_crc()
    read = list(batch.records())
    assert batch.keys_and_values() == [(record.key, record.value) for record in records]
    assert [NewRecord(r.timestamp, r.key, r.value, list(r.headers)) for r in read] == records
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(records)))
    summary = batch.validate_records()
    assert (batch.header.max_timestamp, batch.header.record_count) == (summary.max_timestamp, summary.record_count)
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.last_sequence) == (
        5,
        2,
        8 + len(records),
    )


def test_a_batch_emptied_by_compaction_is_read_but_not_taken_from_a_producer() -> None:
    empty = bytearray(GOLDEN[:BATCH_HEADER_BYTES])
    empty[8:12] = (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    batch = only(empty)
    assert list(batch.records()) == []
    assert batch.header.next_offset == 103
    with pytest.raises(InvalidRecord):
        batch.validate_records()


def test_gaps_that_compaction_left_stay_gaps() -> None:
    records = [Record(7, T, b"a", b""), Record(12, T + 1, b"b", b"")]
    batch = only(build_batch(records, base_offset=5))
    assert list(batch.records()) == records
    assert (batch.header.last_offset_delta, batch.header.record_count) == (7, 2)
    with pytest.raises(InvalidRecord):
        batch.validate_records()


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 2},
        {"record_count": 4},
        {"record_count": 2, "last_offset_delta": 1},
        {"record_count": 4, "last_offset_delta": 3},
        {"last_offset_delta": 3},
        {"last_offset_delta": -1},
        {"base_offset": 2**63 - 2},
        {"base_offset": -1},
    ],
)
def test_counts_and_offsets_that_do_not_agree_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord) as refusal:
        changed(GOLDEN, **fields).validate_records()
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_the_summary_tells_the_records_own_time_whatever_the_header_says() -> None:
    assert changed(GOLDEN, max_timestamp=5, attributes=0x08).validate_records().max_timestamp == T + 7


def test_timestamps_are_relative_to_the_delete_horizon_where_there_is_one() -> None:
    batch = changed(GOLDEN, attributes=0x40, base_timestamp=T + 1000)
    assert [record.timestamp - T for record in batch.records()] == [1000, 1005, 1007]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_may_not_inflate_beyond_what_the_reader_allows(codec: Codec) -> None:
    batch = only(build_batch([NewRecord(T, b"k", bytes(10_000))], codec=codec))
    for read in (batch.validate_records, lambda **limits: list(batch.records(**limits))):
        read(max_bytes=10_100)
        with pytest.raises(DecompressionTooLarge):
            read(max_bytes=9_999)


# --- building ---


def test_a_batch_of_nothing_is_not_built() -> None:
    with pytest.raises(ValueError, match="no records"):
        build_batch([])


@pytest.mark.parametrize("offsets", [[4], [5, 5], [6, 5], [5 + 2**31]])
def test_offsets_that_do_not_increase_from_the_base_are_not_built(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offset delta"):
        build_batch([Record(offset, T) for offset in offsets], base_offset=5)


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_recompression_changes_codec_length_and_crc_only(before: Codec, after: Codec) -> None:
    old = only(build_batch(GOLDEN_RECORDS, base_offset=100, codec=before, transactional=True, producer_id=3))
    new = only(recompress_batch(old, after))
    new.verify_crc()
    assert list(new.records()) == GOLDEN_RECORDS
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert attrs.evolve(new.header, **same) == attrs.evolve(old.header, **same)
    assert (new.header.codec, new.header.is_transactional) == (after, True)
