"""Transactions lie in ``__transaction_state`` as Kafka writes them, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.codec import encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.stored.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_record,
)
from tests.java_programs import Java
from tests.property_examples import examples
from tests.protocol.coordinator_records import as_given, assert_same
from tests.protocol.message_strategies import messages

NEWEST_VERSION = 1

START_MS = 1_700_000_000_000

KEY = bytes.fromhex("000000027431")
NEW_VALUE = bytes.fromhex("000100000000000003e8000000" + "00ea60" + "0000" + "0000018bcfe56800" + "ff" * 8 + "00")
"""Of a producer id just given: no partitions, no transaction."""

keys = messages(TransactionLogKey, 0)
values = messages(TransactionLogValue, NEWEST_VERSION)


def a_value(**changes: Any) -> TransactionLogValue:
    said: dict[str, Any] = {
        "producer_id": 1000,
        "producer_epoch": 0,
        "transaction_timeout_ms": 60_000,
        "transaction_status": TransactionStatus.EMPTY,
        "transaction_partitions": None,
        "transaction_last_update_timestamp_ms": START_MS,
        "transaction_start_timestamp_ms": -1,
    }
    return TransactionLogValue(**said | changes)


A_KEY = TransactionLogKey(transactional_id="t1")


# --- Kafka's bytes ---


def test_a_new_transactional_id_is_kafkas_to_the_byte() -> None:
    assert encode_transaction_record(A_KEY, a_value()) == (KEY, NEW_VALUE)
    assert decode_transaction_record(KEY, NEW_VALUE) == (A_KEY, a_value())


def test_partitions_stand_below_their_topic() -> None:
    ongoing = a_value(
        transaction_status=TransactionStatus.ONGOING,
        transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0, 2])],
        transaction_start_timestamp_ms=START_MS,
    )
    _, value = encode_transaction_record(A_KEY, ongoing)
    partitions = b"\x02" + b"\x02a" + b"\x03" + bytes(4) + b"\0\0\0\2" + b"\0"
    start = START_MS.to_bytes(8, "big")
    assert value == NEW_VALUE[:16] + b"\1" + partitions + start + start + b"\0"
    assert decode_transaction_record(KEY, value) == (A_KEY, ongoing)


def test_what_the_second_transaction_protocol_adds_are_tags() -> None:
    second = a_value(previous_producer_id=7, next_producer_id=8, client_transaction_version=2, next_producer_epoch=9)
    _, value = encode_transaction_record(A_KEY, second)
    tags = b"\0\x08" + bytes(7) + b"\7" + b"\1\x08" + bytes(7) + b"\x08" + b"\2\x02\0\2" + b"\3\x02\0\x09"
    assert value == NEW_VALUE[:-1] + b"\4" + tags
    assert decode_transaction_record(KEY, value) == (A_KEY, second)


def test_a_transaction_that_an_older_kafka_wrote_is_read() -> None:
    old = a_value(transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0])])
    assert decode_transaction_record(KEY, b"\0\0" + encode_bytes(old, 0)) == (A_KEY, old)


# --- Round trips ---


@given(keys, st.none() | values)
def test_a_record_reads_as_it_was_written(key: TransactionLogKey, value: TransactionLogValue | None) -> None:
    written_key, written_value = encode_transaction_record(key, value)
    assert decode_transaction_record(written_key, written_value) == (key, value)
    view = None if written_value is None else memoryview(written_value)
    assert decode_transaction_record(memoryview(written_key), view) == (key, value)


def test_a_tombstone_has_no_value() -> None:
    assert encode_transaction_record(A_KEY, None) == (KEY, None)
    assert decode_transaction_record(KEY, None) == (A_KEY, None)


@pytest.mark.parametrize("key", [b"\0\1" + KEY[2:], b"\x7f\xff", b"\xff\xff?"])
def test_a_record_of_another_type_is_nothing(key: bytes) -> None:
    assert decode_transaction_record(key, b"whatever") is None
    assert decode_transaction_record(key, None) is None


# --- Kafka's own classes ---


@pytest.mark.compat
def test_kafka_reads_our_records_as_we_meant_them_and_writes_the_same(java: Java) -> None:
    records: list[tuple[TransactionLogKey, TransactionLogValue | None]] = []

    @given(keys, st.none() | values)
    def collect(key: TransactionLogKey, value: TransactionLogValue | None) -> None:
        records.append((key, value))

    collect()
    written = [encode_transaction_record(*record) for record in records]
    answers = java.run("TransactionRecords", given=[as_given(*each) for each in written])
    for (key, value), each, answer in zip(records, written, answers, strict=True):
        reported = answer["result"]
        assert_same(key, reported["key"], 0)
        if value is not None:
            assert_same(value, reported["value"], NEWEST_VERSION)
        assert as_given(*each) == {"key": reported["key bytes"], "value": reported["value bytes"]}


# --- Garbage ---


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"", None, "has no version"),
        (b"\0", None, "has no version"),
        (b"\0\0", None, "TransactionLogKey v0 ends too early"),
        (KEY + b"?", None, "1 bytes left over after TransactionLogKey"),
        (KEY, b"", "has no version"),
        (KEY, NEW_VALUE + b"?", "1 bytes left over after TransactionLogValue version 1"),
        (KEY, b"\0\2" + NEW_VALUE[2:], "has the versions 0-1, not 2"),
        (KEY, b"\xff\xff" + NEW_VALUE[2:], "has the versions 0-1, not -1"),
        (b"\0\0\0\1\xff", None, "not UTF-8"),
    ],
)
def test_what_is_no_record_is_refused(key: bytes, value: bytes | None, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        decode_transaction_record(key, value)


@examples(Fraction(1, 10))
@given(keys, values)
def test_a_record_that_is_cut_off_anywhere_is_refused(key: TransactionLogKey, value: TransactionLogValue) -> None:
    written_key, written_value = encode_transaction_record(key, value)
    assert written_value is not None
    for end in range(len(written_key)):
        with pytest.raises(WireError):
            decode_transaction_record(written_key[:end], written_value)
    for end in range(len(written_value)):
        with pytest.raises(WireError):
            decode_transaction_record(written_key, written_value[:end])


@given(st.integers(-2, 2).map(lambda kind: kind.to_bytes(2, "big", signed=True)), st.binary(max_size=60), st.binary())
def test_garbage_is_refused_and_does_nothing_else(kind: bytes, key: bytes, value: bytes) -> None:
    with contextlib.suppress(WireError):
        decode_transaction_record(kind + key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (TransactionLogKey(transactional_id="t" * 32768), None),
        (TransactionLogKey(transactional_id="\ud800"), None),
        (A_KEY, a_value(producer_id=2**63)),
        (A_KEY, a_value(producer_epoch=2**15)),
        (A_KEY, a_value(next_producer_epoch=2**15)),
    ],
)
def test_what_does_not_fit_is_not_written(key: TransactionLogKey, value: TransactionLogValue | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_transaction_record(key, value)
