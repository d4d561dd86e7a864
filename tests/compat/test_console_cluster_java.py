"""Kafka's console producer and consumer over three broker processes that are killed, and restarted one after the other:
each line that was written is read once."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.checking.cluster_processes import LOST_BROKERS, lossy_cluster
from tests.compat.killable_application import BROKER_SETTINGS, WAIT_SECONDS
from tests.java_programs import Java
from tests.waits import eventually, within

pytestmark = pytest.mark.soak

LOSSES = 2 * len(LOST_BROKERS)

LINES_BETWEEN_LOSSES = 100

SECONDS_BETWEEN_LINES = 0.01


def test_console_clients_lose_and_double_no_line_while_brokers_are_killed_and_restarted(
    java: Java, tmp_path: Path
) -> None:
    with lossy_cluster(tmp_path / "cluster", BROKER_SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        within(admin.create_topics([NewTopic("lines", 2)])["lines"].result, WAIT_SECONDS)
        place = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "lines"]
        tools = ["java", *java.quick_start, "-cp", java.class_path]
        # By default a line is given up after three attempts, which an election outlasts.
        produce = [*tools, "org.apache.kafka.tools.ConsoleProducer", *place, "--message-send-max-retries", "1000"]
        consume = [*tools, "org.apache.kafka.tools.consumer.ConsoleConsumer", *place]
        consume += ["--group", "readers", "--from-beginning"]
        read = tmp_path / "read.txt"
        with (
            subprocess.Popen(produce, stdin=subprocess.PIPE, text=True) as producer,
            read.open("w") as output,
            subprocess.Popen(consume, stdout=output) as consumer,
        ):
            assert producer.stdin is not None
            written, enough = 0, threading.Event()

            def write_lines() -> None:
                nonlocal written
                while not enough.wait(SECONDS_BETWEEN_LINES):
                    print(written, file=producer.stdin, flush=True)
                    written += 1

            def read_more(count: int) -> None:
                wanted = len(read.read_text().splitlines()) + count
                eventually(lambda: len(read.read_text().splitlines()) >= wanted, WAIT_SECONDS)

            writer = threading.Thread(target=write_lines, daemon=True)
            writer.start()
            try:
                for _ in range(LOSSES):
                    read_more(LINES_BETWEEN_LOSSES)
                    cluster.kill()
                    cluster.start()
                read_more(LINES_BETWEEN_LOSSES)
                enough.set()
                writer.join()
                producer.stdin.close()
                assert within(producer.wait, WAIT_SECONDS) == 0
                eventually(lambda: len(read.read_text().splitlines()) >= written, WAIT_SECONDS)
            finally:
                producer.kill()
                consumer.kill()
        assert sorted(map(int, read.read_text().splitlines())) == list(range(written))
