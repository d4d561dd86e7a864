"""``trio-broker dev-cluster``: several brokers with one command, which keep what they have."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fork_server import run_command
from tests.waits import scaled
from trio_broker.broker import StartupError
from trio_broker.dev_cluster import MetadataKind, metadata_kind
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.simulated_disk import SimulatedDisk

WAIT_SECONDS = 60


@attrs.frozen
class RunningCluster:
    """``servers`` are the brokers' addresses."""

    process: subprocess.Popen[str]
    servers: str

    def etcd(self) -> list[int]:
        """The process of its etcd, if it has one."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(line) for line in found.stdout.split()]


@contextmanager
def dev_cluster(directory: Path) -> Iterator[RunningCluster]:
    """A cluster, which is stopped cleanly at the end."""
    command = [sys.executable, "-m", "trio_broker", "dev-cluster", "--data-dir", str(directory)]
    options = ["--port", "0", "--admin-port", "0", "--override", "offsets.topic.num.partitions=1"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = list(itertools.takewhile(lambda line: not line.startswith("stop"), process.stdout))
            [found] = re.findall(r"^clients +bootstrap\.servers=(.*)$", "".join(lines), re.MULTILINE)
            yield RunningCluster(process, found)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(scaled(WAIT_SECONDS)) == 0


def test_what_three_brokers_have_is_there_after_a_restart(tmp_path):
    """Where etcd is installed, it is killed in between, which nobody notices who asks later, and ends at the stop."""
    with dev_cluster(tmp_path / "cluster") as cluster:
        servers, etcd = cluster.servers, cluster.etcd()
        assert len(servers.split(",")) == 3
        assert len(etcd) == (shutil.which("etcd") is not None)
        for process in etcd:
            os.kill(process, signal.SIGKILL)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(scaled(WAIT_SECONDS))
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        producer.produce("orders", b"1", partition=0)
        assert producer.flush(scaled(WAIT_SECONDS)) == 0
    with dev_cluster(tmp_path / "cluster") as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(scaled(WAIT_SECONDS))
        consumer.close()
        assert message is not None
        assert message.value() == b"1"


def test_metadata_are_in_etcd_where_it_is_and_stay_where_they_were():
    disk, directory = SimulatedDisk(ManualClock()), PurePath("/cluster")
    etcd, shared = MetadataKind.ETCD, MetadataKind.SHARED
    assert metadata_kind(disk, directory, None, "etcd") is etcd
    assert metadata_kind(disk, directory, None, None) is metadata_kind(disk, directory, shared, "etcd") is shared
    with pytest.raises(StartupError, match="etcd, which is not on the PATH"):
        metadata_kind(disk, directory, etcd, None)
    disk.make_directory(directory / "metadata")
    assert metadata_kind(disk, directory, None, "etcd") is shared
    with pytest.raises(StartupError, match="has its metadata in one log that the brokers share"):
        metadata_kind(disk, directory, etcd, "etcd")


def test_an_etcd_that_cannot_start_ends_the_cluster_in_one_line(tmp_path):
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho no port; exit 1\n")
    program.chmod(0o700)
    command = ["dev-cluster", "--data-dir", tmp_path / "cluster"]
    ended = run_command(command, WAIT_SECONDS, PATH=f"{tmp_path}:{os.environ['PATH']}")
    output = tmp_path / "cluster" / "etcd" / "etcd.log"
    assert (ended.returncode, ended.stderr) == (1, f"trio-broker: etcd does not start: it says why in {output}\n")
    assert output.read_text() == "no port\n"


def test_a_setting_that_is_not_one_is_refused_in_one_line(tmp_path):
    ended = run_command(["dev-cluster", "--data-dir", tmp_path, "--override", "num.io.thread=3"], WAIT_SECONDS)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "num.io.thread" in ended.stderr
