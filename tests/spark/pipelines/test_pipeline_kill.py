"""The real command in a process of its own, killed with -9 while records come in: each is in the table once."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Producer

from tests.spark.pipelines.command_processes import SECONDS, pipeline_process, rows_in, wait_until
from tests.spark.pipelines.table_rows import read_table
from tests.waits import communicate, flushed
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

pytestmark = pytest.mark.spark


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
            assert flushed(producer, 30)

    @contextmanager
    def running(self) -> Iterator[Stream]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            thread.join()


def check(target: Target, count: int) -> None:
    """Every number is there once, at an offset of its own."""
    table = read_table(target)
    assert sorted(map(int, table["value"].to_pylist())) == list(range(count))
    assert sorted(table["offset"].to_pylist()) == list(range(count))


def run_and_kill(broker: BrokerThread, target: Target, kills: int, chance: random.Random) -> int:
    """Kill a continuous export again and again while records come in, then interrupt the last one; return the count."""
    table = Path(target.name)
    where = ["-b", broker.bootstrap_servers, "--topic", "orders", "--to", str(target), "--batch-records", "500"]
    export = ["export", *where, "--continuous", "--interval", "0.1"]
    with ExitStack() as lives:
        with Stream(broker.bootstrap_servers).running() as stream:
            for _ in range(kills):
                process = lives.enter_context(pipeline_process(*export))
                known = rows_in(table)
                wait_until(lambda known=known: rows_in(table) > known, process)  # type: ignore[misc]
                time.sleep(chance.random())
                process.kill()
                process.wait()
        process = lives.enter_context(pipeline_process(*export))
        wait_until(lambda: rows_in(table) >= stream.count, process)
        process.send_signal(signal.SIGINT)
        output = communicate(process, SECONDS)[0]
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
