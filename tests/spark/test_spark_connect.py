"""The same through Spark Connect, where the client has no JVM and the server finds the format by itself.

The server is in the JVM of the run's session, and the client a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.table_rows import read_table
from tests.spark.topic_records import fill, numbers
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOB = "tests.spark.connect_job"
ROOT = Path(__file__).parents[2]
SECONDS = 300


@pytest.fixture
def connect_server(spark: SparkSession) -> Iterator[str]:
    """The address of a server of Spark Connect, for the time of a test."""
    jvm: Any = spark._jvm
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


def test_batches_views_streams_exports_and_errors_work_through_connect(
    connect_server: str, kafka_broker_session: BrokerThread, tmp_path: Path
) -> None:
    kafka_broker_session.create_topic("connect")
    fill(kafka_broker_session, "connect", numbers(0, 5))
    words = [connect_server, kafka_broker_session.bootstrap_servers, "connect", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-m", JOB, *words], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["session"].startswith("pyspark.sql.connect")
    assert told["count"] == told["stream"] == 5
    assert told["values"] == ["0", "1", "2", "3", "4"]
    assert told["view"] == 3
    assert "OptionError: option 'startingOffsets': a batch query cannot begin at the latest offset" in told["error"]
    assert told["exported"] == {"rows": 5}
    table = read_table(Target(Format.PARQUET, str(tmp_path / "table")))
    assert sorted(table["value"].to_pylist()) == numbers(0, 5)
    assert told["parallelism"] == 2
    assert told["results"] == [[{"task": number, "of": task}] for number, task in enumerate("abc")]
    assert told["done"] <= 3
    assert told["failure"] == "orders-0 at offset 1: the segment is gone"
