"""A broker is killed and started again while a batch job in a real session writes in transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.producer.consumed_records import read_back, values_of
from tests.waits import eventually, within
from trio_broker.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS, TASKS, ROWS = 3, 2, 20_000
SECONDS = 120


def test_a_batch_has_each_row_once_though_the_broker_died_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks wait in the middle, with rows sent and their transactions open, until the broker was killed."""

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 0:
                (tmp_path / "halfway").touch()
                eventually((tmp_path / "killed").exists, SECONDS)

    def kill_and_start(broker: BrokerProcess) -> None:
        eventually((tmp_path / "halfway").exists, SECONDS)
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
