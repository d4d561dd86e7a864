"""Records are read exactly, and whatever does not fit exactly is refused with its place in the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.error_codes import ErrorCode
from kafka_wire.records import record as record_module
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import (
    Header,
    Record,
    append_record,
    check_records,
    read_keys_and_values,
    read_records,
)
from kafka_wire.records.varint import append_varint, read_varint, read_varlong

BASE = 1_700_000_000_000


def varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def one_record(
    *,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
    length: int | None = None,
) -> bytes:
    """Return a record whose key, value and headers are given with their lengths, so that they may lie."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + key + value + headers
    return varint(len(body) if length is None else length) + body


def read(data: bytes, count: int = 1, *, last_offset_delta: int | None = None) -> list[Record]:
    last = count - 1 if last_offset_delta is None else last_offset_delta
    return list(read_records(data, count, base_offset=0, base_timestamp=BASE, last_offset_delta=last))


# --- variable-length integers ---


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        *((0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f")),
        *((8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")),
    ],
)
def test_varints_are_zigzag_and_little_endian(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_varlong_comes_back(value: int) -> None:
    assert read_varlong(b"x" + varint(value), 1) == (value, 1 + len(varint(value)))


@given(st.integers(-(2**31), 2**31 - 1))
def test_any_varint_comes_back(value: int) -> None:
    assert read_varint(b"x" + varint(value) + b"y", 1) == (value, 1 + len(varint(value)))


def test_a_varint_in_a_longer_form_than_needed_is_read_as_kafka_reads_it() -> None:
    assert read_varint(b"\x82\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize("encoded", ["8080808080", "ffffffffff0f", "ffffffff1f"])
def test_a_varint_beyond_five_bytes_or_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(InvalidRecord):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["80" * 10, "ff" * 9 + "02"])
def test_a_varlong_beyond_ten_bytes_or_64_bits_is_refused(encoded: str) -> None:
    with pytest.raises(InvalidRecord):
        read_varlong(bytes.fromhex(encoded), 0)


# --- reading ---

headers_strategy = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=100)), max_size=4)
some_bytes = st.none() | st.binary(max_size=100) | st.binary(min_size=8000, max_size=9000)


@given(
    st.lists(st.tuples(st.integers(-(2**40), 2**40), some_bytes, some_bytes, headers_strategy), min_size=1, max_size=80)
)
def test_all_walks_agree_on_any_records(
    fields: list[tuple[int, bytes | None, bytes | None, Sequence[Header]]],
) -> None:
    data = bytearray()
    for offset, (delta, key, value, headers) in enumerate(fields):
        append_record(data, delta, offset, key, value, headers)
    records = read(bytes(data), len(fields))
    assert [(r.timestamp - BASE, r.key, r.value, list(r.headers)) for r in records] == fields
    assert read_keys_and_values(bytes(data), len(fields)) == [(key, value) for _, key, value, _ in fields]
    summary = check_records(bytes(data), len(fields), base_timestamp=BASE)
    deltas = [delta for delta, *_ in fields]
    assert summary.record_count == len(fields)
    assert (summary.min_timestamp, summary.max_timestamp) == (BASE + min(deltas), BASE + max(deltas))
    assert summary.null_keys == any(key is None for _, key, *_ in fields)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_noise_is_refused_by_all_strict_walks_or_read_by_all(data: bytes, count: int) -> None:
    try:
        check_records(data, count, base_timestamp=BASE)
    except InvalidRecord:
        with contextlib.suppress(InvalidRecord):
            assert len(read_keys_and_values(data, count)) == count
        return
    records = read(data, count)
    assert len(records) == count
    assert read_keys_and_values(data, count) == [(record.key, record.value) for record in records]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        one_record(length=60),
        one_record(length=-1),
        one_record(key=b"\x10k"),
        one_record(key=b"\x03"),
        one_record(value=b"\x10v"),
        one_record() + b"\x00",
        b"\x0e" + b"\xff" * 7,
    ],
)
def test_keys_and_values_are_refused_where_they_do_not_fit(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        read_keys_and_values(data, 1)


def test_header_keys_that_are_not_utf8_come_back_as_they_were() -> None:
    (record,) = read(one_record(headers=b"\x02\x04\xff\xfe\x01"))
    out = bytearray()
    append_record(out, 0, 0, b"k", b"v", record.headers)
    assert bytes(out) == one_record(headers=b"\x02\x04\xff\xfe\x01")


def test_a_header_count_of_zero_in_a_longer_form_is_no_headers() -> None:
    assert read(one_record(headers=b"\x80\x80\x00")) == read(one_record())


WRONG = {
    "length too long": one_record(length=9),
    "length too short": one_record(length=7),
    "length negative": one_record(length=-1),
    "length lowest": one_record(length=-(2**31)),
    "length huge": one_record(length=2**31 - 1),
    "key beyond the record": one_record(key=b"\x10k"),
    "key of minus two": one_record(key=b"\x03"),
    "key huge": one_record(key=varint(2**31 - 1)),
    "value beyond the record": one_record(value=b"\x10v"),
    "value of minus two": one_record(value=b"\x03"),
    "value lowest": one_record(value=varint(-(2**31))),
    "header count negative": one_record(headers=b"\x01"),
    "header count beyond the bytes": one_record(headers=b"\x04\x02h\x01"),
    "header count huge": one_record(headers=varint(2**31 - 1)),
    "header key null": one_record(headers=b"\x02\x01\x01"),
    "header key beyond the record": one_record(headers=b"\x02\x0ah\x01"),
    "header value beyond the record": one_record(headers=b"\x02\x02h\x0ax"),
    "header value of minus two": one_record(headers=b"\x02\x02h\x03"),
    "bytes left in the record": one_record(headers=b"\x00\x00"),
    "bytes left after the records": one_record() + b"\x00",
    "a record too many": one_record() + one_record(offset_delta=1),
    "offset delta negative": one_record(offset_delta=-1),
    "offset delta beyond the last": one_record(offset_delta=1),
    "no bytes": b"",
    "endless varint": b"\x80" * 20,
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_both_walks_refuse(data: bytes) -> None:
    with pytest.raises(InvalidRecord) as refusal:
        check_records(data, 1, base_timestamp=BASE)
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidRecord):
        read(data)


def test_every_cut_is_refused_by_both_walks() -> None:
    data = one_record(headers=b"\x02\x02h\x02x") + one_record(offset_delta=1)
    for length in range(len(data)):
        with pytest.raises(InvalidRecord):
            check_records(data[:length], 2, base_timestamp=BASE)
        with pytest.raises(InvalidRecord):
            read(data[:length], 2)


def test_a_key_may_not_borrow_from_the_next_record() -> None:
    """All bytes are there, and the second record would even parse; only the first one's length is crossed."""
    data = one_record(key=varint(9) + b"k") + one_record(offset_delta=1)
    with pytest.raises(InvalidRecord):
        check_records(data, 2, base_timestamp=BASE)
    with pytest.raises(InvalidRecord):
        read(data, 2)


def test_the_refusal_names_the_record() -> None:
    data = one_record() + one_record(offset_delta=1, key=b"\x03")
    with pytest.raises(InvalidRecord) as refusal:
        check_records(data, 2, base_timestamp=BASE)
    assert refusal.value.record_index == 1


def test_gaps_in_the_offsets_are_read_but_not_taken_from_a_producer() -> None:
    data = one_record() + one_record(offset_delta=5)
    assert [record.offset for record in read(data, 2, last_offset_delta=7)] == [0, 5]
    with pytest.raises(InvalidRecord) as refusal:
        check_records(data, 2, base_timestamp=BASE)
    assert refusal.value.record_index == 1


def test_offsets_that_do_not_increase_are_refused() -> None:
    with pytest.raises(InvalidRecord):
        read(one_record() + one_record(), 2)


def test_a_missing_key_is_reported() -> None:
    data = one_record() + one_record(offset_delta=1, key=b"\x01")
    assert check_records(data, 2, base_timestamp=BASE).null_keys


def test_an_empty_key_is_a_key() -> None:
    assert not check_records(one_record(key=b"\x00"), 1, base_timestamp=BASE).null_keys


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (0, 2**63 - 1)])
def test_timestamps_beyond_64_bits_are_refused(base: int, delta: int) -> None:
    data = one_record(timestamp_delta=delta)
    if base == 0:
        assert check_records(data, 1, base_timestamp=base).max_timestamp == delta
        return
    with pytest.raises(InvalidRecord):
        check_records(data, 1, base_timestamp=base)
    with pytest.raises(InvalidRecord):
        list(read_records(data, 1, base_offset=0, base_timestamp=base, last_offset_delta=0))


def test_no_records_in_no_bytes_is_what_compaction_leaves() -> None:
    assert read(b"", 0) == []


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_the_walk(count: int) -> None:
    with pytest.raises(InvalidRecord, match="records in"):
        check_records(one_record(), count, base_timestamp=BASE)


def test_too_many_records_are_a_batch_to_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "MAX_RECORDS_PER_BATCH", 1)
    with pytest.raises(InvalidRecord) as refusal:
        check_records(one_record() + one_record(offset_delta=1), 2, base_timestamp=BASE)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("limit", ["MAX_HEADERS_PER_RECORD", "MAX_HEADERS_PER_BATCH"])
def test_too_many_headers_are_a_batch_to_split(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    data = one_record(headers=b"\x04\x00\x00\x00\x00")
    assert len(read(data)[0].headers) == 2
    monkeypatch.setattr(record_module, limit, 1)
    for walk in (lambda: check_records(data, 1, base_timestamp=BASE), lambda: read(data)):
        with pytest.raises(InvalidRecord, match="headers") as refusal:
            walk()
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_headers_are_counted_over_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    data = one_record(headers=b"\x02\x00\x00") + one_record(offset_delta=1, headers=b"\x02\x00\x00")
    monkeypatch.setattr(record_module, "MAX_HEADERS_PER_BATCH", 1)
    for walk in (lambda: check_records(data, 2, base_timestamp=BASE), lambda: read(data, 2)):
        with pytest.raises(InvalidRecord, match="headers") as refusal:
            walk()
        assert refusal.value.record_index == 1
