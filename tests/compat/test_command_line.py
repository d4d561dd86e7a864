"""The ``trio-broker`` command as a user meets it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.fork_server import run_command
from tests.waits import flushed, within
from trio_broker.testing import process
from trio_broker.testing.process import BrokerProcess

SECONDS = 60

WITHOUT_ADMIN = ("--override", "admin.listener=")
"""Of a broker that must not start: it would load the admin page first."""

ANYWHERE = ("--port", "0", *WITHOUT_ADMIN)


def refusal(*arguments: str | Path) -> str:
    """The one line that a command which must fail ends with."""
    completed = run_command(arguments, SECONDS)
    assert completed.returncode == 1, completed
    assert "Traceback" not in completed.stderr
    [line] = [line for line in completed.stderr.splitlines() if line.startswith("trio-broker: ")]
    return line


@pytest.fixture(scope="module", autouse=True)
def _the_command_itself() -> Iterator[None]:
    """Brokers of this module that start are no forks of a process that has imported what they need."""
    forks, process.launch = process.launch, subprocess.Popen
    yield
    process.launch = forks


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One with all its defaults."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    """One that was stopped by SIGTERM and has the record "the key", "hello dump" in ``dumped-0``."""
    with BrokerProcess(tmp_path_factory.mktemp("stopped"), has_admin=False) as started:
        producer = Producer({"bootstrap.servers": started.bootstrap_servers})
        producer.produce("dumped", b"hello dump", b"the key", partition=0)
        assert flushed(producer, SECONDS)
        started.stop()
    return started


def test_start_says_where_it_listens_and_how_durable_it_is(broker: BrokerProcess) -> None:
    output = "\n".join(broker.output)

    assert f"listening  PLAINTEXT://{broker.bootstrap_servers}" in output
    assert broker.admin_url.startswith("http://127.0.0.1:")
    assert "durability fsync" in output
    assert str(broker.data_directory) in output


def test_sigterm_stops_it_cleanly(stopped: BrokerProcess) -> None:
    assert stopped.process.returncode == 0
    assert (stopped.data_directory / ".kafka_cleanshutdown").exists()


def test_sigint_stops_it_cleanly_and_it_may_have_no_admin_page(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    assert broker.admin_url == "off"
    broker.process.send_signal(signal.SIGINT)

    assert within(broker.process.wait, SECONDS) == 0
    assert (broker.data_directory / ".kafka_cleanshutdown").exists()


def test_a_bad_value_in_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.io.threads=many\n")

    line = refusal("start", "--config", file, "--data-dir", tmp_path / "data")
    assert "server.properties" in line
    assert "num.io.threads" in line
    assert "2" in line


def test_a_bad_override_is_reported(tmp_path: Path) -> None:
    assert "KEY=VALUE" in refusal("start", "--override", "nonsense", "--data-dir", tmp_path / "data")
    assert "num.io.threads" in refusal("start", "--override", "num.io.threads=0", "--data-dir", tmp_path / "data")


def test_a_missing_config_file_is_reported(tmp_path: Path) -> None:
    assert "nowhere.properties" in refusal("start", "--config", tmp_path / "nowhere.properties")


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("start", "--data-dir", tmp_path / "data", "--port", str(port), *WITHOUT_ADMIN)
    assert str(port) in line


def test_a_taken_admin_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("start", "--data-dir", tmp_path / "data", "--port", "0", "--admin-port", str(port))
    assert str(port) in line


def test_a_locked_data_directory_is_reported(broker: BrokerProcess) -> None:
    line = refusal("start", "--data-dir", broker.data_directory, *ANYWHERE)
    assert str(broker.data_directory) in line
    assert line.endswith(f"is locked by process {broker.pid}")


def test_a_directory_of_another_node_is_reported(stopped: BrokerProcess, tmp_path: Path) -> None:
    directory = shutil.copytree(stopped.data_directory, tmp_path / "data")
    line = refusal("start", "--data-dir", directory, "--override", "node.id=77", *ANYWHERE)
    assert "77" in line


def test_a_directory_that_is_not_kafkas_is_reported(tmp_path: Path) -> None:
    (tmp_path / "holiday pictures").mkdir()
    line = refusal("start", "--data-dir", tmp_path, *ANYWHERE)
    assert "holiday pictures" in line


def test_dump_log_prints_batches_and_records(stopped: BrokerProcess) -> None:
    segment = stopped.data_directory / "dumped-0" / "00000000000000000000.log"
    completed = run_command(["dump-log", segment, "--records"], SECONDS)
    assert completed.returncode == 0, completed.stderr
    assert "hello dump" in completed.stdout
    assert "the key" in completed.stdout


def test_version() -> None:
    completed = run_command(["version"], SECONDS)
    assert completed.returncode == 0
    assert completed.stdout.startswith("trio-broker ")
