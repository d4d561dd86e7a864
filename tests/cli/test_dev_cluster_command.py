"""``trio-broker dev-cluster``: several brokers with one command, which keep what they have."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fork_server import run_command
from tests.waits import scaled

WAIT_SECONDS = 60


@contextmanager
def dev_cluster(directory: Path) -> Iterator[str]:
    """The addresses of a cluster, which is stopped cleanly at the end."""
    command = [sys.executable, "-m", "trio_broker", "dev-cluster", "--data-dir", str(directory)]
    options = ["--port", "0", "--admin-port", "0", "--override", "offsets.topic.num.partitions=1"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(7)]
            [found] = re.findall(r"^clients +bootstrap\.servers=(.*)$", "".join(lines), re.MULTILINE)
            yield found
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(scaled(WAIT_SECONDS)) == 0


def test_what_three_brokers_have_is_there_after_a_restart(tmp_path):
    with dev_cluster(tmp_path / "cluster") as servers:
        assert len(servers.split(",")) == 3
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(scaled(WAIT_SECONDS))
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        producer.produce("orders", b"1", partition=0)
        assert producer.flush(scaled(WAIT_SECONDS)) == 0
    with dev_cluster(tmp_path / "cluster") as servers:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(scaled(WAIT_SECONDS))
        consumer.close()
        assert message is not None
        assert message.value() == b"1"


def test_a_setting_that_is_not_one_is_refused_in_one_line(tmp_path):
    ended = run_command(["dev-cluster", "--data-dir", tmp_path, "--override", "num.io.thread=3"], WAIT_SECONDS)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "num.io.thread" in ended.stderr
