"""``start``: what is refused before a broker runs, each in one line that says what to do instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from trio_broker import broker as broker_module
from trio_broker.cli import main
from trio_broker.cli.start import option_variables
from trio_broker.common.environment import environment_name, key_of_variable
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.keys import BROKER_KEYS

TLS = "listeners=SSL://0.0.0.0:9093"


def refusal(*arguments: str, **environment: str) -> str:
    """The one line with which ``start`` ends."""
    result = CliRunner(env=environment).invoke(main, ["start", *arguments])
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    line = result.stderr.removesuffix("\n")
    assert "\n" not in line
    return line.removeprefix("trio-broker: ")


def test_port_does_not_take_the_place_of_listeners_that_were_asked_for(tmp_path: Path):
    """It would silently open a plaintext listener where one with TLS was wanted."""
    said = "--port and listeners ({}) exclude each other: name host and port in listeners"
    assert refusal("--port", "0", "--override", TLS) == said.format("--override")
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\n{TLS}\n")
    assert refusal("--port", "0", "--config", str(file)) == said.format(f"{file}:2")
    variable = "environment variable TRIO_BROKER_LISTENERS"
    assert refusal("--port", "0", TRIO_BROKER_LISTENERS="PLAINTEXT://:9092") == said.format(variable)


def test_listeners_without_port_are_checked_as_ever():
    assert "ssl.keystore.location is not set" in refusal("--override", TLS)


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("num.io.thread=12", "; did you mean num.io.threads?"),
        ("log.retention.hour=1", "; did you mean log.retention.hours?"),
        ("zzz=1", ""),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(override: str, hint: str):
    key = override.partition("=")[0]
    assert refusal("--override", override) == f"--override {key}: this broker has no such key{hint}"


def test_a_missing_file_is_one_clear_line(tmp_path: Path):
    assert refusal("--config", str(tmp_path / "nowhere")) == f"{tmp_path / 'nowhere'}: No such file or directory"


def test_a_pipe_is_read_as_a_shell_makes_one_of_a_command():
    reading, writing = os.pipe()
    os.write(writing, b"\nnode.id=one\n")
    os.close(writing)
    assert refusal("--config", f"/dev/fd/{reading}").startswith(f"/dev/fd/{reading}:2: node.id")
    os.close(reading)


def test_a_file_as_data_directory_is_named(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    ports = ("--port", "0", "--admin-port", "0")
    for path in (file, file / "below" / "it"):
        message = f"{path} cannot be a data directory: {file} is not a directory"
        assert refusal("--data-dir", str(path), *ports) == message


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch):
    """Returns the settings with which a broker would run."""

    def start(*arguments: str, **environment: str) -> BrokerConfig:
        configs: list[BrokerConfig] = []
        monkeypatch.setattr(broker_module, "run_until_signalled", lambda config, **_: configs.append(config))
        result = CliRunner(env=environment).invoke(main, ["start", *arguments])
        assert result.exit_code == 0, result.output
        [config] = configs
        return config

    return start


def origin(config: BrokerConfig, key: str) -> tuple[str, str]:
    """The level of the value in effect, and what set it there."""
    [found] = [each for each in config.level_values(BROKER_KEYS[key]) if each.wins]
    return found.level.value, found.origin


def test_each_option_is_set_by_its_variable_at_the_level_of_the_environment(started):
    config = started(
        TRIO_BROKER_DATA_DIR="/data",
        TRIO_BROKER_HOST="0.0.0.0",
        TRIO_BROKER_PORT="9192",
        TRIO_BROKER_ADMIN_HOST="::",
        TRIO_BROKER_ADMIN_PORT="0",
    )
    assert config.node.log_dirs == ("/data",)
    assert config.socket_server.listeners == ("PLAINTEXT://0.0.0.0:9192",)
    assert config.node.admin_listener == "[::]:0"
    assert origin(config, "log.dirs") == ("environment", "environment variable TRIO_BROKER_DATA_DIR")
    assert origin(config, "listeners") == ("environment", "environment variable TRIO_BROKER_HOST and TRIO_BROKER_PORT")


def test_the_command_line_wins_over_the_environment(started):
    config = started(
        *("--data-dir", "/mine", "--override", "num.io.threads=2", "--port", "0"),
        TRIO_BROKER_DATA_DIR="/data",
        TRIO_BROKER_NUM_IO_THREADS="3",
        TRIO_BROKER_HOST="::1",
    )
    assert (config.node.log_dirs, config.socket_server.num_io_threads) == (("/mine",), 2)
    assert config.socket_server.listeners == ("PLAINTEXT://[::1]:0",)
    assert origin(config, "listeners") == ("command-line", "command line")


def test_the_environment_wins_over_the_file(started, tmp_path: Path):
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=2\nlog.dirs=/file\n")
    config = started(TRIO_BROKER_CONFIG=str(file), TRIO_BROKER_NUM_IO_THREADS="3", TRIO_BROKER_DATA_DIR="/environment")
    assert (config.socket_server.num_io_threads, config.node.log_dirs) == (3, ("/environment",))


def test_a_variable_that_means_nothing_ends_the_start():
    said = "environment variable TRIO_BROKER_DATADIR: no setting of a broker has that name; did you mean {}?"
    assert refusal(TRIO_BROKER_DATADIR="/data") == said.format("TRIO_BROKER_DATA_DIR")


def test_two_variables_for_one_setting_are_refused():
    variable = "environment variable TRIO_BROKER_LOG_DIRS"
    said = f"TRIO_BROKER_DATA_DIR and log.dirs ({variable}) exclude each other"
    assert refusal(TRIO_BROKER_DATA_DIR="/a", TRIO_BROKER_LOG_DIRS="/b") == said


def test_no_option_has_the_variable_of_a_key():
    assert {key_of_variable(variable) for variable in option_variables()}.isdisjoint(BROKER_KEYS)


def test_a_service_of_kubernetes_is_no_port(started):
    config = started(TRIO_BROKER_PORT="tcp://10.0.0.1:9092", TRIO_BROKER_ADMIN_PORT="tcp://10.0.0.1:9644")
    assert config.socket_server.listeners == ("PLAINTEXT://127.0.0.1:9092",)


def test_a_secret_of_the_environment_is_shown_nowhere(started):
    secrets = [name for name, key in BROKER_KEYS.items() if key.sensitive]
    assert secrets
    etcd = ("--override", "metadata.store=etcd://127.0.0.1:1", "--override", "metadata.store.user=trio")
    config = started(*etcd, **{environment_name(name): "http://swordfish" for name in secrets})
    shown = [config.level_values(BROKER_KEYS[name]) for name in secrets]
    assert "swordfish" not in f"{shown} {config.entries()} {config.static_texts} {config.warnings}"


def test_a_wrong_topic_is_reported_by_what_gives_it():
    assert refusal("--topic", ":3").startswith("--topic: ")
    assert refusal(TRIO_BROKER_TOPIC=":3").startswith("TRIO_BROKER_TOPIC: ")
