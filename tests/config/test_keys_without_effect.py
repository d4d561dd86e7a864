"""Kafka's keys that nothing reads here: taken, kept, and described where they are set."""

from __future__ import annotations

import logging

import pytest

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigLevel, ConfigScope, ConfigSource
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS
from trio_broker.config.keys_without_effect import (
    BROKER_KEYS_WITHOUT_EFFECT,
    GROUP_KEYS_WITHOUT_EFFECT,
    WITHOUT_EFFECT,
)
from trio_broker.config.resource_config import check_group_configs, group_config, group_entries
from trio_broker.config.static_settings import StaticSettings


def test_each_key_is_declared_once():
    names = [key.name for key in (*BROKER_KEYS_WITHOUT_EFFECT, *GROUP_KEYS_WITHOUT_EFFECT)]
    assert len(names) == len({*names})
    assert all(BROKER_KEYS[key.name] is key for key in BROKER_KEYS_WITHOUT_EFFECT)
    assert all(GROUP_KEYS[key.name] is key for key in GROUP_KEYS_WITHOUT_EFFECT)


def test_a_static_one_is_kept_and_said_with_its_place():
    settings = StaticSettings()
    settings.set("num.replica.alter.log.dirs.threads", "4", "server.properties:3", ConfigLevel.FILE)
    config = BrokerConfig(settings)
    assert (config.warnings, config.without_effect) == (
        [],
        ["server.properties:3: num.replica.alter.log.dirs.threads has no effect here"],
    )
    entry = config.entry("num.replica.alter.log.dirs.threads")
    assert entry is not None
    assert (entry.value, entry.source) == ("4", ConfigSource.STATIC_BROKER_CONFIG)
    assert entry.documentation == WITHOUT_EFFECT


def test_its_value_must_be_of_its_type():
    with pytest.raises(
        ConfigError, match=r"num\.replica\.alter\.log\.dirs\.threads: 'four' is refused: .* whole number"
    ):
        BrokerConfig({"num.replica.alter.log.dirs.threads": "four"})


@pytest.mark.parametrize("scope", ConfigScope)
def test_a_dynamic_one_is_taken_beside_others(scope, caplog):
    caplog.set_level(logging.INFO)
    config, changes = BrokerConfig(), {"background.threads": "3", "num.io.threads": "9"}
    config.check_change(scope, changes)
    config.set_dynamic(scope, changes)
    assert config.socket_server.num_io_threads == 9
    entry = config.entry("background.threads")
    assert entry is not None
    assert (entry.value, entry.source, entry.read_only) == ("3", scope.source, False)
    assert "background.threads changed from None to 3, without effect here" in caplog.text


def test_update_modes_are_kafka_s():
    config = BrokerConfig()
    with pytest.raises(ConfigError, match=r"Cannot update these configs dynamically: Set\(process\.roles\)"):
        config.check_change(ConfigScope.BROKER, {"process.roles": "broker"})
    config.check_change(ConfigScope.BROKER, {"ssl.keystore.type": "PEM"})
    with pytest.raises(ConfigError, match="cannot be a default of the cluster"):
        config.check_change(ConfigScope.CLUSTER, {"ssl.keystore.type": "PEM"})


def test_what_is_not_set_is_not_described():
    described = {entry.name for entry in BrokerConfig().entries()}
    assert not described & {key.name for key in BROKER_KEYS_WITHOUT_EFFECT}


def test_a_secret_is_not_shown():
    config = BrokerConfig({"ssl.keystore.password": "abc"})
    entry = config.entry("ssl.keystore.password")
    assert entry is not None
    assert (entry.value, entry.sensitive, [each.value for each in entry.synonyms]) == (None, True, [None])
    assert "ssl.keystore.password" not in config.static_texts


def test_an_internal_one_is_taken_and_not_described():
    name = "producer.id.expiration.check.interval.ms"
    config = BrokerConfig({name: "1000"})
    assert name not in {entry.name for entry in config.entries()}
    name = "group.consumer.assignor.offload.enable"
    config.check_change(ConfigScope.CLUSTER, {name: "false"})
    config.set_dynamic(ConfigScope.CLUSTER, {name: "false"})
    assert config.default_entries() == []


def test_a_key_that_nobody_knows_is_refused_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, match=r"is not a key of this broker; did you mean background\.threads\?"):
        BrokerConfig().check_change(ConfigScope.BROKER, {"background.thread": "3"})


def test_groups_have_such_keys_too():
    overrides = {"share.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    config = BrokerConfig()
    check_group_configs(overrides, config)
    assert group_config(overrides, config.group_coordinator).group_consumer_heartbeat_interval_ms == 6000
    entries = {entry.name: entry for entry in group_entries(overrides, config)}
    assert (entries["share.session.timeout.ms"].value, entries["share.session.timeout.ms"].source) == (
        "50000",
        ConfigSource.DYNAMIC_GROUP_CONFIG,
    )
    assert "streams.session.timeout.ms" not in entries
