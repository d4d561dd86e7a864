"""The memory of PySpark's workers over ten thousand tasks, in which what they have loaded is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tests.spark.topic_records import fill, numbers
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.soak]

TASKS_OF_A_JOB, JOBS, WARM_UP_JOBS = 500, 20, 4
GROWTH_BYTES = 8 * 1024 * 1024
"""Less than a kilobyte for each task; a worker takes some 150 MB."""


def worker_bytes() -> int:
    """The unshared memory of the workers, of which there are always as many."""
    workers = [each for each in psutil.Process().children(recursive=True) if "pyspark.daemon" in each.cmdline()]
    return sum(each.memory_full_info().uss for each in workers)


def test_workers_do_not_grow_over_ten_thousand_tasks(spark: SparkSession, kafka_broker_session: BrokerThread) -> None:
    kafka_broker_session.create_topic("many-tasks", 1)
    fill(kafka_broker_session, "many-tasks", numbers(0, TASKS_OF_A_JOB))
    sizes = []
    for _ in range(JOBS):
        frame = (
            spark.read.format("trio_broker").option("subscribe", "many-tasks")
            .option("kafka.bootstrap.servers", kafka_broker_session.bootstrap_servers)
            .option("minPartitions", str(TASKS_OF_A_JOB)).load()
        )  # fmt: skip
        assert frame.rdd.getNumPartitions() == TASKS_OF_A_JOB
        assert frame.count() == TASKS_OF_A_JOB
        sizes.append(worker_bytes())

    assert max(sizes[WARM_UP_JOBS:]) < sizes[WARM_UP_JOBS - 1] + GROWTH_BYTES, sizes
