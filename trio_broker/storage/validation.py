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

Hence two steps. ``check_client_batch`` costs microseconds and runs on the event loop. ``prepare`` looks at the records
and compresses them anew where the topic wants that: a batch of a megabyte may hold a million records, or inflate to
sixty-four megabytes, and take a second. It touches nothing but the batch, so it may run in a worker thread;
``takes_long`` says when it should.

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
from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import LogConfig
from trio_broker.storage.errors import InvalidTimestamp, MessageTooLarge, UnsupportedCompressionType

CHEAP_WALK_RECORDS = 16
"""Up to so many records a batch is walked over on any topic: about a microsecond each."""

CHEAP_WALK_BYTES = 16 * 1024
"""Up to this size too: the walk copies the bytes once."""

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
"""Older Produce requests come from clients whose consumers could not read it (KIP-110)."""


def check_client_batch(records: memoryview, config: LogConfig, now_ms: int, produce_version: int | None) -> RecordBatch:
    """Return the one batch in ``records``, which a client sent to be appended now; ``prepare`` has yet to see it.

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
    batch = RecordBatch(header, records)
    batch.verify_crc()
    _check_header(header, produce_version)
    _check_timestamps(header, config, now_ms)
    return batch


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


def takes_long(batch: RecordBatch, config: LogConfig) -> bool:
    """Return whether ``prepare`` may take more than a fraction of a millisecond: it then belongs in a worker thread."""
    header = batch.header
    if _is_small_and_plain(header):
        return False
    return config.cleanup_policy.compact or _refuses_old(config) or _needs_codec(header, config)


def prepare(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordBatch:
    """Check the records where that is due; return the batch with the topic's codec, in memory of its own if it changes.

    Touches nothing else, so it is safe in any thread.

    Raises:
        InvalidRecord: the records break the rules, or cannot be read to be compressed anew.
        InvalidTimestamp: one is older than the topic allows.
        DecompressionTooLarge: they would grow beyond bounds.
    """
    header = batch.header
    require_keys, refuses_old = config.cleanup_policy.compact, _refuses_old(config)
    needs_codec = _needs_codec(header, config)
    if require_keys or refuses_old or needs_codec or _is_small_and_plain(header):
        limit = decompression_limit(config.max_message_bytes)
        summary = batch.validate_records(require_keys=require_keys, max_bytes=limit)
        if refuses_old and 0 <= summary.min_timestamp < now_ms - config.message_timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"timestamp {summary.min_timestamp}, at {now_ms}:"
                f" more than {config.message_timestamp_before_max_ms} ms ago"
            )
    return _with_codec_of_topic(batch, config) if needs_codec else batch


def _with_codec_of_topic(batch: RecordBatch, config: LogConfig) -> RecordBatch:
    assert config.compression_type is not None, "the topic has a codec of its own"
    limit = decompression_limit(config.max_message_bytes)
    compressed = recompress_batch(batch, config.compression_type, level=config.compression_level, max_bytes=limit)
    buffer = memoryview(bytearray(compressed))
    return RecordBatch(read_batch_header(buffer), buffer)


def _needs_codec(header: BatchHeader, config: LogConfig) -> bool:
    return config.compression_type is not None and header.codec is not config.compression_type


def _refuses_old(config: LogConfig) -> bool:
    return (
        config.message_timestamp_before_max_ms != LONG_MAX
        and config.message_timestamp_type is TimestampType.CREATE_TIME
    )


def _is_small_and_plain(header: BatchHeader) -> bool:
    return (
        header.record_count <= CHEAP_WALK_RECORDS
        and header.batch_length <= CHEAP_WALK_BYTES
        and header.codec is Codec.NONE
    )


def stamp_append_time(batch: RecordBatch, now_ms: int) -> RecordBatch:
    """Return the batch with ``now_ms`` as the time of all its records, stamped into its bytes."""
    stamp_log_append_time(batch.buffer, now_ms)
    return RecordBatch(read_batch_header(batch.buffer), batch.buffer)
