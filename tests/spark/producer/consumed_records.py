"""What is in a topic, read by clients that were not written here and that check every CRC."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.waits import within
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.row_ids import Deduplicator, find_row_id

SECONDS = 20


def read_back(bootstrap_servers: str, topic: str, partitions: int = 3) -> dict[int, list[Message]]:
    """All records by partition, by librdkafka, with its check of CRCs on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "check.crcs": True,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([ConfluentPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: dict[int, list[Message]] = {number: [] for number in range(partitions)}
    ends = 0
    try:
        while ends < partitions:
            message = within(consumer.poll, SECONDS)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
                continue
            number = message.partition()
            assert number is not None
            found[number].append(message)
    finally:
        consumer.close()
    return found


def values_of(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def new_values(topic: str, messages: list[Message]) -> list[bytes | None]:
    """The values of one partition that a consumer takes which knows repeated rows by their ids, if they have any."""
    seen = Deduplicator()
    found: list[bytes | None] = []
    for message in messages:
        row_id = find_row_id(headers_of(message))
        if row_id is None or seen.is_new(TopicPartition(topic, message.partition() or 0), row_id):
            found.append(message.value())
    return found


def by_kafka_python(bootstrap_servers: str, topic: str, partition: int) -> list[tuple[Any, ...]]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", check_crcs=True)
    try:
        place = KafkaPythonPartition(topic, partition)
        consumer.assign([place])
        [end] = consumer.end_offsets([place]).values()
        found: list[Any] = []
        while len(found) < end:
            found += consumer.poll(SECONDS * 1000).get(place, [])
        return [(each.key, each.value, each.timestamp, list(each.headers)) for each in found]
    finally:
        consumer.close()


def headers_of(message: Message) -> list[Any]:
    """The headers of a record, of which librdkafka says no more than that they may be texts or a dictionary."""
    return list(message.headers() or [])
