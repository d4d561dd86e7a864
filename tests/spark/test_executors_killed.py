"""Executors that are killed in a scan, a stream, a sink's batch and each pipeline; what docs promise is there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.executors_job import GUARANTEES, JOBS, JSON_SOURCE, SINK, SOURCE
from tests.spark.pipelines.table_rows import read_table
from tests.spark.producer.consumed_records import new_values, read_back, values_of
from tests.spark.topic_records import fill, numbers
from tests.waits import run_program
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

# Soak: a driver and two executors are three JVMs, and one of them is started anew in each job.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
COUNT = 1200
PARTITIONS = 2
SECONDS = 900


def test_each_row_is_there_once_though_an_executor_was_killed_in_each_job(
    kafka_broker_session: BrokerThread, tmp_path: Path
) -> None:
    written = [f"{kind}-{guarantee}" for kind in ("replay", "restore") for guarantee in GUARANTEES]
    for topic in (SOURCE, SINK, *written):
        kafka_broker_session.create_topic(topic, PARTITIONS)
    kafka_broker_session.create_topic(JSON_SOURCE)
    halves = [numbers(0, COUNT // 2), numbers(COUNT // 2, COUNT)]
    for partition, values in enumerate(halves):
        fill(kafka_broker_session, SOURCE, values, partition=partition)
    fill(kafka_broker_session, JSON_SOURCE, [b"%d" % n if n % 3 == 0 else b'{"id": %d}' % n for n in range(COUNT)])
    servers = kafka_broker_session.bootstrap_servers

    ended = run_program(
        [sys.executable, "-m", "tests.spark.executors_job", servers, str(tmp_path)],
        SECONDS,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr
    assert [name for name in JOBS if not (tmp_path / name).exists()] == []
    results = json.loads(ended.stdout.splitlines()[-1])
    every_number = list(range(COUNT))
    assert results["scan"] == results["stream"] == every_number
    found = read_back(servers, SINK, PARTITIONS)
    assert sorted(int(value or b"") for part in found.values() for value in values_of(part)) == every_number
    assert results["export"] == {"rows": COUNT}
    assert sorted(map(int, values_in(tmp_path / "table", "value"))) == every_number
    assert results["etl"] == {"rows": COUNT * 2 // 3, "dead_letters": COUNT // 3}
    assert sorted(values_in(tmp_path / "typed", "id")) == [n for n in every_number if n % 3]
    assert sorted(map(int, values_in(tmp_path / "typed_dead_letters", "value"))) == every_number[::3]
    assert results["rounds"] == [[3, 3]] * len(GUARANTEES)
    for topic in written:
        found = read_back(servers, topic, PARTITIONS)
        assert [new_values(topic, found[partition]) for partition in range(PARTITIONS)] == halves, topic
        # Without transactions the killed task has written its slice, too.
        is_once = topic.endswith("exactly-once")
        assert (sum(map(len, found.values())) == COUNT) == is_once, topic


def values_in(directory: Path, column: str) -> list[Any]:
    values: list[Any] = read_table(Target(Format.PARQUET, str(directory)))[column].to_pylist()
    return values
