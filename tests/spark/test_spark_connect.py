"""The same through Spark Connect, where the client has no JVM and the server finds the format by itself.

The server is in the JVM of the run's session, and the client a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.connect_service import connect_service
from tests.spark.pipelines.command_processes import pipeline_process, rows_in, wait_until
from tests.spark.pipelines.table_rows import read_table
from tests.spark.topic_records import fill, numbers
from tests.waits import communicate, run_program
from trio_broker.cli.pipeline_options import FORCED_END
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOB = "tests.spark.connect_job"
ROOT = Path(__file__).parents[2]
SECONDS = 300
COUNT = 8000


@pytest.fixture
def connect_server(spark: SparkSession) -> Iterator[str]:
    """The address of a server of Spark Connect, for the time of a test."""
    with connect_service(spark) as address:
        yield address


def test_batches_views_streams_exports_and_errors_work_through_connect(
    connect_server: str, kafka_broker_session: BrokerThread, tmp_path: Path
) -> None:
    kafka_broker_session.create_topic("connect")
    fill(kafka_broker_session, "connect", numbers(0, 5))
    words = [connect_server, kafka_broker_session.bootstrap_servers, "connect", str(tmp_path)]
    ended = run_program([sys.executable, "-m", JOB, *words], SECONDS, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout.splitlines()[-1])
    assert results["session"].startswith("pyspark.sql.connect")
    assert results["count"] == results["stream"] == 5
    assert results["values"] == ["0", "1", "2", "3", "4"]
    assert results["view"] == 3
    assert "OptionError: option 'startingOffsets': a batch query cannot begin at the latest offset" in results["error"]
    assert results["exported"] == {"rows": 5}
    table = read_table(Target(Format.PARQUET, str(tmp_path / "table")))
    assert sorted(table["value"].to_pylist()) == numbers(0, 5)
    assert results["parallelism"] == 2
    assert results["results"] == [[{"task": number, "of": task}] for number, task in enumerate("abc")]
    assert results["done"] <= 3
    assert results["failure"] == "orders-0 at offset 1: the segment is gone"


# --- Ctrl-C during an export ---


def export_words(broker: BrokerThread, table: Path) -> list[str]:
    """An export in forty batches of a topic that is created for it."""
    broker.create_topic(table.name)
    fill(broker, table.name, numbers(0, COUNT))
    source = ["-b", broker.bootstrap_servers, "--topic", table.name, "--batch-records", str(COUNT // 40)]
    return ["export", *source, "--to", f"parquet:{table}"]


@contextmanager
def server_process(directory: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server of Spark Connect, and its process, whose group has its JVM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.connect_service", str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> str:
    """Send Ctrl-C to a command, which ends by it; return the last line of its output."""
    process.send_signal(signal.SIGINT)
    output = communicate(process, SECONDS)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
    return [line for line in output.splitlines() if line][-1]


@pytest.mark.soak
def test_an_export_through_connect_that_ctrl_c_ends_keeps_its_work_and_goes_on(
    connect_server: str, kafka_broker_session: BrokerThread, tmp_path: Path
) -> None:
    table = tmp_path / "interrupted"
    words = export_words(kafka_broker_session, table)
    with pipeline_process(*words, master=connect_server) as process:
        wait_until(lambda: rows_in(table) > 0, process)
        assert interrupt(process) == "interrupted; finished work is kept"
    assert 0 < rows_in(table) < COUNT
    with pipeline_process(*words, master=connect_server) as process:
        output = communicate(process, SECONDS)[0]
    assert process.returncode == 0, output
    values = read_table(Target(Format.PARQUET, str(table)))["value"].to_pylist()
    assert sorted(values) == sorted(numbers(0, COUNT))


@pytest.mark.soak
def test_ctrl_c_ends_an_export_through_connect_whose_server_was_killed(
    kafka_broker_session: BrokerThread, tmp_path: Path
) -> None:
    table = tmp_path / "abandoned"
    with server_process(tmp_path / "server") as (address, server):
        words = export_words(kafka_broker_session, table)
        with pipeline_process(*words, master=address) as process:
            wait_until(lambda: rows_in(table) > 0, process)
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            assert interrupt(process) == FORCED_END
    assert 0 < rows_in(table) < COUNT
