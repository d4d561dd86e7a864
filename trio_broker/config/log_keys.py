"""The keys of the log: segments, retention, flushing, and what records may be. Most are the defaults of topic keys.

Names and defaults are Kafka's. Where a setting has several names for several units, the one in milliseconds carries the
others as fallbacks, so that whoever reads it gets the effective value.

Source: Kafka's ServerLogConfigs, LogConfig, CleanerConfig and ReplicationConfigs.
"""

from __future__ import annotations

from trio_broker.config.config_key import DOUBLE_MAX, LONG_MAX, ConfigKey, ConfigType, Fallback, UpdateMode
from trio_broker.config.validators import (
    at_least,
    between,
    default_or_between,
    minus_one_or_at_least,
    one_of,
    subset_of,
)

MS_PER_HOUR = 3_600_000

MIN_SEGMENT_BYTES = 1024
"""Kafka asks for 1 MiB since 4.0, for the sake of file handles; demonstrations and tests want to see segments roll."""

MIN_DEDUPE_BUFFER_BYTES = 1 << 20
"""Kafka's minimum for each thread; ours holds 39,000 keys."""

MIN_INDEX_BYTES = 4
"""Kafka's minimum; an index always takes one entry."""


def _hours_to_ms(hours: int) -> int:
    return hours * MS_PER_HOUR if hours >= 0 else -1


def _minutes_to_ms(minutes: int) -> int:
    return minutes * 60_000 if minutes >= 0 else -1


def _unchanged(value: int) -> int:
    return value


# --- Segments ---

LOG_SEGMENT_BYTES = ConfigKey[int](
    name="log.segment.bytes",
    type=ConfigType.INT,
    default=1024**3,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(MIN_SEGMENT_BYTES),
    documentation="A segment is closed before it would grow beyond this.",
)

LOG_ROLL_HOURS = ConfigKey[int](
    name="log.roll.hours",
    type=ConfigType.INT,
    default=168,
    validator=at_least(1),
    documentation="log.roll.ms, in hours.",
)

LOG_ROLL_MS = ConfigKey[int](
    name="log.roll.ms",
    type=ConfigType.LONG,
    default=168 * MS_PER_HOUR,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    fallbacks=(Fallback(LOG_ROLL_HOURS, _hours_to_ms),),
    documentation="A segment is closed when its records span this long, even if it is not full.",
)

LOG_ROLL_JITTER_HOURS = ConfigKey[int](
    name="log.roll.jitter.hours",
    type=ConfigType.INT,
    default=0,
    validator=at_least(0),
    documentation="log.roll.jitter.ms, in hours.",
)

LOG_ROLL_JITTER_MS = ConfigKey[int](
    name="log.roll.jitter.ms",
    type=ConfigType.LONG,
    default=0,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    fallbacks=(Fallback(LOG_ROLL_JITTER_HOURS, _hours_to_ms),),
    documentation="At most this much, at random, is taken off log.roll.ms, lest all segments close at once.",
)

LOG_INDEX_SIZE_MAX_BYTES = ConfigKey[int](
    name="log.index.size.max.bytes",
    type=ConfigType.INT,
    default=10 * 1024 * 1024,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(MIN_INDEX_BYTES),
    documentation="A segment is closed when its offset index has grown to this.",
)

LOG_INDEX_INTERVAL_BYTES = ConfigKey[int](
    name="log.index.interval.bytes",
    type=ConfigType.INT,
    default=4096,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="About one index entry is written for this many bytes of log.",
)

LOG_PREALLOCATE = ConfigKey[bool](
    name="log.preallocate",
    type=ConfigType.BOOLEAN,
    default=False,
    update_mode=UpdateMode.CLUSTER_WIDE,
    documentation="Whether a new segment file is given its full size at once.",
)

# --- Retention ---

LOG_CLEANUP_POLICY = ConfigKey[tuple[str, ...]](
    name="log.cleanup.policy",
    type=ConfigType.LIST,
    default=("delete",),
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=subset_of("delete", "compact"),
    documentation="What happens to old segments: delete removes them, compact keeps the last record of each key.",
)

LOG_RETENTION_BYTES = ConfigKey[int](
    name="log.retention.bytes",
    type=ConfigType.LONG,
    default=-1,
    update_mode=UpdateMode.CLUSTER_WIDE,
    documentation="A partition larger than this loses its oldest segments; -1 is no limit.",
)

LOG_RETENTION_HOURS = ConfigKey[int](
    name="log.retention.hours",
    type=ConfigType.INT,
    default=168,
    documentation="log.retention.ms, in hours.",
)

LOG_RETENTION_MINUTES = ConfigKey[int | None](
    name="log.retention.minutes",
    type=ConfigType.INT,
    default=None,
    documentation="log.retention.ms, in minutes.",
)

LOG_RETENTION_MS = ConfigKey[int](
    name="log.retention.ms",
    type=ConfigType.LONG,
    default=168 * MS_PER_HOUR,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=minus_one_or_at_least(1),
    fallbacks=(Fallback(LOG_RETENTION_MINUTES, _minutes_to_ms), Fallback(LOG_RETENTION_HOURS, _hours_to_ms)),
    documentation="Segments whose newest record is older than this are removed; -1 is never.",
)

LOG_RETENTION_CHECK_INTERVAL_MS = ConfigKey[int](
    name="log.retention.check.interval.ms",
    type=ConfigType.LONG,
    default=300_000,
    validator=at_least(1),
    documentation="How often old segments are looked for.",
)

LOG_INITIAL_TASK_DELAY_MS = ConfigKey[int](
    name="log.initial.task.delay.ms",
    type=ConfigType.LONG,
    default=30_000,
    validator=at_least(0),
    documentation="How long after the start the log's background tasks run for the first time.",
)

LOG_SEGMENT_DELETE_DELAY_MS = ConfigKey[int](
    name="log.segment.delete.delay.ms",
    type=ConfigType.LONG,
    default=60_000,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="How long a removed segment's files stay on the disk, for readers that still have them open.",
)

LOG_CLEANER_DELETE_RETENTION_MS = ConfigKey[int](
    name="log.cleaner.delete.retention.ms",
    type=ConfigType.LONG,
    default=24 * MS_PER_HOUR,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="How long compaction keeps tombstones and transaction markers.",
)

LOG_CLEANER_MIN_COMPACTION_LAG_MS = ConfigKey[int](
    name="log.cleaner.min.compaction.lag.ms",
    type=ConfigType.LONG,
    default=0,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="Records younger than this are not compacted.",
)

LOG_CLEANER_MAX_COMPACTION_LAG_MS = ConfigKey[int](
    name="log.cleaner.max.compaction.lag.ms",
    type=ConfigType.LONG,
    default=LONG_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    documentation="Records older than this are compacted even if little would be won.",
)

LOG_CLEANER_MIN_CLEANABLE_RATIO = ConfigKey[float](
    name="log.cleaner.min.cleanable.ratio",
    type=ConfigType.DOUBLE,
    default=0.5,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=between(0.0, 1.0),
    documentation="The share of a log that must be new before it is compacted.",
)

# --- Compaction ---

LOG_CLEANER_ENABLE = ConfigKey[bool](
    name="log.cleaner.enable",
    type=ConfigType.BOOLEAN,
    default=True,
    documentation="Whether topics whose cleanup.policy says so are compacted; __consumer_offsets grows without that.",
)

LOG_CLEANER_THREADS = ConfigKey[int](
    name="log.cleaner.threads",
    type=ConfigType.INT,
    default=1,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    thread_pool=True,
    documentation="How many partitions are compacted at the same time.",
)

LOG_CLEANER_DEDUPE_BUFFER_SIZE = ConfigKey[int](
    name="log.cleaner.dedupe.buffer.size",
    type=ConfigType.LONG,
    default=128 * 1024 * 1024,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(MIN_DEDUPE_BUFFER_BYTES),
    documentation="Memory for the newest offsets of keys, 24 bytes for each, over all threads of log.cleaner.threads.",
)

LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = ConfigKey[float](
    name="log.cleaner.io.buffer.load.factor",
    type=ConfigType.DOUBLE,
    default=0.9,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=between(0.1, 0.95),
    documentation="How full log.cleaner.dedupe.buffer.size may get: fuller takes more keys and more time for each.",
)

LOG_CLEANER_IO_BUFFER_SIZE = ConfigKey[int](
    name="log.cleaner.io.buffer.size",
    type=ConfigType.INT,
    default=512 * 1024,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1024),
    documentation="Half of it is read, and half written, at a time, over all threads of log.cleaner.threads.",
)

LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = ConfigKey[float](
    name="log.cleaner.io.max.bytes.per.second",
    type=ConfigType.DOUBLE,
    default=DOUBLE_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1024.0),
    documentation="Compaction reads and writes no more than this, on average and all together.",
)

LOG_CLEANER_BACKOFF_MS = ConfigKey[int](
    name="log.cleaner.backoff.ms",
    type=ConfigType.LONG,
    default=15_000,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    documentation="How long after nothing was found to compact it is looked for again.",
)

# --- Flushing ---

LOG_FLUSH_INTERVAL_MESSAGES = ConfigKey[int](
    name="log.flush.interval.messages",
    type=ConfigType.LONG,
    default=LONG_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    documentation="A partition is synced to disk after this many records.",
)

LOG_FLUSH_SCHEDULER_INTERVAL_MS = ConfigKey[int](
    name="log.flush.scheduler.interval.ms",
    type=ConfigType.LONG,
    default=LONG_MAX,
    documentation="How often the flusher looks for partitions that are due by log.flush.interval.ms.",
)

LOG_FLUSH_INTERVAL_MS = ConfigKey[int](
    name="log.flush.interval.ms",
    type=ConfigType.LONG,
    default=LONG_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    fallbacks=(Fallback(LOG_FLUSH_SCHEDULER_INTERVAL_MS, _unchanged),),
    documentation="A partition is synced to disk when its oldest unsynced record has waited this long.",
)

LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey[int](
    name="log.flush.offset.checkpoint.interval.ms",
    type=ConfigType.INT,
    default=60_000,
    validator=at_least(0),
    documentation="How often the recovery points and log start offsets are written down.",
)

REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = ConfigKey[int](
    name="replica.high.watermark.checkpoint.interval.ms",
    type=ConfigType.LONG,
    default=5_000,
    validator=at_least(1),
    documentation="How often the high watermarks are written down.",
)

# --- Records ---

MESSAGE_MAX_BYTES = ConfigKey[int](
    name="message.max.bytes",
    type=ConfigType.INT,
    default=1024 * 1024 + 12,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="The largest record batch that is accepted, compressed as it comes.",
)

MIN_INSYNC_REPLICAS = ConfigKey[int](
    name="min.insync.replicas",
    type=ConfigType.INT,
    default=1,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    documentation="How many replicas must be in sync before a produce with acks=all is accepted.",
)

UNCLEAN_LEADER_ELECTION_ENABLE = ConfigKey[bool](
    name="unclean.leader.election.enable",
    type=ConfigType.BOOLEAN,
    default=False,
    update_mode=UpdateMode.CLUSTER_WIDE,
    documentation="Whether a replica that is not in sync may lead when no other is left, at the price of records.",
)

COMPRESSION_TYPE = ConfigKey[str](
    name="compression.type",
    type=ConfigType.STRING,
    default="producer",
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    documentation="The codec that batches are stored in: producer keeps what the producer chose.",
)

COMPRESSION_GZIP_LEVEL = ConfigKey[int](
    name="compression.gzip.level",
    type=ConfigType.INT,
    default=-1,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=default_or_between(-1, 1, 9),
    documentation="Level of gzip, where the broker compresses.",
)

COMPRESSION_LZ4_LEVEL = ConfigKey[int](
    name="compression.lz4.level",
    type=ConfigType.INT,
    default=9,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=between(1, 17),
    documentation="Level of lz4, where the broker compresses.",
)

COMPRESSION_ZSTD_LEVEL = ConfigKey[int](
    name="compression.zstd.level",
    type=ConfigType.INT,
    default=3,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=between(-131_072, 22),
    documentation="Level of zstd, where the broker compresses.",
)

LOG_MESSAGE_TIMESTAMP_TYPE = ConfigKey[str](
    name="log.message.timestamp.type",
    type=ConfigType.STRING,
    default="CreateTime",
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=one_of("CreateTime", "LogAppendTime"),
    documentation="Whose clock dates the records: the producer's (CreateTime) or the broker's (LogAppendTime).",
)

LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = ConfigKey[int](
    name="log.message.timestamp.before.max.ms",
    type=ConfigType.LONG,
    default=LONG_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="A record whose timestamp is older than this is refused.",
)

LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = ConfigKey[int](
    name="log.message.timestamp.after.max.ms",
    type=ConfigType.LONG,
    default=MS_PER_HOUR,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="A record whose timestamp is further in the future than this is refused.",
)
