"""What a leader checks on a client's batch before it takes it, and what a topic may want changed in it.

Always checked, at a cost that does not grow with the batch but for its checksum: one batch and no more, magic, size,
CRC, base offset 0, count and offsets that agree, no control batch, a sequence where there is a producer id, a known
codec, a largest timestamp that can be the records'.

A compressed batch is inflated, and its records are walked over (lengths, offsets 0, 1, 2 …, keys), as Kafka does:
consumers stop for ever at one that they cannot inflate. So are the records of small uncompressed batches, those on
compacted topics, which need keys, those where old timestamps are refused, which only the records tell, and those of
which the header cannot be right about the time. In a larger uncompressed batch of a plain topic only the lengths of
the records are followed, which tells their number; in one of many records only that their bytes suffice for so many: a
look at each in Python would cost more than all the rest.

Rewriting is rare and always says why: where the records were walked over, the header gets their largest timestamp, by
which lookups and retention go and which some clients leave out; attributes that are not a client's are cleared;
LogAppendTime stamps the header. Each takes a new checksum. A topic with its own ``compression.type`` gets the records
compressed anew, and the size is asked again. Base offset and leader epoch are stamped elsewhere and need neither.

Hence two steps. ``check_client_batch`` costs microseconds and runs on the event loop. ``prepare`` looks at the records
and compresses them anew where the topic wants that: a batch of a megabyte may hold a million records, or inflate to
sixty-four megabytes, and take a second. It touches nothing but the batch, so it may run in a worker thread;
``takes_long`` says when it should.

A batch is refused as a whole, and each of its records that is to blame is named (KIP-467): the producer fails these
for good, and may send the others again. The first walk only finds that there are such records; a second one, which
builds every record, finds which.

Source: Kafka's LogValidator, UnifiedLog, ProduceRequest.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    RecordBatch,
    TimestampType,
    read_batch_header,
    recompress_batch,
)
from kafka_wire.records.compression import Codec, check_framing, decompression_limit, inflated_bytes_bound
from kafka_wire.records.crc import crc32c
from kafka_wire.records.errors import CorruptRecordBatch, InvalidRecord
from kafka_wire.records.record import check_record_lengths, check_records, require_room_for_records
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import LogConfig
from trio_broker.storage.errors import (
    InvalidTimestamp,
    MessageTooLarge,
    RecordError,
    RecordValidationError,
    UnsupportedCompressionType,
)

CHEAP_WALK_RECORDS = 16
"""Up to so many records a batch is walked over on any topic: about a microsecond each."""

CHEAP_WALK_BYTES = 16 * 1024
"""Up to this size too, inflated if it is compressed: the walk copies the bytes once."""

CHEAP_BLOCKS = 100
"""And with so many blocks of its codec: a tenth of a millisecond. Clients that compress record by record make two for
each."""

CHEAP_LENGTHS_RECORDS = 100
"""Up to so many records the lengths in an uncompressed batch are followed: ten microseconds. In a batch of ten thousand
it would be most of what an append costs."""

CLIENT_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_BIT
"""The bits of the attributes that a producer sets."""

MAX_RECORD_ERRORS = 10_000
"""Records named in one refusal, each with 100 to 200 bytes of reason in the response. A batch may inflate to a million
records, and naming all of them would hold the event loop for seconds. Kafka has no such limit."""

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
"""Older Produce requests come from clients whose consumers could not read it (KIP-110)."""


def check_client_batch(records: memoryview, config: LogConfig, produce_version: int | None) -> RecordBatch:
    """Return the one batch in ``records``, which a client sent to be appended now; ``prepare`` has yet to see it.

    It lies in memory that may be written to: in ``records``, or in a copy where these are read-only.

    Raises:
        InvalidRecord: no batch, more than one, or one that breaks the rules.
        MessageTooLarge: larger than ``max.message.bytes``.
        CorruptRecordBatch: cut short, or the checksum differs.
        InvalidTimestamp: LogAppendTime set by the client.
        UnsupportedCompressionType: zstd in a version of Produce that has none.
    """
    size = len(records)
    if size < BATCH_HEADER_BYTES:
        raise InvalidRecord("a partition of a Produce request holds exactly one batch; here is none")
    header = read_batch_header(records)
    if LOG_OVERHEAD_BYTES + header.batch_length != size:
        _refuse_size(header, size)
    if size > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}")
    batch = RecordBatch(header, memoryview(bytearray(records)) if records.readonly else records)
    if crc32c(records[ATTRIBUTES_POSITION:]) != header.crc:
        batch.verify_crc()  # which says so
    attributes, record_count = header.attributes, header.record_count
    if header.base_offset != 0:
        raise InvalidRecord(f"a client's batch begins at offset 0, this one at {header.base_offset}")
    if record_count <= 0 or header.last_offset_delta + 1 != record_count:
        raise InvalidRecord(f"{record_count} records with a last offset delta of {header.last_offset_delta}")
    if attributes & ~CLIENT_ATTRIBUTES:
        _keep_client_attributes(batch)
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sends sequence {header.base_sequence}")
    if attributes & CODEC_MASK:
        codec = header.codec  # refuses the numbers that are no codec
        if codec is Codec.ZSTD and produce_version is not None and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
            raise UnsupportedCompressionType(f"zstd needs Produce version 7, this is {produce_version}")
    return batch


def _keep_client_attributes(batch: RecordBatch) -> None:
    """Clear the attributes that are none of a client's.

    A delete horizon is what the cleaner of a log has found out about that log: believed, it would have tombstones
    removed before consumers have seen them.

    Raises:
        InvalidRecord: a control batch.
        InvalidTimestamp: LogAppendTime.
    """
    header = batch.header
    if header.attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not write control records")
    if header.attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidTimestamp("producers may not set the timestamp type LogAppendTime")
    batch.amend(attributes=header.attributes & CLIENT_ATTRIBUTES, max_timestamp=header.max_timestamp)


def _refuse_size(header: BatchHeader, size: int) -> None:
    if header.size_bytes < size:
        raise InvalidRecord("a partition of a Produce request holds exactly one batch; here are more")
    raise CorruptRecordBatch(f"the batch says {header.size_bytes} bytes, {size} came")


def takes_long(batch: RecordBatch, config: LogConfig, now_ms: int) -> bool:
    """Return whether ``prepare`` may take more than a fraction of a millisecond: it then belongs in a worker thread."""
    header = batch.header
    if header.attributes & CODEC_MASK:
        return not (config.takes_plain_records_unread and _inflates_to_little(batch))
    return not _is_small_and_plain(header) and _reads_plain_records(header, config, now_ms + config.timestamp_lead_ms)


def prepare(batch: RecordBatch, config: LogConfig, now_ms: int, topic_partition: TopicPartition) -> RecordBatch:
    """Check the records where that is due; return the batch as it is to be stored.

    With the topic's codec it is in memory of its own. Touches nothing else, so it is safe in any thread.

    Raises:
        RecordValidationError: records without a key on a compacted topic, or with a time outside the topic's bounds.
        InvalidRecord: the records break the rules, or cannot be read to be compressed anew.
        DecompressionTooLarge: they would grow beyond bounds.
        MessageTooLarge: compressed anew, the batch is larger than ``max.message.bytes``.
    """
    header = batch.header
    earliest, latest = _earliest_timestamp(config, now_ms), now_ms + config.timestamp_lead_ms
    if header.attributes & CODEC_MASK:
        _check_blocks(batch)
    if _is_small_and_plain(header):
        # As ``validate_records`` would, after all that ``check_client_batch`` has seen: nearly every small batch.
        records = bytes(batch.buffer[BATCH_HEADER_BYTES:])
        summary = check_records(records, header.record_count, base_timestamp=header.base_timestamp)
        is_in_time = earliest <= summary.min_timestamp and summary.max_timestamp == header.max_timestamp <= latest
        if is_in_time and config.takes_plain_records_unread:
            return batch
    elif header.attributes & CODEC_MASK or _reads_plain_records(header, config, latest):
        summary = batch.validate_records(
            max_bytes=decompression_limit(config.max_message_bytes),
            max_record_bytes=config.max_decompressed_message_bytes,
        )
    else:
        if header.record_count <= CHEAP_LENGTHS_RECORDS:
            check_record_lengths(bytes(batch.buffer[BATCH_HEADER_BYTES:]), header.record_count)
        else:
            require_room_for_records(header.record_count, len(batch.buffer) - BATCH_HEADER_BYTES)
        return batch
    if (
        summary.max_timestamp > latest
        or (summary.null_keys and config.cleanup_policy.compact)
        or summary.min_timestamp < earliest
    ):
        _refuse_records(batch, config, now_ms, topic_partition)
    if summary.max_timestamp != header.max_timestamp and config.message_timestamp_type is TimestampType.CREATE_TIME:
        batch.amend(attributes=header.attributes, max_timestamp=max(summary.max_timestamp, NO_TIMESTAMP))
    if config.compression_type is None or header.codec is config.compression_type:
        return batch
    return _with_codec_of_topic(batch, config)


def _check_blocks(batch: RecordBatch) -> None:
    """Look at the compressed block before it is inflated, which takes as long as it has blocks of the codec's own."""
    header, block = batch.header, batch.buffer[BATCH_HEADER_BYTES:]
    check_framing(header.codec, block)
    require_room_for_records(header.record_count, inflated_bytes_bound(header.codec, block))


def _reads_plain_records(header: BatchHeader, config: LogConfig, latest: int) -> bool:
    """Whether a larger batch that is not compressed is walked over: the topic asks for it, or the header is wrong about
    the time, as far as it tells by itself.

    The base timestamp is that of the first record. Records without any time, and those of 1970, cost a walk.
    """
    if config.takes_plain_records_unread and 0 < header.base_timestamp <= header.max_timestamp <= latest:
        return False
    return not config.takes_plain_records_unread or config.message_timestamp_type is TimestampType.CREATE_TIME


def _refuse_records(batch: RecordBatch, config: LogConfig, now_ms: int, topic_partition: TopicPartition) -> None:
    """Refuse the batch with the names of all records that are to blame, if there are any.

    There are none where the oldest time is that of a record without one.

    Raises:
        RecordValidationError: there are.
    """
    require_keys = config.cleanup_policy.compact
    earliest, latest = _earliest_timestamp(config, now_ms), now_ms + config.timestamp_lead_ms
    without_key = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
    code = ErrorCode.INVALID_RECORD
    errors: list[RecordError] = []
    count = 0
    for index, record in enumerate(batch.records(max_bytes=decompression_limit(config.max_message_bytes))):
        if require_keys and record.key is None:
            message = without_key
        elif record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
            code = ErrorCode.INVALID_TIMESTAMP
            message = (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range."
                f" The timestamp should be within [{earliest}, {latest}]"
            )
        else:
            continue
        count += 1
        if len(errors) < MAX_RECORD_ERRORS:
            errors.append(RecordError(index, message))
    if errors:
        raise RecordValidationError(errors, count, code)


def _with_codec_of_topic(batch: RecordBatch, config: LogConfig) -> RecordBatch:
    assert config.compression_type is not None, "the topic has a codec of its own"
    limit = decompression_limit(config.max_message_bytes)
    compressed = recompress_batch(batch, config.compression_type, level=config.compression_level, max_bytes=limit)
    if (size := len(compressed)) > config.max_message_bytes:
        codec = config.compression_type.name.lower()
        raise MessageTooLarge(f"a batch of {size} bytes as {codec}; max.message.bytes is {config.max_message_bytes}")
    buffer = memoryview(bytearray(compressed))
    return RecordBatch(read_batch_header(buffer), buffer)


def _earliest_timestamp(config: LogConfig, now_ms: int) -> int:
    """Return the oldest time that a record may have.

    Without a limit of the topic it is the one whose distance to ``now_ms`` is just a long: Kafka's subtraction takes
    what is older, such as -2⁶³, for a time in the future, and refuses it unless that has no limit either.
    """
    into_past, into_future = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or into_past == into_future == LONG_MAX:
        return -LONG_MAX - 1
    return now_ms - into_past


def _is_small_and_plain(header: BatchHeader) -> bool:
    return (
        header.record_count <= CHEAP_WALK_RECORDS
        and header.batch_length <= CHEAP_WALK_BYTES
        and not header.attributes & CODEC_MASK
    )


def _inflates_to_little(batch: RecordBatch) -> bool:
    header, block = batch.header, batch.buffer[BATCH_HEADER_BYTES:]
    return (
        header.record_count <= CHEAP_WALK_RECORDS
        # A client's codec makes nothing larger; and blocks would be followed for as long as there are any.
        and len(block) <= CHEAP_WALK_BYTES
        and inflated_bytes_bound(header.codec, block, max_blocks=CHEAP_BLOCKS) <= CHEAP_WALK_BYTES
    )


def stamp_append_time(batch: RecordBatch, now_ms: int) -> None:
    """Make ``now_ms`` the time of all records of the batch."""
    batch.amend(attributes=batch.header.attributes | TIMESTAMP_TYPE_BIT, max_timestamp=now_ms)
