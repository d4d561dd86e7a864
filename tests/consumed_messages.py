"""What is in partitions, as librdkafka reads them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.waits import within

SECONDS = 30


def consumed(
    servers: str, places: Iterable[tuple[str, int]], *, start: int = OFFSET_BEGINNING, **settings: str | int | bool
) -> list[Message]:
    """The messages of some partitions (topic, number) up to their ends, in the order in which they come.

    ``settings`` are librdkafka's, with underscores for dots.
    """
    given = {"group.id": "reads-by-assignment", "enable.auto.commit": False, "enable.partition.eof": True}
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    left = set(places)
    messages: list[Message] = []
    with closing(Consumer({"bootstrap.servers": servers, **given, **chosen})) as consumer:
        consumer.assign([TopicPartition(topic, partition, start) for topic, partition in left])
        while left:
            message = within(consumer.poll, SECONDS)
            assert message is not None, f"nothing came in {SECONDS} s after {len(messages)} messages"
            if (error := message.error()) is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard((message.topic() or "", message.partition() or 0))
    return messages


def values_by_offset(messages: Iterable[Message]) -> dict[int, bytes]:
    """The values of one partition."""
    found: dict[int, bytes] = {}
    for message in messages:
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        found[offset] = value
    return found
