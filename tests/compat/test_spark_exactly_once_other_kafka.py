"""The two-phase commit of the sink on Apache Kafka: its coordinator, its fencing and its list of transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.kafka_process import KafkaProcess
from tests.spark.exactly_once.job import Job
from trio_broker.client.errors import ClientError
from trio_broker.spark.exactly_once.committer import TransactionExpired
from trio_broker.spark.exactly_once.decision import Decision

SECONDS = 30


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    overrides = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), overrides=overrides) as process:
        yield process


def job_of(kafka: KafkaProcess, topic: str) -> Job:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
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
