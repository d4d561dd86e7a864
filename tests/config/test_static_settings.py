"""Where the static settings of a start come from."""

from __future__ import annotations

import pytest

from tests.cases import each
from trio_broker.common.environment import environment_name, key_of_variable
from trio_broker.config.broker_config import load_broker_config
from trio_broker.config.entries import ConfigLevel, ConfigScope
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.static_settings import SettingsFile, gather_settings


@pytest.fixture
def properties():
    """Return a file as it was read."""
    return lambda text: SettingsFile("server.properties", text.encode())


def test_the_command_line_wins_over_the_environment_over_the_file(properties):
    file = properties("num.io.threads=2\nnum.network.threads=2\nnum.partitions=2\n")
    config = load_broker_config(
        file,
        {"num.io.threads": "4"},
        {"TRIO_BROKER_NUM_IO_THREADS": "3", "TRIO_BROKER_NUM_NETWORK_THREADS": "3", "HOME": "/"},
    )
    assert config.socket_server.num_io_threads == 4
    assert config.socket_server.num_network_threads == 3
    assert config.request.num_partitions == 2
    assert config.warnings == []


def test_a_bad_value_is_reported_with_file_line_key_and_reason(properties):
    file = properties("# threads\nnum.io.threads=none\n")
    with pytest.raises(ConfigError) as refusal:
        load_broker_config(file)
    assert str(refusal.value) == f"{file.name}:2: num.io.threads: 'none' is refused: the value must be a whole number"


def test_a_bad_value_elsewhere_is_reported_with_its_place():
    with pytest.raises(ConfigError, match=r"environment variable TRIO_BROKER_NUM_IO_THREADS: num.io.threads: '0'"):
        load_broker_config(environment={"TRIO_BROKER_NUM_IO_THREADS": "0"})
    with pytest.raises(ConfigError, match=r"command line: num.io.threads: '0'"):
        load_broker_config(overrides={"num.io.threads": "0"})


def test_what_is_ignored_is_a_warning(properties):
    file = properties("zookeeper.connect=a:2181\nnum.partitions=1\nnum.partitions=2\n")
    assert load_broker_config(file).warnings == [
        f"{file.name}:3: num.partitions was set above already; the last value counts",
        f"{file.name}:1: zookeeper.connect is not a key of this broker and is ignored",
    ]


def test_a_misspelt_key_of_a_file_is_warned_of_with_the_one_that_was_meant(properties):
    file = properties("num.io.thread=12\n")
    warning = f"{file.name}:1: num.io.thread is not a key of this broker and is ignored; did you mean num.io.threads?"
    assert load_broker_config(file).warnings == [warning]


def test_the_variable_of_the_commands_for_a_cluster_is_no_mistake():
    assert load_broker_config(environment={"TRIO_BROKER_BOOTSTRAP_SERVER": "kafka:9092"}).warnings == []


def test_a_file_in_latin_1_is_read_as_java_reads_it():
    file = SettingsFile("server.properties", "# Größe\nbroker.rack=Kühlraum\n".encode("latin-1"))
    assert load_broker_config(file).node.broker_rack == "Kühlraum"


def test_listeners_are_checked_at_once():
    with pytest.raises(ConfigError, match="has no entry in listener"):
        load_broker_config(overrides={"listeners": "OTHER://:9093"})


def test_a_variable_that_means_nothing_is_refused_with_the_one_that_was_meant():
    said = "environment variable {}: no setting of a broker has that name; did you mean {}?"
    with pytest.raises(ConfigError) as refusal:
        load_broker_config(environment={"TRIO_BROKER_NUM_IO_THREAD": "3"})
    assert str(refusal.value) == said.format("TRIO_BROKER_NUM_IO_THREAD", "TRIO_BROKER_NUM_IO_THREADS")
    with pytest.raises(ConfigError) as refusal:
        gather_settings(None, {}, {"TRIO_BROKER_DATA_DIRS": "/data"}, ["TRIO_BROKER_DATA_DIR"])
    assert str(refusal.value) == said.format("TRIO_BROKER_DATA_DIRS", "TRIO_BROKER_DATA_DIR")


def test_each_key_has_an_environment_variable_of_its_own():
    variables = {environment_name(key): key for key in BROKER_KEYS}
    assert {variable: key_of_variable(variable) for variable in variables} == variables
    assert len(variables) == len(BROKER_KEYS)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("TRIO_BROKER_LISTENER_NAME_EXTERNAL_MAX_CONNECTIONS", "listener.name.external.max.connections"),
        ("TRIO_BROKER_LISTENER_NAME_SASL__SSL_MAX_CONNECTIONS", "listener.name.sasl_ssl.max.connections"),
        (
            "TRIO_BROKER_LISTENER_NAME_A_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.a.scram-sha-256.sasl.jaas.config",
        ),
    ],
)
def test_a_key_of_one_listener_has_an_environment_variable(variable, key):
    assert environment_name(key) == variable
    settings = gather_settings(None, {}, {variable: "7"})
    assert settings.levels[ConfigLevel.ENVIRONMENT][key].text == "7"


def test_what_kubernetes_says_of_a_service_of_the_same_name_is_no_setting():
    """Else no broker would start in a namespace with a service "trio-broker"."""
    environment = {
        "TRIO_BROKER_SERVICE_HOST": "10.0.0.1",
        "TRIO_BROKER_SERVICE_PORT": "9092",
        "TRIO_BROKER_SERVICE_PORT_KAFKA": "9092",
        "TRIO_BROKER_PORT": "tcp://10.0.0.1:9092",
        "TRIO_BROKER_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "TRIO_BROKER_PORT_9092_TCP_PROTO": "tcp",
        "TRIO_BROKER_PORT_9092_TCP_PORT": "9092",
        "TRIO_BROKER_PORT_9092_TCP_ADDR": "10.0.0.1",
        "TRIO_BROKER_ADMIN_PORT": "tcp://10.0.0.2:9644",
    }
    assert gather_settings(None, {}, environment).effective == {}


def levels(config, name):
    return [(each.level.value, each.name, each.value, each.wins) for each in config.level_values(BROKER_KEYS[name])]


def test_every_level_shows_its_value_and_one_of_them_wins(properties):
    file = properties("num.io.threads=2\n")
    config = load_broker_config(file, {"num.io.threads": "4"}, {"TRIO_BROKER_NUM_IO_THREADS": "3"})
    config.set_dynamic(ConfigScope.CLUSTER, {"num.io.threads": "5"})
    assert levels(config, "num.io.threads") == [
        ("cluster", "num.io.threads", "5", True),
        ("command-line", "num.io.threads", "4", False),
        ("environment", "num.io.threads", "3", False),
        ("file", "num.io.threads", "2", False),
        ("built-in", "num.io.threads", "8", False),
    ]
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "6"})
    assert levels(config, "num.io.threads")[:2] == [
        ("broker", "num.io.threads", "6", True),
        ("cluster", "num.io.threads", "5", False),
    ]


def test_the_origin_of_a_level_names_the_line_and_the_variable(properties):
    file = properties("\nnum.io.threads=2\n")
    config = load_broker_config(file, environment={"TRIO_BROKER_NUM_IO_THREADS": "3"})
    origins = [each.origin for each in config.level_values(BROKER_KEYS["num.io.threads"])]
    assert origins == ["environment variable TRIO_BROKER_NUM_IO_THREADS", f"{file.name}:2", ""]


def test_a_keys_own_name_in_the_file_wins_over_a_fallback_in_the_environment(properties):
    file = properties("log.retention.ms=5000\n")
    config = load_broker_config(file, environment={"TRIO_BROKER_LOG_RETENTION_HOURS": "1"})
    assert config.log.retention_ms == 5000
    assert levels(config, "log.retention.ms") == [
        ("environment", "log.retention.hours", "1", False),
        ("file", "log.retention.ms", "5000", True),
        ("built-in", "log.retention.hours", "168", False),
    ]


def test_the_default_of_a_fallback_is_in_effect_where_nothing_is_set(properties):
    config = load_broker_config()
    assert levels(config, "log.retention.ms") == [("built-in", "log.retention.hours", "168", True)]
    assert levels(config, "broker.rack") == []


@each("name", BROKER_KEYS)
def test_the_value_that_wins_is_the_value_in_effect(name):
    config, key = load_broker_config(), BROKER_KEYS[name]
    winners = [each for each in config.level_values(key) if each.wins]
    assert config.value(key) == key.value_in({each.name: each.value or "" for each in winners})
