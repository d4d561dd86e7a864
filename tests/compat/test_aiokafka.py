"""aiokafka against a real broker process: ApiVersions v0, old message versions, legacy AlterConfigs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.waits import scaled
from trio_broker.testing.process import BrokerProcess

SECONDS = 30


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run ``coroutine`` on asyncio, in a test that is synchronous so that pytest-trio leaves it alone."""
    return asyncio.run(asyncio.wait_for(coroutine, scaled(SECONDS * 2)))


async def read(
    servers: str, topic: str, count: int, *, offset: int = 0, isolation: str = "read_uncommitted"
) -> list[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none", isolation_level=isolation)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)
        return [await asyncio.wait_for(consumer.getone(), scaled(SECONDS)) for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_it_went(broker: BrokerProcess, topic: str, codec: str | None) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec) as producer:
            sent = [await producer.send(topic, b"value %d " % n * 10, partition=0) for n in range(200)]
            assert [(await future).offset for future in sent] == list(range(200))
        records = await read(broker.bootstrap_servers, topic, 200)
        assert [record.value for record in records] == [b"value %d " % n * 10 for n in range(200)]

    run(scenario())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(broker: BrokerProcess, topic: str, acks: int | str) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks=acks) as producer:
            await producer.send_and_wait(topic, b"a", partition=0)
        [record] = await read(broker.bootstrap_servers, topic, 1)
        assert record.value == b"a"

    run(scenario())


def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True) as producer:
            sent = [await producer.send(topic, b"%d" % n, partition=0) for n in range(500)]
            assert [(await future).offset for future in sent] == list(range(500))
        records = await read(broker.bootstrap_servers, topic, 500, isolation="read_committed")
        assert [record.value for record in records] == [b"%d" % n for n in range(500)]

    run(scenario())


def test_headers_nulls_and_offsets_by_time(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, None, b"k", partition=0, timestamp_ms=1_700_000_000_000)
            await producer.send_and_wait(
                topic, b"v", None, partition=0, timestamp_ms=1_700_000_005_000, headers=[("h", b"x")]
            )
        first, second = await read(broker.bootstrap_servers, topic, 2)
        assert (first.key, first.value) == (b"k", None)
        assert (second.key, second.value, second.headers) == (None, b"v", (("h", b"x"),))
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        await consumer.start()
        try:
            partition = TopicPartition(topic, 0)
            found = await consumer.offsets_for_times({partition: 1_700_000_001_000})
            assert found[partition].offset == 1
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 2}
        finally:
            await consumer.stop()

    run(scenario())


def test_topics_are_created_described_and_deleted(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
            assert topic in await admin.list_topics()
            [described] = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "700000"})
            await admin.alter_configs([resource])
            answer = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            assert "700000" in str(answer)
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    run(scenario())
