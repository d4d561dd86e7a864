"""The sink that writes exactly once on Apache Kafka: its coordinator, its fencing, its timeouts and Spark's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.compat.kafka_process import KafkaProcess
from tests.spark.exactly_once.job import Job
from tests.spark.producer.consumed_records import read_back, values_of
from tests.waits import eventually, flushed, terminated, within
from trio_broker.client.errors import ClientError
from trio_broker.spark.exactly_once.committer import TransactionExpired
from trio_broker.spark.exactly_once.decision import Decision
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 60
PARTITIONS = 3


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    overrides = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), overrides=overrides) as process:
        yield process


def create(kafka: KafkaProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    within(admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result, SECONDS)


def job_of(kafka: KafkaProcess, topic: str) -> Job:
    create(kafka, topic, 1)
    return Job(kafka.bootstrap_servers, topic)


def test_batches_are_written_once_though_attempts_and_drivers_die(kafka: KafkaProcess) -> None:
    job = job_of(kafka, "once")
    job.write(0, b"lost")
    job.driver.commit(0, [job.write(0, b"a"), job.write(0, b"b", task=1)])
    job.decide(1, job.write(1, b"c"))
    job.driver.commit(1, [job.write(1, b"c")])
    job.driver.commit(1, [job.write(1, b"c")])
    job.driver.commit(2, [job.write(2, b"d")])

    assert job.read() == [b"a", b"b", b"c", b"d"]


def test_a_driver_that_was_taken_over_can_decide_nothing(kafka: KafkaProcess) -> None:
    job = job_of(kafka, "fenced")
    with job.decisions() as zombie:
        zombie.take_over()
        ours = job.write(0, b"a")
        job.driver.commit(0, [job.write(0, b"a")])
        with pytest.raises(ClientError):
            zombie.write(Decision(0, (ours,)))
    with pytest.raises(TransactionExpired):
        job.driver.commit(1, [ours])

    assert job.read() == [b"a"]


def test_what_timed_out_after_the_decision_is_named_and_taken_from_the_repetition(kafka: KafkaProcess) -> None:
    job = attrs.evolve(job_of(kafka, "timed-out"), timeout_ms=1000)
    job.decide(0, job.write(0, b"a"))
    eventually(lambda: not job.open_ids(), SECONDS)
    longer = attrs.evolve(job, timeout_ms=60_000)
    repeated = [longer.write(0, b"a")]

    with pytest.raises(TransactionExpired, match="written in part only: it was decided, and 1 of 1 transactions"):
        longer.driver.commit(0, repeated)
    longer.driver_with(LostTransactions.REWRITE).commit(0, repeated)
    assert job.read() == [b"a"]


# --- In a session ---


def numbers(kafka: KafkaProcess, topic: str) -> list[int]:
    """What a reader of committed records sees."""
    found = read_back(kafka.bootstrap_servers, topic, PARTITIONS)
    return sorted(int(value or b"") for part in found.values() for value in values_of(part))


@pytest.mark.spark
def test_a_batch_with_a_name_is_written_once(spark: SparkSession, kafka: KafkaProcess) -> None:
    create(kafka, "named", PARTITIONS)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "named"}
    for _ in range(2):
        frame = spark.range(0, 1000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        writer = frame.write.format("trio_broker").options(**options, deliveryGuarantee="exactly-once", writeId="it")
        writer.mode("append").save()

    assert numbers(kafka, "named") == list(range(1000))


@pytest.mark.soak
@pytest.mark.spark
def test_a_stream_has_each_row_once_though_a_task_died_halfway(
    spark: SparkSession, kafka: KafkaProcess, tmp_path: Path
) -> None:
    """One row in the middle of a task is too large for the topic: what was sent before it is in a transaction."""
    for topic, partitions in (("given", 2), ("written", PARTITIONS)):
        create(kafka, topic, partitions)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(2000):
        producer.produce("given", b"%d" % number if number != 1200 else b"1200".ljust(50_000), partition=number % 2)
    assert flushed(producer, SECONDS)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}

    def run() -> None:
        rows = spark.readStream.format("trio_broker").options(**options, subscribe="given", startingOffsets="earliest")
        query = (
            rows.load().select("value").writeStream.format("trio_broker").options(**options, topic="written")
            .option("deliveryGuarantee", "exactly-once").option("kafka.batch.size", "2000")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert terminated(query, SECONDS)

    set_max_message_bytes(kafka, "written", 10_000)
    with pytest.raises(Exception, match=r"a record of \d+ bytes with its batch is too large"):
        run()
    assert numbers(kafka, "written") == []
    set_max_message_bytes(kafka, "written", 100_000)
    run()
    producer.produce("given", b"2000", partition=0)
    assert flushed(producer, SECONDS)
    run()

    assert numbers(kafka, "written") == list(range(2001))


def set_max_message_bytes(kafka: KafkaProcess, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    within(admin.incremental_alter_configs([resource])[resource].result, SECONDS)
