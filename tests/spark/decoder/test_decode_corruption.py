"""Damage is refused with words that say where it is."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.records.batch import BATCH_HEADER_BYTES, TimestampType, build_batch
from kafka_wire.records.compression import Codec, compress
from kafka_wire.records.record import NewRecord
from tests.spark.decoder.decoder_logs import (
    ABORTED,
    PARTITION,
    TRANSACTIONS,
    batches_of,
    chunk,
    numbered,
    offsets_of,
    table_of,
    with_block,
    with_header,
)
from trio_broker.spark.decoder import Engine
from trio_broker.spark.errors import CorruptData

pytestmark = pytest.mark.parametrize("engine", list(Engine))

GOOD = numbered(3, 10)
BLOCK = numbered(3, 13)[BATCH_HEADER_BYTES:]


def flipped(data: bytes, position: int = -2) -> bytes:
    out = bytearray(data)
    out[position] ^= 0x01
    return bytes(out)


def refusal(engine: Engine, *batches: bytes, **options: Any) -> CorruptData:
    with pytest.raises(CorruptData) as caught:
        batches_of([chunk(*batches, origin="segment 00.log")], engine, **options)
    return caught.value


def test_a_refusal_names_partition_offset_and_origin(engine: Engine) -> None:
    error = refusal(engine, GOOD, flipped(numbered(3, 13)))
    assert (error.partition, error.offset) == (PARTITION, 13)
    for word in ("orders-3", "13", "CRC", "segment 00.log", str(len(GOOD))):
        assert word in str(error)


@pytest.mark.parametrize("count", [1, 3000, 100_000])
def test_checksums_of_every_size_are_compared_unless_nobody_wants_that(engine: Engine, count: int) -> None:
    bad = flipped(build_batch([NewRecord(1, b"k", bytes(count))]), -2 - count // 2)
    assert "CRC" in str(refusal(engine, bad))
    assert "CRC" in str(refusal(engine, flipped(GOOD, 30)))
    assert len(offsets_of([chunk(bad)], engine, verify_crc=False)) == 1


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (with_header(numbered(3, 13), record_count=2), "bytes after the last record"),
        (with_header(numbered(3, 13), record_count=4), "behind the record at offset 15: the records end early"),
        (with_header(numbered(3, 13), record_count=2**31 - 1), "2147483647 records in"),
        (with_header(numbered(3, 13), record_count=0), "bytes after the last record"),
        (with_header(numbered(3, 13), last_offset_delta=1), "behind the record at offset 14: an offset delta of 2"),
        (with_block(numbered(3, 13), BLOCK + b"\x00"), "1 bytes after the last record"),
        (with_block(numbered(3, 13), BLOCK[:-1]), "behind the record at offset 14"),
        (with_block(numbered(3, 13), b""), "3 records in 0 bytes"),
        (with_block(numbered(3, 13), BLOCK[:1] + b"\x00\x00\x04" + BLOCK[4:]), "behind the record at offset 15"),
        (with_block(numbered(3, 13), b"\xff\xff\xff\xff\x1f" + BLOCK[5:]), "more than 32 bits"),
        (with_block(numbered(3, 13), b"\xff\xff\xff\xff\xff" + BLOCK[5:]), "more than 5 bytes"),
        (with_block(numbered(3, 13), b"\x01" + BLOCK[1:]), "a record of -1 bytes"),
        (with_block(numbered(3, 13), BLOCK[:4] + b"\x03" + BLOCK[5:]), "-2 bytes of key"),
        (with_block(numbered(3, 13), BLOCK[:4] + b"\x7e" + BLOCK[5:]), "63 bytes of key"),
    ],
)
def test_records_that_break_the_format_are_refused_in_kafka_wire_s_words(
    engine: Engine, batch: bytes, why: str
) -> None:
    error = refusal(engine, GOOD, batch)
    assert error.offset == 13
    assert why in str(error)


def test_offsets_that_do_not_grow_are_refused(engine: Engine) -> None:
    twice = numbered(1, 13)[BATCH_HEADER_BYTES:] * 2
    batch = with_block(with_header(numbered(1, 13), record_count=2, last_offset_delta=5), twice)
    assert "an offset delta of 0 where between 1 and 5" in str(refusal(engine, batch))


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x12\x00\x00\x00\x01\x01\x02\x01\x01\x00", "a header without a key"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x04\x61", "key, value or header"),
        (b"\x10\x00\x00\x00\x01\x01\x04\x00\x00", "2 headers in 2 bytes"),
        (b"\x10\x00\x00\x00\x01\x01\x01\x00\x00", "-1 headers"),
    ],
)
def test_headers_that_break_the_format_are_refused_where_they_are_read(engine: Engine, block: bytes, why: str) -> None:
    assert why in str(refusal(engine, with_block(numbered(1), block)))


def test_headers_that_nobody_wants_are_not_looked_at(engine: Engine) -> None:
    batch = with_block(numbered(1), b"\x12\x00\x00\x00\x01\x01\x02\x01\x01\x00")
    assert offsets_of([chunk(batch)], engine) == [0]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_cannot_be_inflated_is_refused(engine: Engine, codec: Codec) -> None:
    good = [numbered(3, 3 * index, codec=codec) for index in range(4)]
    good[2] = with_block(good[2], good[2][BATCH_HEADER_BYTES:-8])
    error = refusal(engine, *good)
    assert error.offset == 6
    assert codec.name.lower() in str(error)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_are_refused(engine: Engine, codec: Codec) -> None:
    bomb = build_batch([NewRecord(1, b"", bytes(2_000_000))], codec=codec)
    error = refusal(engine, bomb, max_inflated_bytes=1_000_000)
    assert "more than the 1000000 bytes allowed" in str(error)
    assert refusal(engine, bomb, numbered(1, 1, codec=codec), max_inflated_bytes=1_000_000).offset == 0
    assert offsets_of([chunk(bomb)], engine) == [0]


def test_a_codec_that_does_not_exist_is_refused(engine: Engine) -> None:
    assert "codec 6 does not exist" in str(refusal(engine, with_header(GOOD, attributes=6)))


def test_old_messages_are_refused_by_name(engine: Engine) -> None:
    log = GOOD + with_header(numbered(1, 13), magic=1)
    error = refusal(engine, log)
    assert "old format (magic 1)" in str(error)
    assert error.offset == 13


def test_damage_behind_the_range_is_nobody_s_business(engine: Engine) -> None:
    log = [GOOD, with_header(numbered(1, 13), magic=9)]
    assert offsets_of([chunk(*log)], engine, end=13) == [10, 11, 12]
    assert offsets_of([chunk(GOOD, flipped(numbered(3, 13)))], engine, end=13) == [10, 11, 12]


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), (2**63 - 1) // 1000 + 1])
@pytest.mark.parametrize("kind", list(TimestampType))
def test_a_timestamp_without_microseconds_is_refused_where_it_is_wanted(
    engine: Engine, timestamp: int, kind: TimestampType
) -> None:
    log = build_batch([NewRecord(timestamp)], timestamp_type=kind)
    assert "microseconds" in str(refusal(engine, log))
    assert offsets_of([chunk(log)], engine) == [0]


def test_the_largest_and_smallest_timestamps_are_read(engine: Engine) -> None:
    most = (2**63 - 1) // 1000
    log = build_batch([NewRecord(most), NewRecord(-most)])
    column = table_of([chunk(log)], engine, columns=["timestamp"])["timestamp"]
    assert column.cast("int64").to_pylist() == [most * 1000, -most * 1000]


def test_a_marker_that_cannot_be_read_is_refused_where_it_decides(engine: Engine) -> None:
    (index,) = (index for index, batch in enumerate(TRANSACTIONS) if chunk(batch).table.base_offsets[0] == 5)
    log = [*TRANSACTIONS[:index], flipped(TRANSACTIONS[index]), *TRANSACTIONS[index + 1 :]]
    with pytest.raises(CorruptData, match=r"at offset 5: .*CRC"):
        offsets_of([chunk(*log, aborted=ABORTED)], engine)
    assert len(offsets_of([chunk(*log)], engine)) == 11


def test_snappy_without_framing_and_several_zstd_frames_are_read(engine: Engine) -> None:
    import cramjam

    snappy = with_header(with_block(numbered(3, 13), bytes(cramjam.snappy.compress_raw(BLOCK))), attributes=2)
    frames = compress(Codec.ZSTD, BLOCK[:7]) + compress(Codec.ZSTD, BLOCK[7:])
    zstd = with_header(with_block(numbered(3, 13), frames), attributes=4)
    for batch in (snappy, zstd):
        assert offsets_of([chunk(batch)], engine) == [13, 14, 15]
        assert offsets_of([chunk(numbered(3, 10, codec=Codec.ZSTD), batch)], engine) == list(range(10, 16))
