"""kafka-python against a real broker process: idempotent by default, fetch sessions, ApiVersions v4."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import OffsetOutOfRangeError, TopicAlreadyExistsError

from tests.waits import scaled, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 30


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[KafkaProducer]:
    client = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_request_size=2_000_000)
    yield client
    client.close()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[KafkaConsumer]:
    client = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="none",
        consumer_timeout_ms=int(scaled(SECONDS) * 1000),
    )
    yield client
    client.close()


def read(consumer: KafkaConsumer, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Any]:
    consumer.assign([TopicPartition(topic, partition)])
    consumer.seek(TopicPartition(topic, partition), offset)
    return list(itertools.islice(consumer, count))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_it_went(
    broker: BrokerProcess, consumer: KafkaConsumer, topic: str, codec: str | None
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec, linger_ms=20)
    futures = [producer.send(topic, b"value %d " % number * 10, b"key", partition=0) for number in range(300)]
    producer.flush()
    producer.close()

    assert [within(future.get, SECONDS).offset for future in futures] == list(range(300))
    assert [record.value for record in read(consumer, topic, 300)] == [b"value %d " % n * 10 for n in range(300)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(
    broker: BrokerProcess, consumer: KafkaConsumer, topic: str, acks: int | str
) -> None:
    idempotent = acks == "all"
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks=acks, enable_idempotence=idempotent)
    producer.send(topic, b"a", partition=0)
    producer.flush()
    producer.close()

    assert [record.value for record in read(consumer, topic, 1)] == [b"a"]


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_records_of_one_byte_to_a_megabyte(
    producer: KafkaProducer, consumer: KafkaConsumer, topic: str, size: int
) -> None:
    value = os.urandom(size)
    within(producer.send(topic, value, partition=0).get, SECONDS)

    assert [record.value for record in read(consumer, topic, 1)] == [value]


def test_null_keys_null_values_headers_and_timestamps(
    producer: KafkaProducer, consumer: KafkaConsumer, topic: str
) -> None:
    producer.send(topic, None, b"tombstone", partition=0)
    within(
        producer.send(topic, b"v", None, headers=[("h", b"x")], partition=0, timestamp_ms=1_700_000_000_123).get,
        SECONDS,
    )

    first, second = read(consumer, topic, 2)
    assert (first.key, first.value) == (b"tombstone", None)
    assert (second.key, second.value, second.timestamp) == (None, b"v", 1_700_000_000_123)
    assert list(second.headers) == [("h", b"x")]


def test_offsets_by_beginning_end_and_time(producer: KafkaProducer, consumer: KafkaConsumer, topic: str) -> None:
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number * 1000)
    producer.flush()
    partition = TopicPartition(topic, 0)

    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    found = consumer.offsets_for_times({partition: 1_700_000_004_500})[partition]
    assert (found.offset, found.timestamp) == (5, 1_700_000_005_000)
    assert consumer.offsets_for_times({partition: 1_800_000_000_000}) == {partition: None}
    assert [record.value for record in read(consumer, topic, 3, offset=7)] == [b"7", b"8", b"9"]


def test_an_offset_out_of_range_is_said(producer: KafkaProducer, consumer: KafkaConsumer, topic: str) -> None:
    within(producer.send(topic, b"only", partition=0).get, SECONDS)
    with pytest.raises(OffsetOutOfRangeError):
        read(consumer, topic, 1, offset=1000)


def test_topics_are_created_described_listed_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])

    assert topic in admin.list_topics()
    [described] = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3

    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_configs_are_described_and_altered(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "600000"})])
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "700000"})])

    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "700000" in str(described)
