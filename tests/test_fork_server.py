"""A broker that is forked behaves as one that is started."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.fork_server import ForkedProcess, has_pidfd, launch, run_command
from trio_broker.testing.process import BrokerDidNotStart, BrokerProcess

pytestmark = pytest.mark.skipif(not has_pidfd(), reason="the system has no pidfd")


def test_a_broker_is_forked(tmp_path: Path):
    with BrokerProcess(tmp_path, has_admin=False) as broker:
        assert isinstance(broker.process, ForkedProcess)


def test_it_ends_with_its_exit_code(tmp_path: Path):
    broker = BrokerProcess(tmp_path, has_admin=False).start()
    assert broker.is_running
    assert broker.stop() == broker.process.poll() == 0
    assert "stopped" in broker.output[-1]


def test_it_ends_with_the_signal_that_killed_it(tmp_path: Path):
    broker = BrokerProcess(tmp_path, has_admin=False).start()
    assert broker.kill() == broker.process.poll() == -signal.SIGKILL


def test_a_start_that_fails_says_why(tmp_path: Path):
    broker = BrokerProcess(tmp_path, overrides={"num.network.threads": "none"}, has_admin=False)
    with pytest.raises(BrokerDidNotStart, match=r"num\.network\.threads"):
        broker.start()
    assert broker.process.returncode == 1


def test_it_has_the_environment_and_the_working_directory_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRIO_BROKER_DECLARE", "declared.toml")
    monkeypatch.chdir(tmp_path)
    Path("declared.toml").write_text("[topics.orders]\n")
    arguments = ["start", "--data-dir", "data", "--dry-run"]
    process = launch([sys.executable, "-m", "trio_broker", *arguments], env=dict(os.environ))
    assert process.stdout is not None
    with process.stdout as output:
        assert "orders" in output.read()
    assert process.wait() == 0


def test_it_inherits_no_open_file(tmp_path: Path):
    with (
        BrokerProcess(tmp_path / "first", has_admin=False) as first,
        BrokerProcess(tmp_path / "second", has_admin=False) as second,
    ):
        assert not pipes_and_sockets(first) & pipes_and_sockets(second)


def pipes_and_sockets(broker: BrokerProcess) -> set[str]:
    """Of what a process has open, that which has no name that two processes may open."""
    links = [link.readlink() for link in Path(f"/proc/{broker.pid}/fd").iterdir()]
    return {str(link) for link in links if str(link).startswith(("pipe:", "socket:"))}


def test_another_command_is_started(tmp_path: Path):
    process = launch(["/bin/sh", "-c", "exit 3"], env=dict(os.environ))
    assert process.wait() == 3


def test_a_command_has_its_input_and_both_outputs(tmp_path: Path):
    dry = run_command(
        ["start", "--data-dir", tmp_path, "--declare", "/dev/stdin", "--dry-run"], 60, "[topics.orders]\n"
    )
    assert (dry.returncode, dry.stderr) == (0, "")
    assert "orders" in dry.stdout
    wrong = run_command(["nonsense"], 60)
    assert wrong.returncode == 2
    assert "nonsense" in wrong.stderr
