"""What a log needs to know of its topic's configuration, with Kafka's defaults.

The configuration floor resolves topic overrides over broker defaults into one of these; a log's ``config`` may be
replaced at any time and counts from the next append on. Field names are Kafka's topic keys in snake case.

Source: Kafka's LogConfig and TopicConfig.
"""

from __future__ import annotations

import attrs

from kafka_wire.records.batch import TimestampType
from kafka_wire.records.compression import Codec

MAX_INT64 = 2**63 - 1
"""Kafka's way to say "for ever" in milliseconds."""

DAY_MS = 24 * 60 * 60 * 1000


@attrs.frozen
class CleanupPolicy:
    """What may happen to old records: deleted by age and size, compacted by key, or both."""

    delete: bool = True
    compact: bool = False


@attrs.frozen
class LogConfig:
    """The effective configuration of one log. Sizes in bytes, times in milliseconds; -1 is "no limit" where Kafka's is.

    ``compression_type`` None is Kafka's ``producer``: batches are stored as they were sent. ``compression_level`` is on
    the scale of that codec, None for our choice.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: CleanupPolicy = CleanupPolicy()
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: Codec | None = None
    compression_level: int | None = None
    file_delete_delay_ms: int = 60_000
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    producer_id_expiration_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    preallocate: bool = False

    @property
    def max_segment_ms(self) -> int:
        """How long a segment may be written to: a compacted one is sealed early enough to be cleaned in time."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.cleanup_policy.compact else self.segment_ms
