"""What a leader checks on a client's batch before it takes it, and what a topic may want changed in it.

Always checked, at a cost that does not grow with the batch but for its checksum: one batch and no more, magic, size,
CRC, base offset 0, count and offsets that agree, no control batch, a sequence where there is a producer id, a known
codec, timestamps by the header's largest one.

The records themselves are walked over (lengths, offsets 0, 1, 2 …, keys) where it is cheap or where it matters: in
small uncompressed batches, on compacted topics, which need keys, and where old timestamps are refused, which only the
records tell. In a large batch of a plain topic they are not: a walk in Python costs a microsecond a record, more than
all else together, and it would only protect against a producer that computes a right checksum over wrong records.
Such a producer gets an answer from its small batches, and consumers check what they read.

Rewriting is rare and always says why: LogAppendTime stamps the header and its checksum, a topic with its own
``compression.type`` gets the records compressed anew. Base offset and leader epoch are stamped elsewhere and need
neither.

Source: Kafka's LogValidator, UnifiedLog, ProduceRequest.
"""

from __future__ import annotations

from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    RecordBatch,
    TimestampType,
    read_batch_header,
    recompress_batch,
    stamp_log_append_time,
)
from kafka_wire.records.compression import Codec, decompression_limit
from kafka_wire.records.errors import CorruptRecordBatch, InvalidRecord
from trio_broker.storage.errors import InvalidTimestamp, MessageTooLarge, UnsupportedCompressionType
from trio_broker.storage.log_config import MAX_INT64, LogConfig

CHEAP_WALK_RECORDS = 16
"""Up to so many records a batch is walked over on any topic: about a microsecond each."""

CHEAP_WALK_BYTES = 16 * 1024
"""Up to this size too: the walk copies the bytes once."""

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
"""Older Produce requests come from clients whose consumers could not read it (KIP-110)."""


def check_client_batch(
    records: memoryview | bytes | bytearray, config: LogConfig, now_ms: int, produce_version: int | None
) -> BatchHeader:
    """Return the header of the one batch in ``records``, which a client sent to be appended now.

    Raises:
        InvalidRecord: no batch, more than one, or one that breaks the rules.
        MessageTooLarge: larger than ``max.message.bytes``.
        CorruptRecordBatch: cut short, or the checksum differs.
        InvalidTimestamp: outside the topic's window, or LogAppendTime set by the client.
        UnsupportedCompressionType: zstd in a version of Produce that has none.
    """
    size = len(records)
    if size < BATCH_HEADER_BYTES:
        raise InvalidRecord("a partition of a Produce request holds exactly one batch; here is none")
    header = read_batch_header(records)
    if header.size_bytes != size:
        _refuse_size(header, size)
    if size > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}")
    batch = RecordBatch(header, memoryview(records))
    batch.verify_crc()
    _check_header(header, produce_version)
    _check_timestamps(header, config, now_ms)
    _check_records(batch, config, now_ms)
    return header


def _refuse_size(header: BatchHeader, size: int) -> None:
    if header.size_bytes < size:
        raise InvalidRecord("a partition of a Produce request holds exactly one batch; here are more")
    raise CorruptRecordBatch(f"the batch says {header.size_bytes} bytes, {size} came")


def _check_header(header: BatchHeader, produce_version: int | None) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"a client's batch begins at offset 0, this one at {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecord(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")
    if header.is_control:
        raise InvalidRecord("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sends sequence {header.base_sequence}")
    codec = header.codec  # refuses the numbers that are no codec
    if codec is Codec.ZSTD and produce_version is not None and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
        raise UnsupportedCompressionType(f"zstd needs Produce version 7, this is {produce_version}")


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp("producers may not set the timestamp type LogAppendTime")
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    if header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp}, at {now_ms}: more than {config.message_timestamp_after_max_ms} ms ahead"
        )


def _check_records(batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
    require_keys = config.cleanup_policy.compact
    refuses_old = (
        config.message_timestamp_before_max_ms != MAX_INT64
        and config.message_timestamp_type is TimestampType.CREATE_TIME
    )
    header = batch.header
    cheap = header.record_count <= CHEAP_WALK_RECORDS and len(batch.buffer) <= CHEAP_WALK_BYTES
    if not (require_keys or refuses_old or (cheap and not header.codec)):
        return
    summary = batch.validate_records(require_keys=require_keys, max_bytes=decompression_limit(config.max_message_bytes))
    if refuses_old and 0 <= summary.min_timestamp < now_ms - config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"timestamp {summary.min_timestamp}, at {now_ms}: more than {config.message_timestamp_before_max_ms} ms ago"
        )


def needs_rewrite(header: BatchHeader, config: LogConfig) -> bool:
    """Return whether the topic wants more changed in the batch than its offset and epoch."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return True
    return config.compression_type is not None and header.codec is not config.compression_type


def rewrite(header: BatchHeader, records: memoryview, config: LogConfig, now_ms: int) -> RecordBatch:
    """Return the batch as the topic wants it, in memory of its own where its length changes.

    Raises:
        InvalidRecord: the records cannot be read to be compressed anew.
        DecompressionTooLarge: they would grow beyond bounds.
    """
    buffer = records
    codec = config.compression_type
    if codec is not None and header.codec is not codec:
        limit = decompression_limit(config.max_message_bytes)
        batch = RecordBatch(header, records)
        batch.validate_records(max_bytes=limit)
        buffer = memoryview(bytearray(recompress_batch(batch, codec, max_bytes=limit)))
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        stamp_log_append_time(buffer, now_ms)
    return RecordBatch(read_batch_header(buffer), buffer)
