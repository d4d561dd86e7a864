"""A topic's own settings over the broker's."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.records.compression import Codec
from trio_broker.config.broker_config import BrokerConfig, ConfigScope
from trio_broker.config.entries import ConfigSource, ConfigSynonym
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.topic_config import TopicConfig, check_topic_configs, resolve, topic_entries
from trio_broker.config.topic_keys import TOPIC_KEYS


def entry(overrides, broker, name):
    return next(item for item in topic_entries(overrides, broker) if item.name == name)


def test_a_topic_without_settings_has_the_brokers():
    config = resolve({}, BrokerConfig({"log.retention.minutes": "5", "message.max.bytes": "99"}))
    assert config.retention_ms == 300_000
    assert config.max_message_bytes == 99


def test_a_topics_own_setting_wins():
    broker = BrokerConfig()
    broker.set_dynamic(ConfigScope.BROKER, {"log.retention.ms": "5"})
    assert resolve({}, broker).retention_ms == 5
    assert resolve({"retention.ms": "6"}, broker).retention_ms == 6


def test_an_override_that_is_not_valid_any_more_counts_as_not_set(caplog):
    assert resolve({"retention.ms": "never", "gone.key": "1"}, BrokerConfig()).retention_ms == 604_800_000
    assert "retention.ms: 'never' is refused" in caplog.text


def test_words_become_values():
    config = resolve({"compression.type": "zstd", "cleanup.policy": "compact,delete"}, BrokerConfig())
    assert config.compression_type is Codec.ZSTD
    assert config.cleanup_policy == {"compact", "delete"}
    assert resolve({}, BrokerConfig()).compression_type is None


def test_every_topic_key_has_its_field_and_its_broker_key():
    fields = {field.name for field in attrs.fields(TopicConfig)} - {"producer_id_expiration_ms"}
    assert {name.replace(".", "_") for name in TOPIC_KEYS} == fields
    assert all(BROKER_KEYS[key.broker_key.name] is key.broker_key for key in TOPIC_KEYS.values())


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.ms": "soon"}, "retention.ms: 'soon' is refused"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "must not be above"),
    ],
)
def test_bad_topic_settings_are_refused(overrides, reason):
    with pytest.raises(ConfigError, match=reason):
        check_topic_configs(overrides)


def test_a_topic_setting_may_not_contradict_the_brokers_other_one():
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "10"})
    check_topic_configs({"min.compaction.lag.ms": "11"})
    with pytest.raises(ConfigError, match="must not be above"):
        check_topic_configs({"min.compaction.lag.ms": "11"}, broker)


def test_a_topic_entry_names_the_server_synonyms_behind_it():
    described = entry({"retention.ms": "6"}, BrokerConfig({"log.retention.hours": "2"}), "retention.ms")
    assert (described.value, described.source) == ("6", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert described.synonyms == (
        ConfigSynonym("retention.ms", "6", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigSynonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_topic_entry_without_override_shows_the_effective_value_in_the_topics_unit():
    described = entry({}, BrokerConfig({"log.retention.hours": "2"}), "retention.ms")
    assert (described.value, described.source) == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)
    assert not described.read_only
