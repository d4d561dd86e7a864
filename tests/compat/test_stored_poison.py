"""Poison batches that lie in a log already, stored by a broker that did not refuse them.

fsck names each of them and its offset. The Java consumer reads on behind one, or throws an error that says where it is.
librdkafka passes over wrong counts; compressed records that it cannot inflate stop it, some for ever and some with an
abort of its process, so what it meets there is not asked. Deleting the records up to there lets everybody read on.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from fuzz.raw_client import create_topic, one_record, produce_error
from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.batch import read_batch_header
from tests.compat.test_poison_batches import POISON, TAKEN_BY_KAFKA
from tests.java_programs import Java, Steps
from tests.waits import within
from trio_broker.cli import main
from trio_broker.testing.process import BrokerProcess

SECONDS = 30.0

POISON_OFFSET = 1
"""Behind one good record."""

TOPICS = {name: f"poison-{number}" for number, name in enumerate(POISON)}

COUNTS = [name for name in POISON if "a count" in name or name.endswith(("too many", "too few"))]
UNREADABLE = [name for name in POISON if name not in COUNTS and not name.endswith(TAKEN_BY_KAFKA)]


@attrs.frozen
class StoredPoison:
    """A running broker with a good record, a poison batch and another good record in each topic, and what fsck said
    before it was started."""

    process: BrokerProcess
    findings: list[dict[str, Any]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredPoison]:
    data = tmp_path_factory.mktemp("poison")
    process = BrokerProcess(data, overrides={"log.durability": "page-cache"}, has_admin=False)
    with process:
        for topic in TOPICS.values():
            create_topic(process.port, topic)
            assert produce_error(process.port, topic, one_record(b"first")) is ErrorCode.NONE
    for name, topic in TOPICS.items():
        append_unchecked(data / f"{topic}-0" / f"{0:020d}.log", POISON[name])
    report = CliRunner().invoke(main, ["fsck", "--json", str(data)])
    with process:
        for topic in TOPICS.values():
            assert produce_error(process.port, topic, one_record(b"good")) is ErrorCode.NONE
        yield StoredPoison(process, json.loads(report.stdout)["findings"])


def append_unchecked(path: Path, poison: bytes) -> None:
    batch = bytearray(poison)
    struct.pack_into(">qii", batch, 0, POISON_OFFSET, len(batch) - 12, 0)
    path.write_bytes(path.read_bytes() + batch)


def read_until_good(port: int, topics: list[str]) -> None:
    """Read all topics from their beginning by librdkafka, each until its good record.

    Raises:
        AssertionError: an error came instead, or nothing.
    """
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", **settings})
    left = set(topics)
    try:
        consumer.assign([TopicPartition(topic, 0) for topic in topics])
        while left:
            message = within(consumer.poll, SECONDS)
            assert message is not None, left
            assert message.error() is None, message.error()
            if message.value() == b"good":
                left.discard(str(message.topic()))
    finally:
        consumer.close()


@pytest.mark.parametrize("name", POISON)
def test_fsck_names_a_stored_poison_batch(stored: StoredPoison, name: str) -> None:
    [found] = [each for each in stored.findings if each["partition"] == f"{TOPICS[name]}-0"]
    assert (found["kind"], found["offset"]) == ("batch", POISON_OFFSET)


def test_librdkafka_passes_over_wrong_counts(stored: StoredPoison) -> None:
    read_until_good(stored.process.port, [TOPICS[name] for name in COUNTS])


def test_the_java_consumer_passes_or_says_where_it_stopped(stored: StoredPoison, java: Java) -> None:
    steps = Steps(java.run("ReadPast", stored.process.bootstrap_servers, *TOPICS.values()))
    met = {name: str(steps.result(topic)) for name, topic in TOPICS.items()}
    unclear = {name: text for name, text in met.items() if text != "past" and f"{TOPICS[name]}-0" not in text}
    assert not unclear


def test_after_its_records_are_deleted_everybody_reads_on(stored: StoredPoison) -> None:
    """The end of the log before the poison was stored is what fsck named; the batch says where it ends."""
    admin = AdminClient({"bootstrap.servers": stored.process.bootstrap_servers})
    behind = [
        TopicPartition(TOPICS[name], 0, POISON_OFFSET + read_batch_header(POISON[name]).last_offset_delta + 1)
        for name in UNREADABLE
    ]
    for deleted in admin.delete_records(behind).values():
        within(deleted.result, SECONDS)
    read_until_good(stored.process.port, [TOPICS[name] for name in UNREADABLE])
