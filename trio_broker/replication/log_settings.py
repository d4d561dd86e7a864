"""From a topic's effective settings to what its logs need to know.

Configuration and storage stand on different floors and know nothing of each other; this is where they meet.
"""

from __future__ import annotations

from kafka_wire.records.batch import TimestampType
from kafka_wire.records.compression import Codec
from trio_broker.config.topic_config import TopicConfig
from trio_broker.storage.log_config import CleanupPolicy, LogConfig

FAST_LZ4_LEVEL = 9
"""The default of ``compression.lz4.level`` is Kafka's way to ask for the fast compressor, which has no levels."""

TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


def log_config(topic: TopicConfig) -> LogConfig:
    """The settings of ``topic`` in storage's terms."""
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        index_interval_bytes=topic.index_interval_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        cleanup_policy=CleanupPolicy(
            delete="delete" in topic.cleanup_policy, compact="compact" in topic.cleanup_policy
        ),
        max_message_bytes=topic.max_message_bytes,
        message_timestamp_type=TIMESTAMP_TYPES[topic.message_timestamp_type],
        message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        compression_type=topic.compression_type,
        compression_level=compression_level(topic),
        file_delete_delay_ms=topic.file_delete_delay_ms,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        producer_id_expiration_ms=topic.producer_id_expiration_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        preallocate=topic.preallocate,
    )


def compression_level(topic: TopicConfig) -> int | None:
    """The level that goes with the topic's codec, None for the codec's own choice."""
    match topic.compression_type:
        case Codec.GZIP:
            return topic.compression_gzip_level
        case Codec.LZ4:
            return None if topic.compression_lz4_level == FAST_LZ4_LEVEL else topic.compression_lz4_level
        case Codec.ZSTD:
            return topic.compression_zstd_level
        case _:
            return None
