"""Tasks in a worker that PySpark's own daemon has forked, without Spark: the test sends what the JVM would."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.waits import TimeLeft, scaled
from trio_broker.spark.decoder import Engine, available_engine

WAIT_SECONDS = 300
"""numba compiles for some 15 s of CPU, on a busy machine beside many other processes."""

PAUSE_SECONDS = 0.1

MODULE = """
import gc, json, os, struct, time

def load():
    from trio_broker.spark import decoder

    while not os.path.exists(os.environ["MAY_LOAD"]):
        time.sleep(0.01)
    return decoder.available_engine()

def main(infile, outfile):
    from tests.spark.decoder.decoder_logs import COLUMNS, PARTITION, chunk, numbered
    from trio_broker.spark import decoder
    from trio_broker.spark.background_load import BackgroundLoad
    from trio_broker.spark.workarounds import worker_memory
    from trio_broker.spark.chunk import Decoding
    from trio_broker.spark.ranges import OffsetRange
    from trio_broker.spark.task_partition import TaskPartition, read_partition
    from trio_broker.spark.tasks import ReadTask

    class Transport:
        def chunks(self, offsets):
            yield chunk(numbered(1000))
            yield chunk(numbered(1000, 1000))

    if decoder._loaded_engine._load is not load:
        decoder._loaded_engine = BackgroundLoad(load, min_rows=3000)
    task = TaskPartition(ReadTask(OffsetRange(PARTITION, 0, 2000), Transport(), Decoding(tuple(COLUMNS))))
    rows = sum(batch.num_rows for batch in read_partition(task))
    report = {
        "is_worker": worker_memory.is_worker(),
        "rows": rows,
        "engine": decoder.ready_engine().value,
        "is_loading": bool(worker_memory._loads),
        "frozen": gc.get_freeze_count(),
        "left": len(gc.get_objects()),
    }
    text = json.dumps(report).encode()
    outfile.write(struct.pack("!i", len(text)) + text)
    outfile.flush()
"""


@attrs.frozen
class Worker:
    """A worker, from the view of the JVM."""

    stream: BufferedIOBase

    def run_task(self) -> dict[str, Any]:
        """Return the report of the next task; the worker collects garbage, and runs the one after it."""
        report: dict[str, Any] = json.loads(self.receive())
        return report

    def receive(self) -> bytes:
        [size] = struct.unpack("!i", self.stream.read(4))
        return self.stream.read(size)


@contextmanager
def worker(directory: Path, **variables: str) -> Iterator[Worker]:
    """Start the daemon, which forks one worker; it runs tasks one after the other until it is closed.

    Its second task begins to load compiled code, which is loaded once there is a file ``may-load`` in the directory.
    """
    (directory / "pyspark_task.py").write_text(MODULE)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(directory), *sys.path]),
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        "SPARK_REUSE_WORKER": "1",
        "MAY_LOAD": str(directory / "may-load"),
        **variables,
    }
    command = [sys.executable, "-m", "pyspark.daemon", "pyspark_task"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        try:
            [port] = struct.unpack("!i", daemon.stdout.read(4))
            with socket.create_connection(("127.0.0.1", port), scaled(WAIT_SECONDS)) as connection:
                stream = connection.makefile("rwb")
                assert struct.unpack("!i", stream.read(4))[0] > 0
                stream.write(struct.pack("!i", 6) + b"secret")
                stream.flush()
                running = Worker(stream)
                assert running.receive() == b"ok"
                yield running
        finally:
            daemon.stdin.close()
            daemon.kill()


def begin_and_go_on(directory: Path, **variables: str) -> None:
    """Run tasks before, while and after compiled code is loaded."""
    with worker(directory, **variables) as running:
        first, second = running.run_task(), running.run_task()
        for task, is_loading in ((first, False), (second, True)):
            assert task["is_worker"]
            assert task["rows"] == 2000
            assert task["engine"] == "plain"
            assert task["is_loading"] == is_loading
        (directory / "may-load").touch()
        time_left = TimeLeft(WAIT_SECONDS)
        while task["engine"] != "numba" and not time_left.is_over:
            assert task["rows"] == 2000
            assert task["frozen"] <= second["frozen"] or not task["is_loading"]
            # Tasks without a pause, and the collections between them, would leave the compiler hardly any time.
            time.sleep(PAUSE_SECONDS)
            task = running.run_task()
        last = running.run_task()

    assert last["engine"] == "numba"
    assert last["rows"] == 2000
    # So little is left to be looked at after each task.
    assert last["left"] < last["frozen"] / 10


def test_a_worker_begins_at_once_and_goes_on_with_compiled_code_which_it_freezes(tmp_path: Path) -> None:
    # Compiled here, if no other test has done so: beside tasks it would take much longer.
    assert available_engine() == Engine.NUMBA
    begin_and_go_on(tmp_path)


@pytest.mark.soak
def test_so_does_a_worker_that_has_to_compile_the_code(tmp_path: Path) -> None:
    begin_and_go_on(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert list((tmp_path / "cache").rglob("fill-*.machine-code"))
