"""fsck finds nothing damaged in what a real Kafka leaves after compactions: killed while it served, or stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.kafka_process import KafkaProcess
from tests.waits import eventually, flushed, scaled, within
from trio_broker.cli import main

pytestmark = pytest.mark.compat

SECONDS = 30


CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


# What a stopped one leaves test_import_kafka.py gives to fsck, too.
@pytest.fixture(scope="module", params=["killed", pytest.param("stopped", marks=pytest.mark.soak)])
def left_by_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    overrides = {
        "log.segment.bytes": "1048576",
        "log.flush.interval.messages": "50",
        "log.flush.offset.checkpoint.interval.ms": "500",
        "log.cleaner.backoff.ms": "100",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), overrides=overrides) as kafka:
        servers: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        admin = AdminClient(servers)
        compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        topics = [NewTopic("plain", 2, 1), NewTopic("keyed", 1, 1, config=compacted)]
        for created in admin.create_topics(topics).values():
            within(created.result, SECONDS)
        _write(servers)
        consumer = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["plain"])
        assert consumer.consume(100, scaled(SECONDS))
        consumer.commit(asynchronous=False)
        consumer.close()
        directory = kafka.directory
        await_compaction(directory)
        if request.param == "stopped":
            assert kafka.stop(clean=True) == 0
    found = sorted(path.parent for path in directory.rglob("meta.properties"))
    assert found
    return found[0]


def await_compaction(directory: Path) -> None:
    """Wait until the cleaner has written down that it went over some of the compacted topic."""

    def has_begun() -> bool:
        lines = [line for path in directory.rglob(CLEANER_CHECKPOINT) for line in path.read_text().splitlines()]
        return any(int(line.split()[2]) > 0 for line in lines if line.startswith("keyed 0 "))

    eventually(has_begun, SECONDS, "Kafka compacts")


def _write(servers: dict[str, Any]) -> None:
    producer = Producer({**servers, "transactional.id": "writer", "compression.type": "lz4", "linger.ms": 1})
    producer.init_transactions(SECONDS)
    for number in range(20):
        producer.begin_transaction()
        for i in range(200):
            producer.produce("plain", b"%d" % i * 50, b"k%d" % (i % 7))
            producer.produce("keyed", b"%d" % i * 50, b"k%d" % (i % 7))
        flushed(producer, SECONDS)
        if number % 3:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)


def test_nothing_is_damaged_in_what_kafka_leaves(left_by_kafka: Path) -> None:
    result = CliRunner().invoke(main, ["fsck", "--json", str(left_by_kafka)])
    document = json.loads(result.stdout)
    assert (result.exit_code, document["findings"]) == (0, [])
    assert any(each["partition"] == "plain-0" and each["batches"] > 20 for each in document["partitions"])
    [keyed] = [each for each in document["partitions"] if each["partition"] == "keyed-0"]
    assert keyed["records"] < keyed["log_end_offset"], "some were compacted away"
