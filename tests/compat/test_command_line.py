"""The ``trio-broker`` command as a user meets it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from trio_broker.testing.process import BrokerProcess

SECONDS = 60


def trio_broker(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trio_broker", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def refusal(*arguments: str | Path) -> str:
    """The one line that a command which must fail ends with."""
    completed = trio_broker(*arguments)
    assert completed.returncode == 1, completed
    assert "Traceback" not in completed.stderr
    [line] = [line for line in completed.stderr.splitlines() if line.startswith("trio-broker: ")]
    return line


def test_start_says_where_it_listens_and_how_durable_it_is(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    told = "\n".join(broker.output)

    assert f"listening  PLAINTEXT://{broker.bootstrap_servers}" in told
    assert broker.admin_url.startswith("http://127.0.0.1:")
    assert "durability fsync" in told
    assert str(broker.data_directory) in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(start_broker: Callable[..., BrokerProcess], number: signal.Signals) -> None:
    broker = start_broker()
    broker.process.send_signal(number)

    assert broker.process.wait(SECONDS) == 0
    assert (broker.data_directory / ".kafka_cleanshutdown").exists()


def test_a_bad_value_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.io.threads=many\n")

    line = refusal("start", "--config", file, "--data-dir", tmp_path / "data")
    assert "server.properties" in line
    assert "num.io.threads" in line
    assert "2" in line


def test_a_bad_override_is_told(tmp_path: Path) -> None:
    assert "KEY=VALUE" in refusal("start", "--override", "nonsense", "--data-dir", tmp_path / "data")
    assert "num.io.threads" in refusal("start", "--override", "num.io.threads=0", "--data-dir", tmp_path / "data")


def test_a_missing_config_file_is_told(tmp_path: Path) -> None:
    assert "nowhere.properties" in refusal("start", "--config", tmp_path / "nowhere.properties")


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("start", "--data-dir", tmp_path / "data", "--port", str(port), "--admin-port", "0")
    assert str(port) in line


def test_a_taken_admin_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("start", "--data-dir", tmp_path / "data", "--port", "0", "--admin-port", str(port))
    assert str(port) in line


def test_a_locked_data_directory_is_told(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    line = refusal("start", "--data-dir", broker.data_directory, "--port", "0", "--admin-port", "0")
    assert str(broker.data_directory) in line
    assert line.endswith(f"is locked by process {broker.pid}")


def test_a_directory_of_another_node_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    BrokerProcess(directory).start().stop()
    line = refusal("start", "--data-dir", directory, "--override", "node.id=77", "--port", "0", "--admin-port", "0")
    assert "77" in line


def test_a_directory_that_is_not_kafkas_is_told(tmp_path: Path) -> None:
    (tmp_path / "holiday pictures").mkdir()
    line = refusal("start", "--data-dir", tmp_path, "--port", "0", "--admin-port", "0")
    assert "holiday pictures" in line


def test_dump_log_prints_batches_and_records(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("dumped", b"hello dump", b"the key", partition=0)
    assert producer.flush(SECONDS) == 0
    broker.stop()

    segment = broker.data_directory / "dumped-0" / "00000000000000000000.log"
    completed = trio_broker("dump-log", segment, "--records")
    assert completed.returncode == 0, completed.stderr
    assert "hello dump" in completed.stdout
    assert "the key" in completed.stdout


def test_version() -> None:
    completed = trio_broker("version")
    assert completed.returncode == 0
    assert completed.stdout.startswith("trio-broker ")
