"""Executors that are killed during a scan, a stream, a sink's batch and an export; what docs promise is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.pipelines.table_rows import read_table
from tests.spark.producer.consumed_records import read_back, values_of
from tests.spark.topic_records import fill, numbers
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

# Soak: a driver and two executors are three JVMs, and four of them are started anew.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
COUNT = 1200
PARTITIONS = 2
SECONDS = 600


def test_each_row_is_there_once_though_an_executor_was_killed_in_each_job(
    kafka_broker_session: BrokerThread, tmp_path: Path
) -> None:
    for topic in ("killed-source", "killed-sink"):
        kafka_broker_session.create_topic(topic, PARTITIONS)
    half = COUNT // 2
    fill(kafka_broker_session, "killed-source", numbers(0, half), partition=0)
    fill(kafka_broker_session, "killed-source", numbers(half, COUNT), partition=1)
    servers = kafka_broker_session.bootstrap_servers

    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.executors_job", servers, "killed-source", "killed-sink", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert {name for name in ("scan", "stream", "sink", "export") if (tmp_path / name).exists()} == {
        "scan",
        "stream",
        "sink",
        "export",
    }
    told = json.loads(ended.stdout.splitlines()[-1])
    every_number = list(range(COUNT))
    assert told["scan"] == told["stream"] == every_number
    assert told["exported"] == {"rows": COUNT}
    assert sorted(map(int, read_table(Target(Format.PARQUET, str(tmp_path / "table")))["value"].to_pylist())) == (
        every_number
    )
    found = read_back(servers, "killed-sink", PARTITIONS)
    assert sorted(int(value or b"") for part in found.values() for value in values_of(part)) == every_number
