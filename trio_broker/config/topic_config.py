"""What one topic's settings come to: its own, over those of the broker.

``TopicConfig`` holds the effective values that storage and replication work with. It is resolved anew whenever the
topic's own settings or a broker default change.

Source: Kafka's LogConfig; the order of synonyms is that of ConfigHelper.createTopicConfigEntry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeVar, cast

import attrs

from kafka_wire.records.compression import Codec
from trio_broker.config import topic_keys
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.consistency import check_compaction_lag
from trio_broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import PRODUCER_ID_EXPIRATION_MS
from trio_broker.config.topic_keys import TOPIC_KEYS, TopicKey

T = TypeVar("T")

log = logging.getLogger(__name__)

_CODECS: Mapping[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@attrs.frozen(kw_only=True)
class TopicConfig:
    """The effective settings of one topic; each field is the topic key of the same name."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool
    cleanup_policy: frozenset[str]
    """A set of "delete" and "compact"."""
    retention_bytes: int
    """-1 is no limit."""
    retention_ms: int
    """-1 is no limit."""
    file_delete_delay_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    flush_messages: int
    flush_ms: int
    max_message_bytes: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    compression_type: Codec | None
    """The codec to store batches in; None keeps the producer's."""
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_timestamp_type: str
    """"CreateTime" or "LogAppendTime"."""
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    producer_id_expiration_ms: int
    """The broker's setting; topics have none of their own."""


def resolve(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """Return the effective settings of a topic with these ``overrides``.

    Overrides are checked before they are written; one that another version of this broker wrote and this one does not
    take counts as not set, with a warning, because a topic must come up to be given a better value.
    """

    def value(key: TopicKey[T]) -> T:
        if (text := overrides.get(key.name)) is not None:
            try:
                return key.parse(text)
            except ConfigError as error:
                log.warning("ignoring a setting of a topic: %s", error)
        return broker.get(key.broker_key)

    return TopicConfig(
        segment_bytes=value(topic_keys.SEGMENT_BYTES),
        segment_ms=value(topic_keys.SEGMENT_MS),
        segment_jitter_ms=value(topic_keys.SEGMENT_JITTER_MS),
        segment_index_bytes=value(topic_keys.SEGMENT_INDEX_BYTES),
        index_interval_bytes=value(topic_keys.INDEX_INTERVAL_BYTES),
        preallocate=value(topic_keys.PREALLOCATE),
        cleanup_policy=_as_set(value(topic_keys.CLEANUP_POLICY)),
        retention_bytes=value(topic_keys.RETENTION_BYTES),
        retention_ms=value(topic_keys.RETENTION_MS),
        file_delete_delay_ms=value(topic_keys.FILE_DELETE_DELAY_MS),
        delete_retention_ms=value(topic_keys.DELETE_RETENTION_MS),
        min_compaction_lag_ms=value(topic_keys.MIN_COMPACTION_LAG_MS),
        max_compaction_lag_ms=value(topic_keys.MAX_COMPACTION_LAG_MS),
        min_cleanable_dirty_ratio=value(topic_keys.MIN_CLEANABLE_DIRTY_RATIO),
        flush_messages=value(topic_keys.FLUSH_MESSAGES),
        flush_ms=value(topic_keys.FLUSH_MS),
        max_message_bytes=value(topic_keys.MAX_MESSAGE_BYTES),
        min_insync_replicas=value(topic_keys.MIN_INSYNC_REPLICAS),
        unclean_leader_election_enable=value(topic_keys.UNCLEAN_LEADER_ELECTION_ENABLE),
        compression_type=_CODECS[value(topic_keys.COMPRESSION_TYPE)],
        compression_gzip_level=value(topic_keys.COMPRESSION_GZIP_LEVEL),
        compression_lz4_level=value(topic_keys.COMPRESSION_LZ4_LEVEL),
        compression_zstd_level=value(topic_keys.COMPRESSION_ZSTD_LEVEL),
        message_timestamp_type=value(topic_keys.MESSAGE_TIMESTAMP_TYPE),
        message_timestamp_before_max_ms=value(topic_keys.MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
        message_timestamp_after_max_ms=value(topic_keys.MESSAGE_TIMESTAMP_AFTER_MAX_MS),
        producer_id_expiration_ms=broker.get(PRODUCER_ID_EXPIRATION_MS),
    )


def _as_set(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(words)


def check_topic_configs(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Check what a topic is about to set for itself; ``broker`` gives the rest, the built-in defaults by default.

    Raises:
        ConfigError: a key is not a topic's, a value is not valid, or values contradict each other.
    """
    values = {}
    for name, text in overrides.items():
        if (key := TOPIC_KEYS.get(name)) is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[name] = key.parse(text)

    def value(key: ConfigKey[T]) -> T:
        if key.name in values:
            return cast(T, values[key.name])
        return broker.get(TOPIC_KEYS[key.name].broker_key) if broker is not None else key.default

    check_compaction_lag(value, topic_keys.MIN_COMPACTION_LAG_MS, topic_keys.MAX_COMPACTION_LAG_MS)


def topic_entries(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe every topic key as it stands for a topic with these ``overrides``."""
    return [_entry(key, overrides.get(key.name), broker) for key in TOPIC_KEYS.values()]


def _entry(key: TopicKey[T], override: str | None, broker: BrokerConfig) -> ConfigEntry:
    synonyms = broker.synonyms(key.broker_key)
    if override is not None:
        synonyms = (ConfigSynonym(key.name, override, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
    return ConfigEntry(
        name=key.name,
        value=key.text_of(broker.get(key.broker_key)) if override is None else override,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        read_only=False,
        sensitive=key.sensitive,
        type=key.type,
        documentation=key.documentation,
        update_mode=key.update_mode,
        default=key.text_of(key.default),
    )
