"""The first and last offsets of partitions, and the offset of the first record at or after a time.

Each request goes to the leader of its partitions (``leaders``).

Source: Kafka's ListOffsets API.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    SpecialTimestamp,
)
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.leaders import ask_leaders
from trio_broker.common.log_range import LogRange
from trio_broker.common.topic_partition import TopicPartition

CONSUMER_REPLICA: Final = -1
"""The replica id of a client that is not a replica."""

ISOLATION_LEVELS_FROM: Final = 2
"""The version of ListOffsets from which on a request has an isolation level (KIP-98)."""


Found = int | Refused
"""An offset, or the error that the partition's leader gave."""


def find_offsets(
    client: KafkaClient, partitions: Collection[TopicPartition], timestamp: int, *, read_committed: bool = False
) -> dict[TopicPartition, Found]:
    """Return for each partition the offset of ``timestamp``: milliseconds since 1970, or a ``SpecialTimestamp``.

    For milliseconds it is that of the first record which is at least as young, or ``UNKNOWN_OFFSET``.
    """
    return find_offsets_at(client, dict.fromkeys(partitions, timestamp), read_committed=read_committed)


def find_offsets_at(
    client: KafkaClient, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, Found]:
    """As ``find_offsets``, with a timestamp for each partition.

    With ``read_committed`` the log ends at the last stable offset: ``LATEST`` means that offset, and a record at or
    after it is not found.
    """
    isolation_level = IsolationLevel.of(read_committed=read_committed)

    def ask(leader: BrokerConnection, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Found]:
        return _ask_leader(client, leader, {each: timestamps[each] for each in partitions}, isolation_level)

    return ask_leaders(client, timestamps, ask)


def find_ranges(
    client: KafkaClient, partitions: Collection[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, LogRange | Refused]:
    """Return the range of each partition's log; with ``read_committed`` it ends at the last stable offset."""
    # The beginning is asked for first. Both ends only move forward, so the end is never before the beginning.
    earliest = find_offsets(client, partitions, SpecialTimestamp.EARLIEST)
    latest = find_offsets(client, partitions, SpecialTimestamp.LATEST, read_committed=read_committed)
    return {partition: _range(earliest[partition], latest[partition]) for partition in partitions}


def _range(earliest: Found, latest: Found) -> LogRange | Refused:
    if isinstance(earliest, Refused):
        return earliest
    if isinstance(latest, Refused):
        return latest
    return LogRange(earliest, latest)


def _ask_leader(
    client: KafkaClient,
    leader: BrokerConnection,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel,
) -> dict[TopicPartition, Found]:
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA,
        isolation_level=isolation_level,
        topics=_topics(timestamps),
        timeout_ms=client.deadline.remaining_ms,
    )
    response = client.ask(leader, request, at_least=ISOLATION_LEVELS_FROM if isolation_level else 0)
    found: dict[TopicPartition, Found] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            found[partition] = (
                Refused(f"partition {partition}", answer.error_code) if answer.error_code else answer.offset
            )
    return found


def _topics(timestamps: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    by_topic: Mapping[str, list[ListOffsetsPartition]] = defaultdict(list)
    for each, timestamp in sorted(timestamps.items()):
        by_topic[each.topic].append(ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp))
    return [ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()]
