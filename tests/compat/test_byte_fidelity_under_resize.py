"""Real text goes through the broker byte for byte, while its thread counts change under the load.

The text is the source of Python's own standard library, which is on every machine that runs these tests. The default
run sends a slice of it; ``-m soak`` sends a million lines with each client.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from tests.oracles import absent
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
SLICE = 20_000
MILLION = 1_000_000

Carrier = Callable[[str, str, list[bytes]], list[bytes]]


def library_lines() -> Iterator[bytes]:
    """Every line of the standard library, without its end, in a fixed order, again and again."""
    files = sorted(Path(os.__file__).parent.glob("**/*.py"))
    for file in itertools.cycle(files):
        yield from file.read_bytes().splitlines()


def through_confluent_kafka(servers: str, topic: str, lines: list[bytes]) -> list[bytes]:
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5}
    )
    for line in lines:
        while True:
            try:
                producer.produce(topic, line, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(SECONDS) == 0
    return read_back(servers, topic, len(lines))


def read_back(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(10_000, timeout=SECONDS)
        assert messages, f"{len(found)} of {count} lines came"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    consumer.close()
    return found


def through_kafka_python(servers: str, topic: str, lines: list[bytes]) -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5, compression_type="gzip", batch_size=262_144)
    for line in lines:
        producer.send(topic, line, partition=0)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=SECONDS * 1000)
    consumer.assign([PythonTopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [record.value for record in itertools.islice(consumer, len(lines))]
    consumer.close()
    return found


def through_aiokafka(servers: str, topic: str, lines: list[bytes]) -> list[bytes]:
    async def scenario() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5, compression_type="zstd") as producer:
            for line in lines:
                await producer.send(topic, line, partition=0)
            await producer.flush()
        consumer = AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            consumer.seek(AioTopicPartition(topic, 0), 0)
            found: list[bytes] = []
            while len(found) < len(lines):
                for records in (await consumer.getmany(timeout_ms=SECONDS * 1000)).values():
                    found += [record.value for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(scenario())


def through_kcat(servers: str, topic: str, lines: list[bytes]) -> list[bytes]:
    kcat = shutil.which("kcat")
    if kcat is None:
        absent("kcat", "kcat is not installed")
    text = b"".join(line + b"\n" for line in lines)
    produce = [kcat, "-b", servers, "-P", "-t", topic, "-p", "0", "-z", "snappy"]
    subprocess.run(produce, input=text, timeout=SECONDS, check=True, capture_output=True)
    consume = [kcat, "-b", servers, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"]
    return subprocess.run(consume, timeout=SECONDS, check=True, capture_output=True).stdout.split(b"\n")[:-1]


def through_kafkajs(servers: str, topic: str, lines: list[bytes]) -> list[bytes]:
    scripts = Path(__file__).parent / "node"
    node = shutil.which("node")
    if node is None or not (scripts / "node_modules" / "kafkajs").exists():
        absent("node", "kafkajs is not installed")
    produce = [node, str(scripts / "kafkajs_lines.js"), servers, topic]
    text = b"".join(line + b"\n" for line in lines)
    told = subprocess.run(produce, input=text, timeout=SECONDS * 5, check=True, capture_output=True).stdout
    assert json.loads(told.splitlines()[-1]) == {"count": len(lines)}
    consume = [node, str(scripts / "kafkajs_read_lines.mjs"), servers, topic, str(len(lines))]
    return subprocess.run(consume, timeout=SECONDS * 5, check=True, capture_output=True).stdout.split(b"\n")[:-1]


class Tuner:
    """Changes the three knobs, by HTTP and by a Kafka client in turn, until it is told to stop."""

    STEPS = (
        ("num.network.threads", (4, 6, 3, 2, 3)),
        ("num.io.threads", (12, 16, 8, 4, 8)),
        ("queued.max.requests", (7, 900, 500)),
    )

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self.enough = threading.Event()
        self.changes = 0
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self.run, name="tuner")

    def run(self) -> None:
        try:
            for round_number in itertools.count():
                for key, values in self.STEPS:
                    for value in values:
                        change = (self.by_http, self.by_kafka_client)[round_number % 2]
                        change(key, str(value))
                        self.changes += 1
                if self.enough.is_set():
                    return
        except BaseException as failure:
            self.failure = failure

    def by_http(self, key: str, value: str) -> None:
        request = urllib.request.Request(
            f"{self.broker.admin_url}api/v1/config",
            data=json.dumps({key: value}).encode(),
            headers={"X-Requested-With": "test", "Content-Type": "application/json"},
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            assert response.status == 200

    def by_kafka_client(self, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def digest(lines: Iterable[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def carry(broker: BrokerProcess, carrier: Carrier, topic: str, count: int) -> None:
    lines = [line for line in itertools.islice(library_lines(), count * 2) if line][:count]
    assert len(lines) == count
    tuner = Tuner(broker)
    tuner.thread.start()
    try:
        found = carrier(broker.bootstrap_servers, topic, lines)
    finally:
        tuner.enough.set()
        tuner.thread.join()

    assert tuner.failure is None, tuner.failure
    assert tuner.changes > 0
    assert len(found) == count
    assert digest(found) == digest(lines)


CARRIERS = [through_confluent_kafka, through_kafka_python, through_aiokafka, through_kcat, through_kafkajs]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_slice_of_real_text_while_the_threads_change(broker: BrokerProcess, topic: str, carrier: Carrier) -> None:
    carry(broker, carrier, topic, SLICE)


@pytest.mark.soak
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_million_lines_while_the_threads_change(broker: BrokerProcess, topic: str, carrier: Carrier) -> None:
    carry(broker, carrier, topic, MILLION)
