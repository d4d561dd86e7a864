"""Batches that a consumer could not read: a real Kafka refuses them, and ours does, with the code that producers
understand.

Kafka 4.3 answers ``INVALID_RECORD`` where counts and records contradict each other, and ``UNKNOWN_SERVER_ERROR`` where
its decompressor throws. Ours says ``INVALID_RECORD`` in these cases too: no retry can help the batch, and nothing broke
in the broker. Kafka passes over keys and values in compressed batches, and takes a record whose fields do not fill it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from fuzz.raw_client import RECORD_TIMESTAMP_MS, create_topic, one_record, produce_error
from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec, compress, decompress
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import NewRecord
from tests.compat.kafka_process import KafkaProcess
from tests.waits import within
from trio_broker.storage.validation import FIRST_PRODUCE_VERSION_WITH_ZSTD
from trio_broker.testing.process import BrokerProcess

PRODUCE_VERSIONS = (3, 7, 8, 12)
"""The oldest, the first with zstd, the first that names records, and the last that names topics."""

PACKED = [codec for codec in Codec if codec is not Codec.NONE]

TAKEN_BY_KAFKA = "a wrong record"

WAIT_SECONDS = 30.0


def changed(data: bytes, *, count: int | None = None, block: bytes | None = None) -> bytes:
    """The batch with another number of records, or other bytes in their place, and a right checksum."""
    batch = bytearray(data if block is None else data[:61] + block)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    if count is not None:
        struct.pack_into(">i", batch, 57, count)
        struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def poison() -> dict[str, bytes]:
    """What is refused, by what is wrong with it."""
    plain = build_batch([NewRecord(RECORD_TIMESTAMP_MS, b"k", b"v")] * 20)
    one = one_record(b"")
    batches = {
        "plain, a count of 2**31-1": changed(one, count=2**31 - 1),
        "plain, a record too many": changed(plain, count=21),
        "plain, a record too few": changed(plain, count=19),
        "plain, many records, a count of 2**31-1": changed(
            build_batch([NewRecord(RECORD_TIMESTAMP_MS, b"k", bytes(1000))] * 50), count=2**31 - 1
        ),
    }
    for codec in PACKED:
        packed = build_batch([NewRecord(RECORD_TIMESTAMP_MS, b"k", bytes(range(100)))] * 20, codec=codec)
        block = packed[61:]
        records = bytearray(decompress(codec, block))
        records[0] += 2
        batches |= {
            f"{codec.name}, a count of 2**31-1": changed(packed, count=2**31 - 1),
            f"{codec.name}, a record too many": changed(packed, count=21),
            f"{codec.name}, a record too few": changed(packed, count=19),
            f"{codec.name}, nothing": changed(packed, block=b""),
            f"{codec.name}, garbage": changed(packed, block=b"garbage" * 20),
            f"{codec.name}, cut short": changed(packed, block=block[: len(block) // 2]),
            f"{codec.name}, a wrong record": changed(packed, block=compress(codec, records)),
        }
    return batches


POISON = poison()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka")) as process:
        create_topic(process.port, "poison")
        yield process


@pytest.fixture(scope="module")
def ours(broker: BrokerProcess) -> BrokerProcess:
    create_topic(broker.port, "poison")
    return broker


every_poison = pytest.mark.parametrize(
    ("name", "version"),
    [
        (name, version)
        for name in POISON
        for version in PRODUCE_VERSIONS
        if version >= FIRST_PRODUCE_VERSION_WITH_ZSTD or not name.startswith("ZSTD")
    ],
)


@every_poison
def test_poison_is_refused(ours: BrokerProcess, name: str, version: int) -> None:
    assert produce_error(ours.port, "poison", POISON[name], version=version) is ErrorCode.INVALID_RECORD


# Kafka's jars are pinned, so what it says changes with the batches only.
@pytest.mark.soak
@every_poison
def test_kafka_refuses_it_as_well(kafka: KafkaProcess, name: str, version: int) -> None:
    theirs = produce_error(kafka.port, "poison", POISON[name], version=version)
    if not name.endswith(TAKEN_BY_KAFKA):
        assert theirs in {ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("name", POISON)
def test_a_consumer_reads_on_after_poison_was_sent(ours: BrokerProcess, name: str) -> None:
    topic = f"after-{list(POISON).index(name)}"
    create_topic(ours.port, topic)
    assert produce_error(ours.port, topic, POISON[name]) is ErrorCode.INVALID_RECORD
    assert produce_error(ours.port, topic, one_record(b"good")) is ErrorCode.NONE
    settings = {"bootstrap.servers": f"127.0.0.1:{ours.port}", "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = within(consumer.poll, WAIT_SECONDS)
        assert message is not None
        assert (message.error(), message.offset(), message.value()) == (None, 0, b"good")
    finally:
        consumer.close()
