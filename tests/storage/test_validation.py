"""What a leader refuses from a client, with Kafka's error codes, and what it rewrites."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch, TimestampType, build_batch, read_batch_header, read_batches
from kafka_wire.records.compression import (
    ZSTD_BLOCK_BYTES,
    ZSTD_MAGIC,
    ZSTD_REPEATED_BYTE,
    Codec,
    compress,
    decompress,
)
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.crc import crc32c
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import MIN_RECORD_BYTES, NewRecord
from tests.storage.conftest import NOW_MS
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.storage import validation
from trio_broker.storage.errors import MessageTooLarge, RecordError, RecordValidationError

Batch = Callable[..., bytearray]
HOUR_MS = 3_600_000
ORDERS = TopicPartition("orders", 3)
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


def taken(data: bytes | bytearray, now_ms: int, produce_version: int | None = None, **config: Any) -> RecordBatch:
    """The batch as it is to be stored."""
    settings = LogConfig(**config)
    batch = validation.check_client_batch(memoryview(data), settings, produce_version)
    return validation.prepare(batch, settings, now_ms, ORDERS)


def code_of(data: bytes | bytearray, now_ms: int, produce_version: int | None = None, **config: Any) -> ErrorCode:
    """The error code with which a batch is refused, NONE if it is taken."""
    try:
        taken(data, now_ms, produce_version, **config)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def refusal_of(data: bytes | bytearray, now_ms: int, **config: Any) -> RecordValidationError:
    """The refusal that names records."""
    with pytest.raises(RecordValidationError) as refusal:
        taken(data, now_ms, **config)
    return refusal.value


def changed(data: bytes | bytearray, layout: str, position: int, value: int) -> bytearray:
    """The batch with one header field changed and a right checksum."""
    copy = bytearray(data)
    struct.pack_into(layout, copy, position, value)
    struct.pack_into(">I", copy, 17, crc32c(memoryview(copy)[21:]))
    return copy


def with_count(data: bytes | bytearray, count: int) -> bytearray:
    """The batch with another number of records, and the last offset that goes with it."""
    return changed(changed(data, ">i", 57, count), ">i", 23, count - 1)


def with_block(data: bytes | bytearray, block: bytes | bytearray) -> bytearray:
    """The batch with other bytes in place of its records."""
    return changed(bytearray(data[:61]) + block, ">i", 8, 49 + len(block))


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_all_codecs_are_taken(batch: Batch, now_ms: int, codec: Codec):
    assert code_of(batch(3, codec=codec), now_ms) is ErrorCode.NONE
    assert code_of(batch(3, codec=codec), now_ms, cleanup_policy=CleanupPolicy(compact=True)) is ErrorCode.NONE


def test_exactly_one_batch(batch: Batch, now_ms: int):
    assert code_of(b"", now_ms) is ErrorCode.INVALID_RECORD
    assert code_of(batch() + batch(), now_ms) is ErrorCode.INVALID_RECORD
    assert code_of(batch()[:-1], now_ms) is ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_checksum_is_corrupt(batch: Batch, now_ms: int):
    data = batch()
    data[-1] ^= 1
    assert code_of(data, now_ms) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_magics_are_refused(batch: Batch, now_ms: int, magic: int):
    assert code_of(changed(batch(), ">b", 16, magic), now_ms) is ErrorCode.INVALID_RECORD


def test_counts_must_agree(batch: Batch, now_ms: int):
    assert code_of(changed(batch(2), ">i", 57, 1), now_ms) is ErrorCode.INVALID_RECORD
    assert code_of(changed(batch(2), ">i", 23, 4), now_ms) is ErrorCode.INVALID_RECORD


def test_an_empty_batch_is_never_taken_from_a_client(batch: Batch, now_ms: int):
    empty = changed(changed(batch()[:61], ">i", 8, 49), ">i", 57, 0)
    assert code_of(empty, now_ms) is ErrorCode.INVALID_RECORD


def test_control_batches_are_refused(now_ms: int):
    data = build_control_batch(EndTransactionMarker(True, 0), timestamp=now_ms, producer_id=1, producer_epoch=0)
    assert code_of(data, now_ms) is ErrorCode.INVALID_RECORD


def test_too_large_is_its_own_error(batch: Batch, now_ms: int):
    assert code_of(batch(value=bytes(200)), now_ms, max_message_bytes=200) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_version_seven(batch: Batch, now_ms: int):
    data = batch(codec=Codec.ZSTD)
    assert code_of(data, now_ms, 6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code_of(data, now_ms, 7) is ErrorCode.NONE


def test_a_client_batch_begins_at_offset_zero(batch: Batch, now_ms: int):
    data = batch()
    struct.pack_into(">q", data, 0, 5)
    assert code_of(data, now_ms) is ErrorCode.INVALID_RECORD


def test_only_the_producer_id_decides(batch: Batch, now_ms: int):
    for epoch, sequence in ((-1, -1), (-1, 0), (0, 0)):
        assert code_of(batch(producer_epoch=epoch, sequence=sequence), now_ms) is ErrorCode.NONE
    assert code_of(batch(producer_id=1, producer_epoch=0, sequence=-1), now_ms) is ErrorCode.INVALID_RECORD


def test_a_codec_that_does_not_exist_is_refused(batch: Batch, now_ms: int):
    assert code_of(changed(batch(), ">h", 21, 7), now_ms) is ErrorCode.INVALID_RECORD


def test_create_time_may_be_an_hour_ahead(batch: Batch, now_ms: int):
    assert code_of(batch(timestamp=now_ms + HOUR_MS), now_ms) is ErrorCode.NONE
    assert code_of(batch(timestamp=now_ms + HOUR_MS + 1), now_ms) is ErrorCode.INVALID_TIMESTAMP
    ahead = batch(timestamp=now_ms + HOUR_MS + 1)
    log_append_time = TimestampType.LOG_APPEND_TIME
    assert code_of(ahead, now_ms, message_timestamp_type=log_append_time) is ErrorCode.NONE


def test_old_timestamps_are_refused_where_the_topic_says_so(batch: Batch, now_ms: int):
    old = batch(20, timestamp=now_ms - 1000)
    assert code_of(old, now_ms) is ErrorCode.NONE
    assert code_of(old, now_ms, message_timestamp_before_max_ms=999) is ErrorCode.INVALID_TIMESTAMP
    assert code_of(old, now_ms, message_timestamp_before_max_ms=1000) is ErrorCode.NONE
    assert code_of(batch(timestamp=-1), now_ms, message_timestamp_before_max_ms=999) is ErrorCode.NONE


def test_a_timestamp_that_no_age_can_reach_is_refused_unless_the_log_gives_its_own(batch: Batch, now_ms: int):
    assert code_of(batch(timestamp=-(2**63)), now_ms) is ErrorCode.INVALID_TIMESTAMP
    assert code_of(batch(timestamp=now_ms - LONG_MAX - 1), now_ms) is ErrorCode.INVALID_TIMESTAMP
    assert code_of(batch(timestamp=now_ms - LONG_MAX), now_ms) is ErrorCode.NONE
    append_time = TimestampType.LOG_APPEND_TIME
    assert code_of(batch(timestamp=-(2**63)), now_ms, message_timestamp_type=append_time) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [1, 20, 200])
def test_it_is_taken_where_the_topic_has_no_limit_into_the_future_either(now_ms: int, codec: Codec, count: int):
    data = build_batch([NewRecord(-LONG_MAX - 1, b"k", b"v")] * count, codec=codec)
    assert code_of(data, now_ms) is ErrorCode.INVALID_TIMESTAMP
    unbounded = {"message_timestamp_after_max_ms": LONG_MAX}
    assert code_of(data, now_ms, **unbounded) is ErrorCode.NONE
    assert code_of(data, now_ms, **unbounded, message_timestamp_before_max_ms=1000) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("count", [1, 20, 200])
def test_such_a_base_timestamp_is_refused_and_such_a_largest_one_is_put_right(now_ms: int, count: int):
    data = build_batch([NewRecord(now_ms, b"k", b"v")] * count)
    assert code_of(changed(data, ">q", 27, -LONG_MAX - 1), now_ms) is ErrorCode.INVALID_TIMESTAMP
    assert taken(with_largest_timestamp(data, -LONG_MAX - 1), now_ms).header.max_timestamp == now_ms


def test_a_producer_may_not_set_log_append_time(batch: Batch, now_ms: int):
    data = changed(batch(), ">h", 21, 8)
    assert code_of(data, now_ms) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_compacted_topics_need_keys(now_ms: int, codec: Codec):
    data = build_batch([NewRecord(now_ms, b"k", b"v"), NewRecord(now_ms, None, b"v")], codec=codec)
    assert code_of(data, now_ms) is ErrorCode.NONE
    assert code_of(data, now_ms, cleanup_policy=CleanupPolicy(compact=True)) is ErrorCode.INVALID_RECORD


WITHOUT_KEY = "Compacted topic cannot accept message without key in topic partition orders-3"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_every_record_without_a_key_is_named_with_kafkas_words(now_ms: int, codec: Codec):
    keys = [b"k", None, b"k", None, None, None]
    data = build_batch([NewRecord(now_ms, key, b"v") for key in keys], codec=codec)
    error = refusal_of(data, now_ms, cleanup_policy=CleanupPolicy(compact=True))
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [RecordError(index, WITHOUT_KEY) for index in (1, 3, 4, 5)]
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{WITHOUT_KEY}')" for index in (1, 3, 4))
    assert str(error) == (
        "One or more records have been rejected due to 4 record errors in total, and only showing the first three"
        f" errors at most: [{shown}]"
    )


def test_every_record_with_a_timestamp_out_of_bounds_is_named(now_ms: int):
    late, old = now_ms + HOUR_MS + 1, now_ms - 1001
    times = [now_ms, late, now_ms - 1000, old, -1, now_ms + HOUR_MS, -2]
    data = build_batch([NewRecord(time, b"k", b"v") for time in times])
    error = refusal_of(data, now_ms, message_timestamp_before_max_ms=1000)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert str(error) == "One or more records have been rejected due to invalid timestamp"
    assert [each.batch_index for each in error.record_errors] == [1, 3, 6]
    assert error.record_errors[0].message == (
        f"Timestamp {late} of message with offset 1 is out of range."
        f" The timestamp should be within [{now_ms - 1000}, {now_ms + HOUR_MS}]"
    )


def test_one_wrong_timestamp_makes_the_refusal_one_of_timestamps(now_ms: int):
    data = build_batch([NewRecord(now_ms, None, b"v"), NewRecord(now_ms + 2 * HOUR_MS, b"k", b"v")])
    error = refusal_of(data, now_ms, cleanup_policy=CleanupPolicy(compact=True))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in error.record_errors] == [0, 1]


def test_records_are_named_in_large_batches_too_in_a_worker_thread(now_ms: int):
    times = [now_ms] * 50
    times[30] = now_ms + 2 * HOUR_MS
    data = build_batch([NewRecord(time, b"k", b"v") for time in times])
    checked = validation.check_client_batch(memoryview(data), LogConfig(), produce_version=9)
    assert validation.takes_long(checked, LogConfig(), now_ms)
    [only] = refusal_of(data, now_ms).record_errors
    assert only.batch_index == 30


def with_largest_timestamp(data: bytes | bytearray, timestamp: int) -> bytearray:
    """The batch with another largest timestamp in its header."""
    return changed(data, ">q", 35, timestamp)


BEYOND = 2 * HOUR_MS
"""Further ahead than a topic takes, by default."""


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("largest", [-1, 0, NOW_MS - 1, NOW_MS + BEYOND])
def test_the_largest_timestamp_is_that_of_the_records_whatever_the_header_says(
    batch: Batch, now_ms: int, codec: Codec, largest: int
):
    """Sarama up to 1.45 sends -1, others 0."""
    configs: list[dict[str, Any]] = [
        {},
        {"cleanup_policy": CleanupPolicy(compact=True)},
        {"message_timestamp_before_max_ms": HOUR_MS},
        {"compression_type": Codec.ZSTD},
    ]
    for config in configs:
        for count in (5, 20):
            result = taken(with_largest_timestamp(batch(count, codec=codec), largest), now_ms, **config)
            result.verify_crc()
            assert result.header.max_timestamp == now_ms + count - 1
            assert read_batch_header(result.buffer) == result.header
            assert [record.timestamp for record in result.records()] == [now_ms + each for each in range(count)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_that_are_looked_at_tell_it_to_the_millisecond(batch: Batch, now_ms: int, codec: Codec):
    for wrong in (now_ms + 3, now_ms + 5):
        result = taken(with_largest_timestamp(batch(5, codec=codec), wrong), now_ms)
        assert result.header.max_timestamp == now_ms + 4


@pytest.mark.parametrize("largest", [-1, 0, 1, BEYOND])
@pytest.mark.parametrize("count", [20, 150])
def test_a_large_plain_batch_is_read_where_its_header_cannot_be_right(
    batch: Batch, now_ms: int, largest: int, count: int
):
    """In a worker thread, and only then."""
    data = with_largest_timestamp(batch(count), largest if largest < BEYOND else now_ms + largest)
    checked = validation.check_client_batch(memoryview(data), LogConfig(), 9)
    assert validation.takes_long(checked, LogConfig(), now_ms)
    assert taken(data, now_ms).header.max_timestamp == now_ms + count - 1
    right = batch(count)
    checked = validation.check_client_batch(memoryview(right), LogConfig(), 9)
    assert not validation.takes_long(checked, LogConfig(), now_ms)
    assert bytes(validation.prepare(checked, LogConfig(), now_ms, ORDERS).buffer) == right


def test_nothing_is_read_for_the_time_where_the_broker_stamps_its_own(batch: Batch, now_ms: int):
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    data = with_largest_timestamp(batch(150), -1)
    checked = validation.check_client_batch(memoryview(data), config, 9)
    assert not validation.takes_long(checked, config, now_ms)


def test_records_without_a_time_leave_their_batch_without_one(batch: Batch, now_ms: int):
    for count in (2, 20):
        data = build_batch([NewRecord(-1, b"k", b"v")] * count)
        assert bytes(taken(data, now_ms).buffer) == data
        before_1970 = build_batch([NewRecord(-2, b"k", b"v")] * count)
        assert taken(with_largest_timestamp(before_1970, 7), now_ms).header.max_timestamp == -1


@pytest.mark.parametrize("bits", [0x40, 0x80, 0x7F00, -0x8000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_attributes_that_only_a_log_sets_or_nobody_knows_are_cleared(
    batch: Batch, now_ms: int, bits: int, codec: Codec
):
    """A delete horizon of a client would have tombstones removed at the next compaction."""
    original = batch(3, codec=codec, producer_id=3, producer_epoch=0, sequence=0, transactional=True)
    result = taken(changed(original, ">h", 21, 0x10 | codec | bits), now_ms)
    assert bytes(result.buffer) == bytes(original)
    assert result.header == read_batch_header(original)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_is_stored_is_not_above_the_largest_size_either(now_ms: int, codec: Codec):
    """Compressed anew it may be larger than it came."""
    data = build_batch([NewRecord(now_ms, b"k", bytes(100_000))], codec=Codec.ZSTD)
    config = LogConfig(max_message_bytes=2000, compression_type=codec)
    checked = validation.check_client_batch(memoryview(data), config, 9)
    if codec is Codec.GZIP:
        assert len(validation.prepare(checked, config, now_ms, ORDERS).buffer) < 2000
        return
    with pytest.raises(MessageTooLarge, match=r"100073 bytes as none; max\.message\.bytes is 2000"):
        validation.prepare(checked, config, now_ms, ORDERS)


@pytest.mark.parametrize("codec", PACKED)
def test_a_record_may_decompress_to_no_more_than_the_topic_says(now_ms: int, codec: Codec):
    data = build_batch([NewRecord(now_ms, None, bytes(size)) for size in (10, 990)], codec=codec)
    checked = validation.check_client_batch(memoryview(data), LogConfig(), 9)
    validation.prepare(checked, LogConfig(max_decompressed_message_bytes=1000), now_ms, ORDERS)
    with pytest.raises(InvalidRecord, match="a record of 997 bytes, at most 996 are taken"):
        validation.prepare(checked, LogConfig(max_decompressed_message_bytes=996), now_ms, ORDERS)
    plain = build_batch([NewRecord(now_ms, None, bytes(990))])
    checked = validation.check_client_batch(memoryview(plain), LogConfig(), 9)
    validation.prepare(checked, LogConfig(max_decompressed_message_bytes=996), now_ms, ORDERS)


def test_the_number_of_named_records_has_a_limit_and_their_count_has_none(now_ms: int, monkeypatch):
    monkeypatch.setattr(validation, "MAX_RECORD_ERRORS", 2)
    data = build_batch([NewRecord(now_ms, None, b"v")] * 5)
    error = refusal_of(data, now_ms, cleanup_policy=CleanupPolicy(compact=True))
    assert len(error.record_errors) == 2
    assert "due to 5 record errors" in str(error)


def test_records_of_small_batches_are_walked_over(batch: Batch, now_ms: int):
    data = batch()
    data[61] += 2  # the record claims one byte more than there is
    assert code_of(changed(data, ">b", 16, 2), now_ms) is ErrorCode.INVALID_RECORD


def test_log_append_time_is_stamped_with_a_new_checksum(batch: Batch, now_ms: int):
    result = taken(batch(2), now_ms, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    validation.stamp_append_time(result, now_ms + 5)
    result.verify_crc()
    assert result.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in result.records()] == [now_ms + 5] * 2


@pytest.mark.parametrize("codec", list(Codec))
def test_a_topic_with_its_own_codec_gets_it(batch: Batch, now_ms: int, codec: Codec):
    original = batch(5, codec=Codec.GZIP, value=bytes(100), producer_id=3, producer_epoch=1, sequence=9)
    result = taken(original, now_ms, compression_type=codec)
    result.verify_crc()
    assert result.header.codec is codec
    assert (result.header.producer_id, result.header.producer_epoch, result.header.base_sequence) == (3, 1, 9)
    (before,) = read_batches(bytes(original))
    assert list(result.records()) == list(before.records())


def test_batches_are_stored_as_sent_where_the_codec_is_the_topics_or_the_producers(batch: Batch, now_ms: int):
    original = batch(5, codec=Codec.LZ4)
    for codec in (None, Codec.LZ4):
        assert bytes(taken(original, now_ms, compression_type=codec).buffer) == bytes(original)


def test_the_level_of_the_codec_is_the_topics(batch: Batch, now_ms: int):
    original = batch(400, value=b"the quick brown fox jumps over the lazy dog")
    sizes = [
        len(taken(original, now_ms, compression_type=Codec.GZIP, compression_gzip_level=level).buffer)
        for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]


COMPACT = LogConfig(cleanup_policy=CleanupPolicy(compact=True))
REFUSES_OLD = LogConfig(message_timestamp_before_max_ms=1000)
OWN_CODEC = LogConfig(compression_type=Codec.ZSTD)


@pytest.mark.parametrize("config", [COMPACT, REFUSES_OLD, OWN_CODEC], ids=["compacted", "refuses old", "own codec"])
def test_only_small_plain_batches_are_looked_into_at_once(batch: Batch, now_ms: int, config: LogConfig):
    def takes_long(data: bytearray) -> bool:
        return validation.takes_long(
            validation.check_client_batch(memoryview(data), config, produce_version=9), config, now_ms
        )

    assert not takes_long(batch(16))
    assert takes_long(batch(17))
    assert takes_long(batch(1, value=bytes(20_000)))
    assert takes_long(batch(1, codec=Codec.GZIP)), "a small batch may inflate to a large one"


def test_nothing_takes_long_where_only_the_lengths_of_records_are_looked_at(batch: Batch, now_ms: int):
    checked = validation.check_client_batch(memoryview(batch(1000)), LogConfig(), 9)
    assert not validation.takes_long(checked, LogConfig(), now_ms)
    assert validation.prepare(checked, LogConfig(), now_ms, ORDERS) is checked


@pytest.mark.parametrize("codec", PACKED)
def test_compressed_batches_are_looked_into_at_once_only_where_little_can_be_in_them(
    batch: Batch, now_ms: int, codec: Codec
):
    def takes_long(data: bytes | bytearray) -> bool:
        checked = validation.check_client_batch(memoryview(bytearray(data)), LogConfig(), 9)
        return validation.takes_long(checked, LogConfig(), now_ms)

    # Gzip does not say beforehand how much is in it.
    assert takes_long(batch(1, codec=codec)) is (codec is Codec.GZIP)
    assert takes_long(batch(17, codec=codec))
    assert takes_long(batch(1, codec=codec, value=bytes(200_000)))


@pytest.mark.parametrize("value_bytes", [1, 40_000])
def test_a_plain_batch_has_the_bytes_for_as_many_records_as_it_counts(batch: Batch, now_ms: int, value_bytes: int):
    """The log end would move by the count, beyond anything that a reader finds."""
    data = batch(3, value=bytes(value_bytes))
    for count in (2**31 - 1, (len(data) - 61) // MIN_RECORD_BYTES + 1):
        assert code_of(with_count(data, count), now_ms) is ErrorCode.INVALID_RECORD
    smallest = build_batch([NewRecord(now_ms, None, None)] * 17)
    assert len(smallest) == 61 + 17 * MIN_RECORD_BYTES
    assert code_of(smallest, now_ms) is ErrorCode.NONE


@pytest.mark.parametrize("value_bytes", [0, 100, 10_000])
def test_a_large_plain_batch_holds_the_records_that_it_counts(batch: Batch, now_ms: int, value_bytes: int):
    data = batch(50, value=bytes(value_bytes))
    assert code_of(data, now_ms) is ErrorCode.NONE
    for count in (49, 51):
        assert code_of(with_count(data, count), now_ms) is ErrorCode.INVALID_RECORD
    for length in (0, 1, 5, 9, data[61] - 2):
        wrong = bytearray(data[61:])
        wrong[0] = length
        assert code_of(with_block(data, wrong), now_ms) is ErrorCode.INVALID_RECORD


def test_nor_is_its_count_believed_where_the_topic_stores_records_uncompressed(batch: Batch, now_ms: int):
    data = batch(50, value=bytes(1000))
    assert code_of(data, now_ms, compression_type=Codec.NONE) is ErrorCode.NONE
    for count in (49, 51, 2**31 - 1):
        assert code_of(with_count(data, count), now_ms, compression_type=Codec.NONE) is ErrorCode.INVALID_RECORD


def test_a_plain_batch_of_many_records_has_the_bytes_for_as_many_as_it_counts(now_ms: int):
    data = bytearray(build_batch([NewRecord(now_ms, None, None)] * (validation.CHEAP_LENGTHS_RECORDS + 1)))
    assert code_of(data, now_ms) is ErrorCode.NONE
    assert code_of(with_count(data, (len(data) - 61) // MIN_RECORD_BYTES + 1), now_ms) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("records", [3, 2000])
def test_a_compressed_batch_holds_the_records_that_it_counts(batch: Batch, now_ms: int, codec: Codec, records: int):
    data = batch(records, codec=codec)
    for count in (records - 1, records + 1, 2**31 - 1):
        assert code_of(with_count(data, count), now_ms) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("block", [b"", b"\x00", b"garbage", bytes(range(256)) * 100], ids=["none", "0", "7", "25600"])
def test_garbage_in_place_of_compressed_records_is_refused(batch: Batch, now_ms: int, codec: Codec, block: bytes):
    assert code_of(with_block(batch(1, codec=codec), block), now_ms) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKED)
def test_compressed_records_that_end_early_or_go_on_are_refused(batch: Batch, now_ms: int, codec: Codec):
    data = batch(20, codec=codec, value=bytes(range(100)))
    block = bytes(data[61:])
    for wrong in (block[:-1], block[: len(block) // 2], block + b"x", block[:12] + bytes(30) + block[42:]):
        assert code_of(with_block(data, wrong), now_ms) is ErrorCode.INVALID_RECORD
    wrong_records = bytearray(decompress(codec, block))
    wrong_records[0] += 2
    assert code_of(with_block(data, compress(codec, wrong_records)), now_ms) is ErrorCode.INVALID_RECORD


def test_lz4_is_one_frame_of_independent_blocks_since_javas_reader_takes_no_other(batch: Batch, now_ms: int):
    data = batch(20, codec=Codec.LZ4, value=bytes(range(100)))
    records = decompress(Codec.LZ4, bytes(data[61:]))
    linked = cramjam.lz4.Compressor(block_linked=True)
    linked.compress(records)
    assert code_of(with_block(data, bytes(linked.finish())), now_ms) is ErrorCode.INVALID_RECORD
    halves = compress(Codec.LZ4, records[:500]) + compress(Codec.LZ4, records[500:])
    assert code_of(with_block(data, halves), now_ms) is ErrorCode.INVALID_RECORD
    with_checksum = cramjam.lz4.Compressor(block_linked=False, content_checksum=True)
    with_checksum.compress(records)
    assert code_of(with_block(data, bytes(with_checksum.finish())), now_ms) is ErrorCode.NONE


def test_zstd_that_says_it_is_small_is_inflated_no_further_than_that(batch: Batch, now_ms: int):
    """Such a batch is inflated on the event loop."""
    block = (ZSTD_BLOCK_BYTES << 3 | ZSTD_REPEATED_BYTE << 1).to_bytes(3, "little") + b"0"
    last = (1 << 3 | ZSTD_REPEATED_BYTE << 1 | 1).to_bytes(3, "little") + b"0"
    window_of_128_kib, size_of_four_bytes = 7 << 3, 2 << 6
    lie = struct.pack("<IBBI", ZSTD_MAGIC, size_of_four_bytes, window_of_128_kib, 100) + block * 50 + last
    checked = validation.check_client_batch(memoryview(with_block(batch(1, codec=Codec.ZSTD), lie)), LogConfig(), 9)
    assert not validation.takes_long(checked, LogConfig(), now_ms)
    # The library gives itself no more room than the frame says.
    with pytest.raises(InvalidRecord, match="Destination buffer is too small"):
        validation.prepare(checked, LogConfig(), now_ms, ORDERS)
