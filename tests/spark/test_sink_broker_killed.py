"""A broker is killed and started again while a batch job in a real session writes in transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.producer.consumed_records import read_back, values_of
from tests.waits import TimeLeft, within
from trio_broker.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS, TASKS, ROWS = 3, 2, 20_000
SECONDS = 120


def wait_for(path: Path) -> None:
    time_left = TimeLeft(SECONDS)
    while not path.exists():
        assert not time_left.is_over, path
        time.sleep(0.05)


def test_a_batch_has_each_row_once_though_the_broker_died_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks wait in the middle, with rows sent and their transactions open, until the broker was killed."""

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 0:
                (tmp_path / "halfway").touch()
                time_left = TimeLeft(SECONDS)
                while not (tmp_path / "killed").exists() and not time_left.is_over:
                    time.sleep(0.05)

    def kill_and_start(broker: BrokerProcess) -> None:
        wait_for(tmp_path / "halfway")
        broker.kill()
        # The tasks go on while there is no broker.
        (tmp_path / "killed").touch()
        broker.start()

    with BrokerProcess(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        within(admin.create_topics([NewTopic("written", PARTITIONS, 1)])["written"].result, SECONDS)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.batch.size": "2000", "topic": "written"}
        frame = spark.range(0, ROWS, 1, TASKS).selectExpr("CAST(id AS STRING) AS value")
        writer = frame.mapInArrow(waiting, "value string").write.format("trio_broker").options(**options)
        killer = threading.Thread(target=kill_and_start, args=[broker])
        killer.start()
        writer.option("deliveryGuarantee", "exactly-once").option("writeId", "once").mode("append").save()
        killer.join()
        found = read_back(broker.bootstrap_servers, "written", PARTITIONS)

    assert sorted(int(value or b"") for part in found.values() for value in values_of(part)) == list(range(ROWS))
