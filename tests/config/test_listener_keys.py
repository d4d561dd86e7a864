"""Keys of one listener are taken as Kafka takes them and kept; all but its limits are marked as without effect."""

from __future__ import annotations

import re

import pytest

from trio_broker.cli.start import refuse_unknown_overrides
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.config_key import ConfigType, UpdateMode
from trio_broker.config.entries import ConfigScope, ConfigSource
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS, WITHOUT_EFFECT_SUBJECT, subject_of
from trio_broker.config.keys_without_effect import WITHOUT_EFFECT
from trio_broker.config.socket_server_config import ListenerLimits
from trio_broker.config.static_settings import StaticSettings

LOCATION = "listener.name.external.ssl.keystore.location"
PASSWORD = "listener.name.external.ssl.keystore.password"
KERBEROS = "listener.name.external.sasl.kerberos.service.name"
JAAS = "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"
CONNECTIONS = "listener.name.external.max.connections"
RATE = "listener.name.external.max.connection.creation.rate"
THREADS = "listener.name.external.num.network.threads"


@pytest.mark.parametrize(
    ("name", "type", "mode", "is_secret"),
    [
        (KERBEROS, ConfigType.STRING, UpdateMode.PER_BROKER, False),
        (THREADS, ConfigType.INT, UpdateMode.CLUSTER_WIDE, False),
        ("listener.name.x.socket.send.buffer.bytes", ConfigType.INT, UpdateMode.PER_BROKER, False),
    ],
)
def test_a_key_of_a_listener_is_the_plain_one_with_kafkas_update_mode(name, type, mode, is_secret):
    key = BROKER_KEYS[name]
    assert (key.name, key.type, key.update_mode, key.sensitive) == (name, type, mode, is_secret)
    assert key.without_effect
    assert not key.thread_pool, "no pool here changes with it"
    assert subject_of(key) == WITHOUT_EFFECT_SUBJECT
    assert name not in set(BROKER_KEYS)


def test_how_the_clients_of_a_listener_log_in_has_an_effect_and_its_secrets_are_hidden():
    key = BROKER_KEYS[JAAS]
    assert (key.type, key.update_mode, key.sensitive) == (ConfigType.PASSWORD, UpdateMode.PER_BROKER, True)
    assert not key.without_effect
    config = BrokerConfig({JAAS: "hunter-one", "sasl.jaas.config": "hunter-two"})
    assert config.listener_value("SASL_SSL", "sasl.jaas.config", "SCRAM-SHA-256") == "hunter-one"
    assert config.listener_value("OTHER", "sasl.jaas.config", "PLAIN") == "hunter-two"
    assert "hunter" not in repr([config.entry(JAAS), config.entries(), config.static_texts])


def test_the_keys_of_tls_are_those_of_their_listener_and_the_brokers_where_it_has_none():
    config = BrokerConfig({LOCATION: "/own", "ssl.keystore.location": "/all", PASSWORD: "hunter"})
    assert config.without_effect == []
    own, other = config.ssl_of("EXTERNAL"), config.ssl_of("OTHER")
    assert (own.ssl_keystore_location, own.ssl_keystore_password) == ("/own", "hunter")
    assert (other.ssl_keystore_location, other.ssl_keystore_password) == ("/all", None)
    assert subject_of(BROKER_KEYS[LOCATION]) == "TLS"
    assert "hunter" not in repr([config.entry(PASSWORD), config.entries(), config.static_texts])


@pytest.mark.parametrize("name", [CONNECTIONS, RATE])
def test_a_limit_of_a_listener_has_an_effect(name):
    key = BROKER_KEYS[name]
    assert (key.type, key.update_mode, key.listener) == (ConfigType.INT, UpdateMode.CLUSTER_WIDE, "external")
    assert not key.without_effect
    assert subject_of(key) == "Listeners and connections"
    assert name not in set(BROKER_KEYS)


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.external.ssl.keystor.location",
        "listener.name.EXTERNAL.max.connections",
        "listener.name.max.connections",
        "listener.name..",
        "x.name.y.z",
    ],
)
def test_what_kafka_does_not_know_behind_the_prefix_is_no_key(name):
    assert name not in BROKER_KEYS


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("listener.name.external.ssl.keystor.location", LOCATION),
        ("listener.name.EXTERNAL.max.connections", CONNECTIONS),
    ],
)
def test_an_unknown_key_behind_the_prefix_is_refused_with_the_one_that_was_meant(name, meant):
    settings = StaticSettings()
    settings.set(name, "/x", "command line")
    with pytest.raises(ConfigError, match=f"no such key; did you mean {re.escape(meant)}\\?"):
        refuse_unknown_overrides(settings)
    [warning] = BrokerConfig({name: "/x"}).warnings
    assert warning.endswith(f"; did you mean {meant}?")


def test_a_static_one_is_kept_and_said_to_have_no_effect():
    config = BrokerConfig({THREADS: "10", PASSWORD: "secret", "num.network.threads": "5"})
    assert config.without_effect == [f"{THREADS} has no effect here"]
    assert config.socket_server.num_network_threads == 5
    shown = {each.name: each for each in config.entries()}
    assert (shown[THREADS].value, shown[THREADS].source) == ("10", ConfigSource.STATIC_BROKER_CONFIG)
    synonyms = [(each.name, each.value) for each in shown[THREADS].synonyms]
    assert synonyms == [(THREADS, "10"), ("num.network.threads", "5"), ("num.network.threads", "3")]
    assert shown[THREADS].documentation == WITHOUT_EFFECT
    assert (shown[PASSWORD].value, shown[PASSWORD].sensitive) == (None, True)
    assert PASSWORD not in config.static_texts
    assert LOCATION not in shown, "only what is set"


def test_a_value_is_checked_as_that_of_the_plain_key_and_not_shown_if_it_is_a_secret():
    with pytest.raises(ConfigError, match=CONNECTIONS):
        BrokerConfig({CONNECTIONS: "many"})
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig({CONNECTIONS: "0"})
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({PASSWORD: "\ud800secret"})
    assert "secret" not in str(caught.value)


def test_one_is_changed_live_for_a_broker_and_only_limits_as_a_default(caplog):
    config = BrokerConfig()
    caplog.set_level("INFO")
    for scope, changes in (
        (ConfigScope.BROKER, {KERBEROS: "kafka", PASSWORD: "secret"}),
        (ConfigScope.CLUSTER, {CONNECTIONS: "10"}),
    ):
        config.check_change(scope, changes)
        config.set_dynamic(scope, changes)
    assert f"{KERBEROS} changed from None to kafka, without effect here" in caplog.text
    assert "secret" not in caplog.text
    assert config.value(BROKER_KEYS[CONNECTIONS]) == 10
    assert [each.name for each in config.default_entries()] == [CONNECTIONS]
    assert config.preview(ConfigScope.BROKER, {KERBEROS: "other"})[0].effective_old == "kafka"
    with pytest.raises(ConfigError, match="cannot be a default of the cluster"):
        config.check_change(ConfigScope.CLUSTER, {KERBEROS: "kafka"})
    taken_away = config.set_dynamic(ConfigScope.BROKER, {})
    assert [(each.name, each.old, each.new) for each in taken_away] == [
        (KERBEROS, "kafka", None),
        (PASSWORD, None, None),
    ]


def test_limits_are_those_of_their_listener_the_strongest_level_first():
    config = BrokerConfig({CONNECTIONS: "10", "listener.name.internal.max.connections": "3", "max.connections": "99"})
    assert config.socket_server.listener_limits == {
        "external": ListenerLimits(max_connections=10),
        "internal": ListenerLimits(max_connections=3),
    }
    assert (config.without_effect, config.socket_server.max_connections) == ([], 99)
    config.set_dynamic(ConfigScope.CLUSTER, {CONNECTIONS: "11", RATE: "5"})
    config.set_dynamic(ConfigScope.BROKER, {CONNECTIONS: "12"})
    limits = ListenerLimits(max_connections=12, max_connection_creation_rate=5)
    assert config.socket_server.listener_limits["external"] == limits
    [entry] = [each for each in config.entries() if each.name == CONNECTIONS]
    assert [(each.name, each.value) for each in entry.synonyms] == [
        (CONNECTIONS, "12"),
        (CONNECTIONS, "11"),
        (CONNECTIONS, "10"),
        ("max.connections", "99"),
        ("max.connections", "2147483647"),
    ]
    assert entry.documentation == BROKER_KEYS["max.connections"].documentation
    assert not entry.read_only


def test_one_may_be_tried_and_is_taken_back():
    config = BrokerConfig()
    config.try_values({CONNECTIONS: "10"})
    assert CONNECTIONS in {each.name for each in config.entries()}
    config.end_trial()
    assert CONNECTIONS not in {each.name for each in config.entries()}
