"""The keys that a topic may set for itself. Each has a broker key that gives the default, as in Kafka.

Type, limits and default are the broker key's; only the name and the help differ. A change takes effect at once, on
every partition of the topic.

Source: Kafka's TopicConfig and ServerTopicConfigSynonyms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import attrs

from trio_broker.config import keys
from trio_broker.config.config_key import ConfigKey, UpdateMode

T = TypeVar("T")


@attrs.frozen(eq=False, kw_only=True)
class TopicKey(ConfigKey[T], Generic[T]):
    """A setting of one topic."""

    broker_key: ConfigKey[T]
    """The server synonym: gives the value where the topic has none."""


def _topic_key(name: str, broker_key: ConfigKey[T], documentation: str) -> TopicKey[T]:
    return TopicKey(
        name=name,
        type=broker_key.type,
        default=broker_key.default,
        validator=broker_key.validator,
        update_mode=UpdateMode.CLUSTER_WIDE,
        documentation=documentation,
        broker_key=broker_key,
    )


SEGMENT_BYTES = _topic_key(
    "segment.bytes", keys.LOG_SEGMENT_BYTES, "A segment is closed before it would grow beyond this."
)
SEGMENT_MS = _topic_key("segment.ms", keys.LOG_ROLL_MS, "A segment is closed when its records span this long.")
SEGMENT_JITTER_MS = _topic_key(
    "segment.jitter.ms", keys.LOG_ROLL_JITTER_MS, "At most this much, at random, is taken off segment.ms."
)
SEGMENT_INDEX_BYTES = _topic_key(
    "segment.index.bytes", keys.LOG_INDEX_SIZE_MAX_BYTES, "A segment is closed when its offset index has grown to this."
)
INDEX_INTERVAL_BYTES = _topic_key(
    "index.interval.bytes",
    keys.LOG_INDEX_INTERVAL_BYTES,
    "About one index entry is written for this many bytes of log.",
)
PREALLOCATE = _topic_key(
    "preallocate", keys.LOG_PREALLOCATE, "Whether a new segment file is given its full size at once."
)
CLEANUP_POLICY = _topic_key(
    "cleanup.policy",
    keys.LOG_CLEANUP_POLICY,
    "What happens to old segments: delete removes them, compact keeps the last record of each key.",
)
RETENTION_BYTES = _topic_key(
    "retention.bytes",
    keys.LOG_RETENTION_BYTES,
    "A partition larger than this loses its oldest segments; -1 is no limit.",
)
RETENTION_MS = _topic_key(
    "retention.ms", keys.LOG_RETENTION_MS, "Segments whose newest record is older than this are removed; -1 is never."
)
FILE_DELETE_DELAY_MS = _topic_key(
    "file.delete.delay.ms", keys.LOG_SEGMENT_DELETE_DELAY_MS, "How long a removed segment's files stay on the disk."
)
DELETE_RETENTION_MS = _topic_key(
    "delete.retention.ms",
    keys.LOG_CLEANER_DELETE_RETENTION_MS,
    "How long compaction keeps tombstones and transaction markers.",
)
MIN_COMPACTION_LAG_MS = _topic_key(
    "min.compaction.lag.ms", keys.LOG_CLEANER_MIN_COMPACTION_LAG_MS, "Records younger than this are not compacted."
)
MAX_COMPACTION_LAG_MS = _topic_key(
    "max.compaction.lag.ms",
    keys.LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    "Records older than this are compacted even if little would be won.",
)
MIN_CLEANABLE_DIRTY_RATIO = _topic_key(
    "min.cleanable.dirty.ratio",
    keys.LOG_CLEANER_MIN_CLEANABLE_RATIO,
    "The share of a log that must be new before it is compacted.",
)
FLUSH_MESSAGES = _topic_key(
    "flush.messages", keys.LOG_FLUSH_INTERVAL_MESSAGES, "A partition is synced to disk after this many records."
)
FLUSH_MS = _topic_key(
    "flush.ms",
    keys.LOG_FLUSH_INTERVAL_MS,
    "A partition is synced to disk when its oldest unsynced record has waited this long.",
)
MAX_MESSAGE_BYTES = _topic_key(
    "max.message.bytes", keys.MESSAGE_MAX_BYTES, "The largest record batch that is accepted, compressed as it comes."
)
MIN_INSYNC_REPLICAS = _topic_key(
    "min.insync.replicas",
    keys.MIN_INSYNC_REPLICAS,
    "How many replicas must be in sync before a produce with acks=all is accepted.",
)
UNCLEAN_LEADER_ELECTION_ENABLE = _topic_key(
    "unclean.leader.election.enable",
    keys.UNCLEAN_LEADER_ELECTION_ENABLE,
    "Whether a replica that is not in sync may lead when no other is left, at the price of records.",
)
COMPRESSION_TYPE = _topic_key(
    "compression.type",
    keys.COMPRESSION_TYPE,
    "The codec that batches are stored in: producer keeps what the producer chose.",
)
COMPRESSION_GZIP_LEVEL = _topic_key(
    "compression.gzip.level", keys.COMPRESSION_GZIP_LEVEL, "Level of gzip, where the broker compresses."
)
COMPRESSION_LZ4_LEVEL = _topic_key(
    "compression.lz4.level", keys.COMPRESSION_LZ4_LEVEL, "Level of lz4, where the broker compresses."
)
COMPRESSION_ZSTD_LEVEL = _topic_key(
    "compression.zstd.level", keys.COMPRESSION_ZSTD_LEVEL, "Level of zstd, where the broker compresses."
)
MESSAGE_TIMESTAMP_TYPE = _topic_key(
    "message.timestamp.type",
    keys.LOG_MESSAGE_TIMESTAMP_TYPE,
    "Whose clock dates the records: the producer's (CreateTime) or the broker's (LogAppendTime).",
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _topic_key(
    "message.timestamp.before.max.ms",
    keys.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    "A record whose timestamp is older than this is refused.",
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _topic_key(
    "message.timestamp.after.max.ms",
    keys.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    "A record whose timestamp is further in the future than this is refused.",
)

TOPIC_KEYS: Mapping[str, TopicKey[Any]] = {
    key.name: key for key in tuple(globals().values()) if isinstance(key, TopicKey)
}
"""The keys by name, in the order in which they are defined."""
