"""A streaming job whose driver and broker are killed again and again has written exactly its input."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.producer.consumed_records import read_back, values_of
from tests.waits import TimeLeft, flushed, within
from trio_broker.testing import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[3]
SOURCE, TARGET, SOURCES, TARGETS = "given", "written", 2, 3
LIVES, ROWS_OF_A_LIFE, SECONDS = 10, 1500, 300


@contextmanager
def driver(broker: BrokerProcess, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job with its workers, which are all killed at the end of the block."""
    arguments = (broker.bootstrap_servers, SOURCE, TARGET, str(directory))
    with (directory / "query.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.exactly_once.streaming_sink_job", *arguments],
            cwd=ROOT,
            start_new_session=True,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def written(broker: BrokerProcess) -> list[int]:
    """What a reader of committed records sees, by a client that was not written here."""
    found = read_back(broker.bootstrap_servers, TARGET, TARGETS)
    return sorted(int(value or b"") for part in found.values() for value in values_of(part))


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    time_left = TimeLeft(SECONDS)
    while not is_so():
        assert not time_left.is_over
        if process.poll() is not None:
            return
        time.sleep(0.2)


def send(broker: BrokerProcess, first: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + ROWS_OF_A_LIFE):
        producer.produce(SOURCE, b"%d" % number, b"%d" % (number % 17), number % SOURCES)
    assert flushed(producer, SECONDS)


@pytest.mark.parametrize("seed", [1])
def test_ten_deaths_of_the_driver_and_ten_of_the_broker_leave_exactly_the_input(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for topic, partitions in ((SOURCE, SOURCES), (TARGET, TARGETS)):
            within(admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result, SECONDS)
        for life in range(LIVES):
            send(broker, life * ROWS_OF_A_LIFE)
            before = len(written(broker))
            with driver(broker, tmp_path) as process:
                # Some micro-batches of this life are committed, and it is in the middle of another.
                wait_until(lambda least=before: len(written(broker)) > least, process)  # type: ignore[misc]
                time.sleep(chance.uniform(0, 1.0))
                broker.kill()
                broker.start()
                time.sleep(chance.uniform(0, 2.5))
        total = LIVES * ROWS_OF_A_LIFE
        with driver(broker, tmp_path) as process:
            wait_until(lambda: len(written(broker)) >= total, process)
        found = written(broker)

    assert found == list(range(total))
