"""A broker with topics for the pipelines that read and write topics, and all records of a topic as they are there."""

from __future__ import annotations

from typing import Any

import attrs
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.waits import flushed, within
from trio_broker.testing import BrokerThread

TIME_MS = 1_790_000_000_000


@attrs.frozen
class Kept:
    """A record as a consumer sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = TIME_MS


def send(broker: BrokerThread, topic: str, records: list[Kept], *, partition: int = 0, **settings: str | int) -> None:
    """Send records to one partition; further settings are librdkafka's."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **settings})
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            headers=list(record.headers) or None,
            timestamp=record.timestamp_ms,
        )
    assert flushed(producer, 30)


def kept(broker: BrokerThread, topic: str, partition: int = 0) -> list[Kept]:
    """All records of a partition, in their order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, 30)
        consumer.assign([place])
        found: list[Kept] = []
        while len(found) < end:
            message = within(consumer.poll, 30)
            assert message is not None, f"{len(found)} of {end} records came"
            assert message.error() is None, message.error()
            headers: tuple[Any, ...] = tuple(message.headers() or ())
            found.append(Kept(message.key(), message.value(), headers, message.timestamp()[1]))
        return found
    finally:
        consumer.close()


def numbered(count: int, *, start: int = 0, keys: int = 10) -> list[Kept]:
    """Records with values 0, 1, 2 …, so many keys in turn, a header, and times a second apart."""
    return [
        Kept(b"k%d" % (number % keys), b"%d" % number, (("n", b"%d" % number),), TIME_MS + 1000 * number)
        for number in range(start, start + count)
    ]
