"""``start``: what is refused before a broker runs, each in one line that says what to do instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from trio_broker.cli import main

TLS = "listeners=SASL_SSL://0.0.0.0:9093"


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
    said = "--port and listeners ({}) exclude each other: name the port in listeners"
    assert refusal("--port", "0", "--override", TLS) == said.format("--override")
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\n{TLS}\n")
    assert refusal("--port", "0", "--config", str(file)) == said.format(f"{file}:2")
    variable = "environment variable TRIO_BROKER_LISTENERS"
    assert refusal("--port", "0", TRIO_BROKER_LISTENERS="PLAINTEXT://:9092") == said.format(variable)


def test_listeners_without_port_are_checked_as_ever():
    assert "only PLAINTEXT listeners are served" in refusal("--override", TLS)


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
        told = f"{path} cannot be a data directory: {file} is not a directory"
        assert refusal("--data-dir", str(path), *ports) == told
