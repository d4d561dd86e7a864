"""The settings of one log: segments, retention, compaction, flushing, and limits on records.

Each field is a topic key with the name of the field, and a broker key with the name in ``broker``, which has the
default for topics, as in Kafka. ``BrokerConfig.log`` has the broker's values, and ``resource_config.topic_config``
combines them with a topic's own. The config of a log may be replaced at any time and counts from the next append on.
Sizes are in bytes, times in milliseconds.

Some settings of Kafka exist in several units. The key in milliseconds has the others as fallbacks, so its field has the
effective value.

Source: Kafka's LogConfig, TopicConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

from functools import cached_property

import attrs

from kafka_wire.records.batch import TimestampType
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import MAX_RECORD_BYTES
from trio_broker.config.config_key import LONG_MAX, ConfigType, Fallback, UpdateMode, fallback, key, split_list
from trio_broker.config.log_manager_config import LOG_FLUSH_SCHEDULER_INTERVAL_MS
from trio_broker.config.validators import (
    Choice,
    at_least,
    between,
    default_or_between,
    exactly,
    minus_one_or_at_least,
    negative_or_at_least,
    optionally,
    subset_of,
    throttled_replicas,
)

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
LONG = ConfigType.LONG
MS_PER_HOUR = 3_600_000

MIN_SEGMENT_BYTES = 1 << 20
"""Kafka's minimum since 4.0 (KIP-1030): small segments need many open files. Tests set ``internal.segment.bytes``."""

MIN_INDEX_BYTES = 4
"""Kafka's minimum, although one entry takes 8 bytes: an index always has room for one entry."""

FAST_LZ4_LEVEL = 9
"""The default of ``compression.lz4.level``, with which Kafka uses the fast compressor, which has no levels."""

LOCAL_RETENTION_AS_ALL = -2
"""The value of ``local.retention.*`` that stands for the value of ``retention.*``, as in Kafka."""


@attrs.frozen
class CleanupPolicy:
    """How old records are removed: deleted by age and size, compacted by key, or both."""

    delete: bool = True
    compact: bool = False

    @classmethod
    def parse(cls, text: str) -> CleanupPolicy:
        """Return the policy of a comma-separated list.

        Raises:
            ValueError: a word is unknown.
        """
        words = tuple(dict.fromkeys(split_list(text)))  # Kafka warns of one that comes twice
        if not POLICIES.accepts(words):
            raise ValueError(f"the value must be {POLICIES.valid_values}")
        return cls(delete="delete" in words, compact="compact" in words)

    def __str__(self) -> str:
        return ",".join(word for word in ("compact", "delete") if getattr(self, word))


POLICIES = subset_of("delete", "compact")

COMPRESSION_TYPES = Choice[Codec | None](
    {
        "uncompressed": Codec.NONE,
        "zstd": Codec.ZSTD,
        "lz4": Codec.LZ4,
        "snappy": Codec.SNAPPY,
        "gzip": Codec.GZIP,
        "producer": None,
    }
)
"""``producer`` stores batches in the codec in which they were sent."""

TIMESTAMP_TYPES = Choice[TimestampType](
    {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
)

KEEP_FOR_EVER = -1
"""As a retention, by time or by size: there is none."""


def _hours_to_ms(hours: int) -> int:
    return hours * MS_PER_HOUR if hours >= 0 else -1


def _minutes_to_ms(minutes: int) -> int:
    return minutes * 60_000 if minutes >= 0 else -1


@attrs.frozen(kw_only=True)
class LogConfig:
    """The effective settings of one log; -1 is "no limit" where Kafka's is."""

    segment_bytes: int = key(
        1024**3,
        "A segment is closed before it would grow beyond this.",
        broker="log.segment.bytes", topic=True, update_mode=CLUSTER_WIDE, validator=at_least(MIN_SEGMENT_BYTES),
    )  # fmt: skip
    internal_segment_bytes: int | None = key(
        None,
        "Stands for segment.bytes in tests, which want to see segments roll; unset otherwise.",
        topic=True, internal=True, type=ConfigType.INT, update_mode=CLUSTER_WIDE, validator=optionally(at_least(1)),
    )  # fmt: skip
    segment_ms: int = key(
        168 * MS_PER_HOUR,
        "A segment is closed when its records span this long, even if it is not full.",
        broker="log.roll.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(1),
        fallbacks=(
            fallback("log.roll.hours", 168, _hours_to_ms, "log.roll.ms, in hours.", validator=at_least(1)),
        ),
    )  # fmt: skip
    segment_jitter_ms: int = key(
        0,
        "At most this much, at random, is taken off the time of a segment, lest all segments close at once.",
        broker="log.roll.jitter.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(0),
        fallbacks=(
            fallback("log.roll.jitter.hours", 0, _hours_to_ms, "log.roll.jitter.ms, in hours.", validator=at_least(0)),
        ),
    )  # fmt: skip
    segment_index_bytes: int = key(
        10 << 20,
        "A segment is closed when its offset index has grown to this.",
        broker="log.index.size.max.bytes", topic=True, update_mode=CLUSTER_WIDE, validator=at_least(MIN_INDEX_BYTES),
    )  # fmt: skip
    index_interval_bytes: int = key(
        4096,
        "About one index entry is written for this many bytes of log.",
        broker="log.index.interval.bytes", topic=True, update_mode=CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    preallocate: bool = key(
        False,
        "Whether a new segment file is given its full size at once.",
        broker="log.preallocate", topic=True, update_mode=CLUSTER_WIDE,
    )  # fmt: skip
    cleanup_policy: CleanupPolicy = key(
        CleanupPolicy(),
        "What happens to old segments: delete removes them, compact keeps the last record of each key.",
        broker="log.cleanup.policy", topic=True, type=ConfigType.LIST, update_mode=CLUSTER_WIDE,
        parser=CleanupPolicy.parse, formatter=str, validator=attrs.evolve(POLICIES, accepts=lambda policy: True),
    )  # fmt: skip
    retention_bytes: int = key(
        -1,
        "A partition larger than this loses its oldest segments; -1 is no limit.",
        broker="log.retention.bytes", topic=True, type=LONG, update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )  # fmt: skip
    retention_ms: int = key(
        168 * MS_PER_HOUR,
        "Segments whose newest record is older than this are removed; -1 is never.",
        broker="log.retention.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=minus_one_or_at_least(1),
        topic_validator=at_least(-1),
        acts_on_rates=False,
        fallbacks=(
            # Not 0, as log.retention.ms is not: it would delete all records.
            fallback(
                "log.retention.minutes", None, _minutes_to_ms, "log.retention.ms, in minutes.",
                validator=negative_or_at_least(1),
            ),
            fallback(
                "log.retention.hours", 168, _hours_to_ms, "log.retention.ms, in hours.",
                validator=negative_or_at_least(1),
            ),
        ),
    )  # fmt: skip
    file_delete_delay_ms: int = key(
        60_000,
        "How long a removed segment's files stay on the disk, for readers that still have them open.",
        broker="log.segment.delete.delay.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(0),
        acts_on_rates=False,
    )  # fmt: skip
    delete_retention_ms: int = key(
        24 * MS_PER_HOUR,
        "How long compaction keeps tombstones and transaction markers.",
        broker="log.cleaner.delete.retention.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE,
        validator=at_least(0),
        acts_on_rates=False,
    )  # fmt: skip
    min_compaction_lag_ms: int = key(
        0,
        "Records younger than this are not compacted.",
        broker="log.cleaner.min.compaction.lag.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE,
        validator=at_least(0),
    )  # fmt: skip
    max_compaction_lag_ms: int = key(
        LONG_MAX,
        "Records older than this are compacted even if little would be won.",
        broker="log.cleaner.max.compaction.lag.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE,
        validator=at_least(1),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = key(
        0.5,
        "The share of a log that must be new before it is compacted.",
        broker="log.cleaner.min.cleanable.ratio", topic=True, update_mode=CLUSTER_WIDE, validator=between(0.0, 1.0),
    )  # fmt: skip
    flush_messages: int = key(
        LONG_MAX,
        "A partition is synced to disk after this many records.",
        broker="log.flush.interval.messages", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(1),
    )  # fmt: skip
    flush_ms: int = key(
        LONG_MAX,
        "A partition is synced to disk when its oldest unsynced record has waited this long.",
        broker="log.flush.interval.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(0),
        fallbacks=(Fallback(LOG_FLUSH_SCHEDULER_INTERVAL_MS, lambda value: value),),
    )  # fmt: skip
    max_message_bytes: int = key(
        1024 * 1024 + 12,
        "The largest record batch, in bytes: as it comes, and as it is stored where the topic has a codec of its own.",
        broker="message.max.bytes", topic=True, update_mode=CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    max_decompressed_message_bytes: int = key(
        MAX_RECORD_BYTES,
        "The largest record of a compressed batch, in bytes, once it is decompressed; asked when a producer sends it,"
        " and of no record that is stored already. The batch as a whole may grow to 64 MiB, or to four times"
        " max.message.bytes where that is more.",
        topic=True, update_mode=CLUSTER_WIDE, validator=between(1, MAX_RECORD_BYTES),
    )  # fmt: skip
    min_insync_replicas: int = key(
        1,
        "How many replicas must be in sync before a produce with acks=all is accepted.",
        topic=True, update_mode=CLUSTER_WIDE, validator=at_least(1),
    )  # fmt: skip
    unclean_leader_election_enable: bool = key(
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of records.",
        topic=True, update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )  # fmt: skip
    compression_type: Codec | None = key(
        None,
        "The codec that batches are stored in: producer keeps what the producer chose.",
        topic=True, update_mode=CLUSTER_WIDE, **COMPRESSION_TYPES.attributes,
    )  # fmt: skip
    compression_gzip_level: int = key(
        -1,
        "Level of gzip, where the broker compresses.",
        topic=True, update_mode=CLUSTER_WIDE, validator=default_or_between(-1, 1, 9),
    )  # fmt: skip
    compression_lz4_level: int = key(
        FAST_LZ4_LEVEL,
        "Level of lz4, where the broker compresses.",
        topic=True, update_mode=CLUSTER_WIDE, validator=between(1, 17),
    )  # fmt: skip
    compression_zstd_level: int = key(
        3,
        "Level of zstd, where the broker compresses.",
        topic=True, update_mode=CLUSTER_WIDE, validator=between(-131_072, 22),
    )  # fmt: skip
    message_timestamp_type: TimestampType = key(
        TimestampType.CREATE_TIME,
        "Whose clock dates the records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        broker="log.message.timestamp.type", topic=True, type=ConfigType.STRING, update_mode=CLUSTER_WIDE,
        **TIMESTAMP_TYPES.attributes,
    )  # fmt: skip
    message_timestamp_before_max_ms: int = key(
        LONG_MAX,
        "A record whose timestamp is older than this is refused.",
        broker="log.message.timestamp.before.max.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE,
        validator=at_least(0),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = key(
        MS_PER_HOUR,
        "A record whose timestamp is further in the future than this is refused.",
        broker="log.message.timestamp.after.max.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE,
        validator=at_least(0),
    )  # fmt: skip
    producer_id_expiration_ms: int = key(
        86_400_000,
        "How long the last batches of a silent producer are remembered, to refuse duplicates.",
        update_mode=CLUSTER_WIDE, validator=at_least(1),
        acts_on_rates=False,
    )  # fmt: skip

    leader_replication_throttled_replicas: tuple[str, ...] = key(
        (), "Replicas whose leader side is throttled, as partition:broker or *.", broker="", topic=True,
        validator=throttled_replicas(),
    )  # fmt: skip
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        (), "Replicas whose follower side is throttled, as partition:broker or *.", broker="", topic=True,
        validator=throttled_replicas(),
    )  # fmt: skip

    # Tiering, share groups: taken with Kafka's defaults, since tools and Streams set them;
    # this broker keeps all segments locally, copies none, and has no share groups, so nothing reads them.
    remote_storage_enable: bool = key(
        False,
        "Whether segments are tiered; there is no remote storage, so only false is taken.",
        broker="", topic=True, validator=exactly(False, "false: this broker has no remote storage"),
        acts_on_rates=False,
    )  # fmt: skip
    local_retention_ms: int = key(
        LOCAL_RETENTION_AS_ALL,
        "How long segments of a tiered topic stay local; -2 is retention.ms.",
        broker="log.local.retention.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(-2),
        acts_on_rates=False,
    )  # fmt: skip
    local_retention_bytes: int = key(
        LOCAL_RETENTION_AS_ALL,
        "How much of a tiered topic's partition stays local; -2 is retention.bytes.",
        broker="log.local.retention.bytes", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(-2),
        acts_on_rates=False,
    )  # fmt: skip
    remote_copy_lag_ms: int = key(
        0,
        "How long a tiered topic's segments may wait to be copied.",
        broker="log.remote.copy.lag.ms", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(-1),
        acts_on_rates=False,
    )  # fmt: skip
    remote_copy_lag_bytes: int = key(
        -1,
        "How many bytes of a tiered topic may wait to be copied.",
        broker="log.remote.copy.lag.bytes", topic=True, type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(-1),
        acts_on_rates=False,
    )  # fmt: skip
    errors_deadletterqueue_group_enable: bool = key(
        False,
        "Whether share groups may write what they could not process to this topic; there are no share groups here.",
        broker="", topic=True,
        acts_on_rates=False,
    )  # fmt: skip
    remote_log_copy_disable: bool = key(
        False, "Whether a tiered topic's segments are no longer copied.", broker="", topic=True, acts_on_rates=False
    )
    remote_log_delete_on_disable: bool = key(
        False,
        "Whether a tiered topic's remote segments go when tiering is turned off.",
        broker="",
        topic=True,
        acts_on_rates=False,
    )

    # Computed once: each append reads them.
    @cached_property
    def segment_size(self) -> int:
        """The size, in bytes, that a segment may grow to."""
        return self.internal_segment_bytes or self.segment_bytes

    @cached_property
    def max_segment_ms(self) -> int:
        """The age at which a segment is closed, in milliseconds."""
        # The active segment is never compacted, so it is closed early enough for ``max.compaction.lag.ms``.
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.cleanup_policy.compact else self.segment_ms

    @cached_property
    def refuses_old_timestamps(self) -> bool:
        """Whether a record may be too old to be appended."""
        is_bounded = self.message_timestamp_before_max_ms != LONG_MAX
        return is_bounded and self.message_timestamp_type is TimestampType.CREATE_TIME

    @cached_property
    def takes_plain_records_unread(self) -> bool:
        """Whether nothing that is set here needs a look at each record of an uncompressed batch, or changes one."""
        keeps_codec = self.compression_type in (None, Codec.NONE)
        return keeps_codec and not (self.cleanup_policy.compact or self.refuses_old_timestamps)

    @cached_property
    def timestamp_lead_ms(self) -> int:
        """How far in the future the timestamp of a batch may be."""
        if self.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            return LONG_MAX
        return self.message_timestamp_after_max_ms

    @property
    def compression_level(self) -> int | None:
        """The level on the scale of ``compression_type``, None for the codec's own choice."""
        match self.compression_type:
            case Codec.GZIP:
                return self.compression_gzip_level
            case Codec.LZ4:
                return None if self.compression_lz4_level == FAST_LZ4_LEVEL else self.compression_lz4_level
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None
