"""Tasks that are run again, and tasks of which two attempts run at once, in a real session; each row is there once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.spark.exactly_once.attempts_job import ROWS_OF_A_TASK, TASKS
from tests.spark.producer.consumed_records import read_back, values_of
from tests.waits import run_program
from trio_broker.testing import BrokerThread

# Soak: a driver and two executors are three JVMs.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[3]
PARTITIONS = 3
SECONDS = 600


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_tasks_that_fail_and_tasks_that_are_speculated_leave_each_row_once(
    kafka_broker_session: BrokerThread, tmp_path: Path, kind: str
) -> None:
    topic = f"attempts-{kind}"
    kafka_broker_session.create_topic(topic, PARTITIONS)
    servers = kafka_broker_session.bootstrap_servers

    run_program(
        [sys.executable, "-m", "tests.spark.exactly_once.attempts_job", servers, kind, topic, str(tmp_path)],
        SECONDS,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        check=True,
    )

    attempts = {each.name for each in tmp_path.glob("task-*")}
    assert attempts >= {f"task-{task}-attempt-{attempt}" for task in (0, 1) for attempt in (0, 1)}
    found = read_back(servers, topic, PARTITIONS)
    values = sorted(int(value or b"") for part in found.values() for value in values_of(part))
    # A stream may have begun another micro-batch, which is there once as well, or not at all.
    assert len(values) == len(set(values))
    assert values[: TASKS * ROWS_OF_A_TASK] == list(range(TASKS * ROWS_OF_A_TASK))
