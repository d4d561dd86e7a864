"""The real command in a process of its own, killed with -9 while records come in: each is in the table once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.spark.pipelines.table_rows import read_table
from tests.spark.session_fixture import JAVA_OPTIONS
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

pytestmark = pytest.mark.spark

SECONDS = 150
"""For a JVM to start and a few batches, on a machine that does other things as well."""


@attrs.define
class Stream:
    """Sends numbers in order, twenty at a time, until it is stopped."""

    bootstrap_servers: str
    count: int = 0
    _stopped: threading.Event = attrs.field(factory=threading.Event)

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True})
        while not self._stopped.wait(0.1):
            for _ in range(20):
                producer.produce("orders", b"%d" % self.count)
                self.count += 1
            assert producer.flush(30) == 0

    @contextmanager
    def running(self) -> Iterator[Stream]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            thread.join()


@contextmanager
def command(broker: BrokerThread, target: Target, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``trio-broker pipeline export`` in a process group of its own, with the JVM and the workers it starts."""
    words = ["-b", broker.bootstrap_servers, "--topic", "orders", "--to", str(target), "--master", "local[2]"]
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_broker", "pipeline", "export", *words, "--batch-records", "500", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"nothing in {SECONDS} s"
        time.sleep(0.3)


def rows_in(target: Target) -> int:
    """Counted from the footers, since this is asked often."""
    return sum(pq.read_metadata(path).num_rows for path in Path(target.name).glob("topic=*/**/*.parquet"))


def check(target: Target, count: int) -> None:
    """Every number is there once, at an offset of its own."""
    table = read_table(target)
    assert sorted(map(int, table["value"].to_pylist())) == list(range(count))
    assert sorted(table["offset"].to_pylist()) == list(range(count))


def run_and_kill(broker: BrokerThread, target: Target, kills: int, chance: random.Random) -> int:
    """Kill a continuous export again and again while records come in, then interrupt the last one; return the count.

    The driver alone is killed: what it leaves, JVM and workers, ends by itself, perhaps after the next run began.
    """
    with Stream(broker.bootstrap_servers).running() as stream:
        for _ in range(kills):
            with command(broker, target, "--continuous", "--interval", "0.1") as process:
                known = rows_in(target)
                wait_until(lambda known=known: rows_in(target) > known, process)  # type: ignore[misc]
                time.sleep(chance.random())
                process.kill()
                process.wait()
    with command(broker, target, "--continuous", "--interval", "0.1") as process:
        wait_until(lambda: rows_in(target) >= stream.count, process)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("interrupted; finished work is kept")
    return stream.count


@pytest.mark.soak
def test_an_export_that_is_killed_goes_on_where_it_was_and_ends_with_ctrl_c(tmp_path: Path):
    target = Target(Format.PARQUET, str(tmp_path / "table"))
    with BrokerThread() as broker:
        check(target, run_and_kill(broker, target, 1, random.Random(1)))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_an_export_that_is_killed_again_and_again_has_each_record_once(tmp_path: Path, seed: int):
    target = Target(Format.PARQUET, str(tmp_path / "table"))
    with BrokerThread() as broker:
        check(target, run_and_kill(broker, target, 3, random.Random(seed)))
