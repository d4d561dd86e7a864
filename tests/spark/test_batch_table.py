"""Headers of many batches at once, and why scanning stops."""

from __future__ import annotations

import struct

import pytest

from kafka_wire.records.batch import read_batches
from kafka_wire.records.compression import Codec
from tests.spark.decoder.decoder_logs import numbered, with_header
from trio_broker.spark.batch_table import scan_batches

THREE = [
    numbered(3, 10, codec=Codec.ZSTD, producer_id=2**40, producer_epoch=7, base_sequence=11, transactional=True),
    numbered(1, 13, partition_leader_epoch=5),
    with_header(numbered(2, 2**40), last_offset_delta=1000),
]


def test_every_column_is_what_the_headers_say() -> None:
    table = scan_batches(b"".join(THREE))
    headers = [batch.header for batch in read_batches(b"".join(THREE))]
    assert len(table) == 3
    for column, field in {
        "sizes": "size_bytes",
        "base_offsets": "base_offset",
        "last_offsets": "last_offset",
        "leader_epochs": "partition_leader_epoch",
        "crcs": "crc",
        "attributes": "attributes",
        "base_timestamps": "base_timestamp",
        "max_timestamps": "max_timestamp",
        "producer_ids": "producer_id",
        "producer_epochs": "producer_epoch",
        "base_sequences": "base_sequence",
        "record_counts": "record_count",
    }.items():
        assert getattr(table, column).tolist() == [getattr(header, field) for header in headers], column
    assert table.positions.tolist() == [0, len(THREE[0]), len(THREE[0]) + len(THREE[1])]
    assert table.consumed_bytes == sum(map(len, THREE))
    assert table.next_offset == 2**40 + 1001
    assert (table.needed_bytes, table.damage) == (0, None)
    assert "3 batches" in repr(table)


@pytest.mark.parametrize("data", [b"", b"\x00", THREE[0][:60]])
def test_less_than_a_header_is_an_empty_table(data: bytes) -> None:
    table = scan_batches(data)
    assert (len(table), table.consumed_bytes, table.next_offset) == (0, 0, None)
    assert (table.needed_bytes, table.damage) == (0, None)


def test_a_batch_cut_off_behind_its_header_says_how_long_it_is() -> None:
    table = scan_batches(THREE[0] + THREE[1][:-1])
    assert (len(table), table.consumed_bytes, table.needed_bytes) == (1, len(THREE[0]), len(THREE[1]))
    assert table.damage is None


def test_scanning_begins_anew_where_the_last_table_ended() -> None:
    data = b"".join(THREE)
    first = scan_batches(data[:-1])
    assert scan_batches(memoryview(data)[first.consumed_bytes :]).base_offsets.tolist() == [2**40]


def message_of_old(magic: int) -> bytes:
    body = struct.pack(">iBBiqi", -1, magic, 0, -1, 0, -1) if magic else struct.pack(">iBBii", -1, 0, 0, -1, -1)
    return struct.pack(">qi", 10**6, len(body)) + body


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (with_header(THREE[1], magic=3), "magic 3"),
        (message_of_old(0), "magic 0"),
        (message_of_old(1), "magic 1"),
        (message_of_old(1) * 4, "brokers before Kafka 0.11"),
        (bytes(100), "a batch of 0 bytes"),
        (with_header(THREE[1], record_count=-1), "-1 records"),
        (with_header(THREE[1], last_offset_delta=-1), "offsets from 13, -1 further"),
        (with_header(THREE[1], base_offset=-1), "offsets from -1"),
        (with_header(THREE[1], base_offset=2**63 - 1, last_offset_delta=1), "offsets from 9223372036854775807"),
        (with_header(THREE[1], base_offset=12), "offset 12 behind one that ends with offset 12"),
        (THREE[1][:8] + b"\xff\xff\xff\xff" + THREE[1][12:], "a batch of -1 bytes"),
        (THREE[1][:8] + b"\x7f\xff\xff\xff" + THREE[1][12:16] + b"\x09" + THREE[1][17:], "magic 9"),
    ],
)
def test_what_can_be_no_batch_ends_the_table_and_is_reported(tail: bytes, why: str) -> None:
    table = scan_batches(THREE[0] + tail + THREE[2])
    assert (len(table), table.consumed_bytes, table.needed_bytes) == (1, len(THREE[0]), 0)
    assert table.damage is not None
    assert why in table.damage


def test_the_first_damage_counts() -> None:
    table = scan_batches(THREE[0] + with_header(THREE[1], record_count=-7) + with_header(THREE[2], magic=9))
    assert table.damage == "a batch of -7 records at offset 13"
