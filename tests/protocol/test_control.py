"""Control batches are Kafka's byte for byte, and unknown ones are passed over."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.batch import read_batches
from kafka_wire.records.control import (
    ControlRecord,
    ControlRecordType,
    EndTransactionMarker,
    build_control_batch,
    read_control_record,
)
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import Record

GOLDEN_ABORT = bytes.fromhex(
    "0000000000000068000000420000000302f74053d80030000000000000018bcfe568140000018bcfe5681400000000000000070000ffffffff"
    "000000012000000008000000000c00000000000900"
)
"""At 104, epoch 3, producer 7 epoch 0, coordinator epoch 9; Kafka's own classes read it so."""

T = 1_700_000_000_020


def test_the_golden_marker_is_written_byte_for_byte() -> None:
    marker = EndTransactionMarker(committed=False, coordinator_epoch=9)
    assert (
        build_control_batch(
            marker, timestamp=T, base_offset=104, partition_leader_epoch=3, producer_id=7, producer_epoch=0
        )
        == GOLDEN_ABORT
    )


def test_the_golden_marker_is_read_as_kafka_reads_it() -> None:
    (batch,) = read_batches(GOLDEN_ABORT)
    batch.verify_crc()
    header = batch.header
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.next_offset) == (7, 0, 105)
    (record,) = batch.records()
    assert read_control_record(record) == EndTransactionMarker(committed=False, coordinator_epoch=9)


@pytest.mark.parametrize("committed", [True, False])
def test_markers_come_back(committed: bool) -> None:
    marker = EndTransactionMarker(committed, coordinator_epoch=2**31 - 1)
    (batch,) = read_batches(build_control_batch(marker, timestamp=T, producer_id=1, producer_epoch=2))
    assert [read_control_record(record) for record in batch.records()] == [marker]


@pytest.mark.parametrize("kind", list(ControlRecordType)[2:])
def test_records_of_the_metadata_log_come_back_and_belong_to_no_transaction(kind: ControlRecordType) -> None:
    control = ControlRecord(kind, b"\x00\x00value")
    (batch,) = read_batches(build_control_batch(control, timestamp=T))
    assert batch.header.is_control
    assert not batch.header.is_transactional
    assert [read_control_record(record) for record in batch.records()] == [control]


def test_a_type_of_the_future_is_no_error() -> None:
    assert read_control_record(Record(0, T, b"\x00\x00\x00\x63", b"x")) == ControlRecord(None, b"x")


def test_longer_keys_and_values_of_later_versions_are_read() -> None:
    record = Record(0, T, b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x05more")
    assert read_control_record(record) == EndTransactionMarker(committed=True, coordinator_epoch=5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x05"),
    ],
)
def test_short_or_negative_ones_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord) as refusal:
        read_control_record(Record(0, T, key, value))
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_a_control_record_of_an_unknown_type_is_not_written() -> None:
    with pytest.raises(ValueError, match="type"):
        build_control_batch(ControlRecord(None, b""), timestamp=T)
