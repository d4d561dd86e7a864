"""A topic's own settings over the broker's."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.records.compression import Codec
from trio_broker.config.broker_config import BrokerConfig, load_broker_config
from trio_broker.config.entries import ConfigScope, ConfigSource, ConfigSynonym
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.config.resource_config import (
    check_group_configs,
    check_topic_configs,
    group_config,
    group_entries,
    topic_config,
    topic_entries,
)
from trio_broker.config.static_settings import SettingsFile


def entry(overrides, broker, name):
    return next(item for item in topic_entries(overrides, broker) if item.name == name)


def test_a_topic_without_settings_has_the_brokers():
    config = topic_config({}, BrokerConfig({"log.retention.minutes": "5", "message.max.bytes": "99"}))
    assert config.retention_ms == 300_000
    assert config.max_message_bytes == 99


def test_a_topics_own_setting_wins():
    broker = BrokerConfig()
    broker.set_dynamic(ConfigScope.BROKER, {"log.retention.ms": "5"})
    assert topic_config({}, broker).retention_ms == 5
    assert topic_config({"retention.ms": "6"}, broker).retention_ms == 6


def test_an_override_that_is_not_valid_any_more_counts_as_not_set(caplog):
    assert topic_config({"retention.ms": "never", "gone.key": "1"}, BrokerConfig()).retention_ms == 604_800_000
    assert "retention.ms: 'never' is refused" in caplog.text


def test_an_override_above_the_largest_value_counts_as_that(caplog):
    assert topic_config({"compression.zstd.level": "23"}, BrokerConfig()).compression_zstd_level == 22
    assert "its largest value 22 counts" in caplog.text


def test_words_become_values():
    config = topic_config({"compression.type": "zstd", "cleanup.policy": "compact,delete"}, BrokerConfig())
    assert config.compression_type is Codec.ZSTD
    assert config.cleanup_policy == CleanupPolicy(delete=True, compact=True)
    assert topic_config({}, BrokerConfig()).compression_type is None


def test_every_topic_key_is_a_field_and_its_broker_key_is_in_the_table():
    fields = {field.name for field in attrs.fields(LogConfig)}
    assert {name.replace(".", "_") for name in TOPIC_KEYS} == fields - {"producer_id_expiration_ms"}
    assert all(BROKER_KEYS[own.name] is own for key in TOPIC_KEYS.values() if (own := key.broker_key) is not None)


@pytest.mark.parametrize(
    "name", ["retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", "remote.storage.enable"]
)
def test_a_default_without_a_broker_key_of_its_own_has_no_synonym(name):
    """What Kafka 4.4.0 answers for a topic of a broker with default settings."""
    described = entry({}, BrokerConfig(), name)
    assert (described.source, described.synonyms) == (ConfigSource.DEFAULT_CONFIG, ())


def test_a_topic_may_keep_nothing_and_the_broker_as_a_whole_may_not():
    """As in Kafka: ``retention.ms=0`` is how a topic is purged."""
    assert topic_config({"retention.ms": "0"}, BrokerConfig()).retention_ms == 0
    assert TOPIC_KEYS["retention.ms"].parse("-1") == -1
    for key, text in ((TOPIC_KEYS["retention.ms"], "-2"), (BROKER_KEYS["log.retention.ms"], "0")):
        with pytest.raises(ConfigError):
            key.parse(text)


def test_a_policy_may_name_a_word_twice():
    assert str(topic_config({"cleanup.policy": "delete,delete"}, BrokerConfig()).cleanup_policy) == "delete"


def test_a_group_has_its_own_intervals_within_the_brokers_bounds():
    broker = BrokerConfig()
    own = {"consumer.heartbeat.interval.ms": "6000"}
    check_group_configs(own, broker)
    assert group_config(own, broker.group_coordinator).group_consumer_heartbeat_interval_ms == 6_000
    assert group_config({}, broker.group_coordinator) is broker.group_coordinator
    narrower = BrokerConfig({"group.consumer.max.heartbeat.interval.ms": "5500"})
    assert group_config(own, narrower.group_coordinator).group_consumer_heartbeat_interval_ms == 5_500


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"nope": "5"}, "Unknown group config name: nope"),
        (
            {"consumer.session.timeout.ms": "5"},
            "greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "60001"},
            "less than or equal to group.consumer.max.session.timeout.ms",
        ),
    ],
)
def test_bad_group_settings_are_refused_in_kafkas_words(overrides, reason):
    with pytest.raises(ConfigError, match=reason):
        check_group_configs(overrides, BrokerConfig())


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"segment.bytes": "1000"}, "at least 1048576"),
        ({"remote.storage.enable": "true"}, "no remote storage"),
        ({"leader.replication.throttled.replicas": "junk"}, "must be the literal"),
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


def test_a_group_setting_that_is_refused_is_named_with_where_each_value_was_set():
    broker = load_broker_config(SettingsFile("server.properties", b"group.consumer.max.session.timeout.ms=50000"))
    stored = {"consumer.session.timeout.ms": "60000"}
    with pytest.raises(ConfigError) as refused:
        check_group_configs({**stored, "consumer.heartbeat.interval.ms": "6000"}, broker)
    assert str(refused.value) == (
        "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms:"
        " consumer.session.timeout.ms=60000 (of the group),"
        " group.consumer.max.session.timeout.ms=50000 (server.properties:1)"
    )


def test_a_topic_setting_that_is_refused_is_named_with_where_each_value_was_set():
    file = SettingsFile("server.properties", b"log.cleaner.max.compaction.lag.ms=10")
    with pytest.raises(ConfigError) as refused:
        check_topic_configs({"min.compaction.lag.ms": "11"}, load_broker_config(file))
    assert str(refused.value) == (
        "min.compaction.lag.ms (11) must not be above max.compaction.lag.ms (10): min.compaction.lag.ms=11"
        " (of the topic), log.cleaner.max.compaction.lag.ms=10 (server.properties:1)"
    )


def test_a_stored_setting_that_is_ignored_is_named_with_whose_it_is(caplog):
    broker = BrokerConfig()
    topic_config({"retention.ms": "soon"}, broker, "orders")
    group_config({"consumer.session.timeout.ms": "soon"}, broker.group_coordinator, "readers")
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        "ignoring a stored setting of topic 'orders'",
        "ignoring a stored setting of group 'readers'",
    ]


def test_a_topic_entry_names_the_server_synonyms_behind_it():
    described = entry({"retention.ms": "6"}, BrokerConfig({"log.retention.hours": "2"}), "retention.ms")
    assert (described.value, described.source) == ("6", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert described.synonyms == (
        ConfigSynonym("retention.ms", "6", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigSynonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
    )


def test_a_topic_entry_without_override_shows_the_effective_value_in_the_topics_unit():
    described = entry({}, BrokerConfig({"log.retention.hours": "2"}), "retention.ms")
    assert (described.value, described.source) == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)
    assert not described.read_only


@pytest.mark.parametrize("describe", [topic_entries, group_entries])
def test_only_the_settings_asked_for_are_described(describe):
    broker = BrokerConfig()
    everything = describe({}, broker)
    assert describe({}, broker, {everything[1].name, "no.such.key"}) == [everything[1]]
    assert broker.entries({"num.io.threads"}) == [entry for entry in broker.entries() if entry.name == "num.io.threads"]
