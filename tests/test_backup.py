"""The backup of ``docs/deploying.md``: copied while the broker runs under load, restored elsewhere, nothing lost.

What was acknowledged before the copy began is there; what came while it was made may be, up to some offset in each
partition; and offsets of groups are not beyond the records.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.consumed_messages import consumed, values_by_offset
from tests.fork_server import run_command
from tests.oracles import absent
from tests.waits import flushed, within
from trio_broker.testing.process import BrokerProcess

PAGE = Path(__file__).parents[1] / "docs" / "deploying.md"
SECONDS = 60
PARTITIONS = 3
BEFORE_THE_COPY = 3_000
"""Acknowledged records, which are several segments in each partition."""

TOPIC, GROUP = "Orders", "billing"
"""In capitals, which sort before the topics of the broker."""


def backup_commands() -> str:
    block = re.search(r"^```sh\n(# A backup.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1]


class Load:
    """Sends numbered records to all partitions, and a reader commits what it has read, until stopped."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.enough = threading.Event()
        self.progress = threading.Condition()
        self.acknowledged: dict[int, dict[int, bytes]] = {partition: {} for partition in range(PARTITIONS)}
        self.threads = [threading.Thread(target=work) for work in (self.send, self.read)]

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        with self.progress:
            self.acknowledged[partition][offset] = value
            self.progress.notify_all()

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for(self, count: int) -> None:
        with self.progress:
            assert within(partial(self.progress.wait_for, lambda: self.count() >= count), SECONDS)

    def send(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "batch.num.messages": 50})
        number = 0
        while not self.enough.is_set():
            if len(producer) < 500:
                value = b"%d " % number + b"." * 1_500
                producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self.delivered)
                number += 1
            producer.poll(0.001)
        assert flushed(producer, SECONDS)

    def read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        while not self.enough.is_set():
            if consumer.consume(100, 0.1):
                consumer.commit(asynchronous=False)
        consumer.close()

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.enough.set()
        for thread in self.threads:
            thread.join()


def records(servers: str, partition: int) -> dict[int, bytes]:
    return values_by_offset(consumed(servers, [(TOPIC, partition)]))


def committed_offsets(servers: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": servers})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    return {each.partition: each.offset for each in future.result(SECONDS).topic_partitions}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "offsets.topic.num.partitions": "4",
        "log.segment.bytes": "1048576",
        "log.flush.offset.checkpoint.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    }
    with BrokerProcess(tmp_path / "data", overrides=settings, has_admin=False) as broker:
        yield broker


def test_a_backup_that_is_made_under_load_has_all_that_was_acknowledged_before(broker, tmp_path):
    if shutil.which("rsync") is None:
        absent("rsync", "there is no rsync")
    servers = broker.bootstrap_servers
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([topic])[TOPIC].result(SECONDS)
    copy = tmp_path / "copy" / "data"
    copy.parent.mkdir()
    script = f"set -eu\ndata={broker.data_directory} backup={copy}\n{backup_commands()}"
    with Load(servers) as load:
        load.wait_for(BEFORE_THE_COPY)
        before = {partition: dict(values) for partition, values in load.acknowledged.items()}
        # Twice, as a second backup into the same directory.
        for _ in range(2):
            subprocess.run(["sh", "-c", script], check=True, timeout=SECONDS * 10)
    broker.kill()
    checked = run_command(["fsck", copy], SECONDS * 10)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with BrokerProcess(copy, has_admin=False) as restored:
        found = {partition: records(restored.bootstrap_servers, partition) for partition in range(PARTITIONS)}
        for partition, values in before.items():
            assert values.items() <= found[partition].items()
            assert found[partition].items() <= load.acknowledged[partition].items()
        offsets = committed_offsets(restored.bootstrap_servers)
        assert offsets
        assert [offset <= len(found[partition]) for partition, offset in offsets.items()] == [True] * len(offsets)
        assert restored.stop() == 0
    assert [line for line in restored.output if " ERROR " in line or " WARNING " in line] == []
