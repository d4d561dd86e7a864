"""The name of one partition, used by every floor above the wire."""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.frozen(order=True, slots=True, cache_hash=True)
class TopicPartition:
    """One partition of one topic. Prints as Kafka's directories are named: ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """``partitions`` in order, so that the same ones are written in the same way everywhere."""
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    return topics
