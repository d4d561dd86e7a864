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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from tests.checking.thread_tuner import SIZES, ThreadTuner
from tests.oracles import absent
from tests.waits import flushed, run_program, scaled
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
SLICE = 10_000
MILLION = 1_000_000
SEED = 11

Carrier = Callable[[str, str, list[bytes]], list[bytes]]


@pytest.fixture(scope="module")
def has_admin() -> bool:
    return True


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
    assert flushed(producer, SECONDS)
    return read_back(servers, topic, len(lines))


def read_back(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(10_000, timeout=scaled(SECONDS))
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
    consumer = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=int(scaled(SECONDS) * 1000))
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
    run_program(produce, SECONDS, input=text, check=True, capture_output=True)
    consume = [kcat, "-b", servers, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"]
    return run_program(consume, SECONDS, check=True, capture_output=True).stdout.split(b"\n")[:-1]


def through_kafkajs(servers: str, topic: str, lines: list[bytes]) -> list[bytes]:
    scripts = Path(__file__).parent / "node"
    node = shutil.which("node")
    if node is None or not (scripts / "node_modules" / "kafkajs").exists():
        absent("node", "kafkajs is not installed")
    produce = [node, str(scripts / "kafkajs_lines.js"), servers, topic]
    text = b"".join(line + b"\n" for line in lines)
    output = run_program(produce, SECONDS * 5, input=text, check=True, capture_output=True).stdout
    assert json.loads(output.splitlines()[-1]) == {"count": len(lines)}
    consume = [node, str(scripts / "kafkajs_read_lines.mjs"), servers, topic, str(len(lines))]
    return run_program(consume, SECONDS * 5, check=True, capture_output=True).stdout.split(b"\n")[:-1]


def digest(lines: Iterable[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def carry(broker: BrokerProcess, carrier: Carrier, topic: str, count: int) -> None:
    lines = [line for line in itertools.islice(library_lines(), count * 2) if line][:count]
    assert len(lines) == count
    with ThreadTuner(broker, SEED) as tuner:
        found = carrier(broker.bootstrap_servers, topic, lines)

    assert tuner.changes.total() >= len(SIZES)
    assert len(found) == count
    assert digest(found) == digest(lines)


CARRIERS = [through_confluent_kafka, through_kafka_python, through_aiokafka, through_kcat, through_kafkajs]


# kafkajs takes as much CPU as the others together: by night it carries a million lines.
@pytest.mark.parametrize("carrier", [each for each in CARRIERS if each is not through_kafkajs])
def test_a_slice_of_real_text_while_the_threads_change(broker: BrokerProcess, topic: str, carrier: Carrier) -> None:
    carry(broker, carrier, topic, SLICE)


@pytest.mark.soak
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_million_lines_while_the_threads_change(broker: BrokerProcess, topic: str, carrier: Carrier) -> None:
    carry(broker, carrier, topic, MILLION)
