"""Where the logs of partitions begin and end, and what offset a time stands for.

Each partition is asked of its leader. A leader that moved is looked for again; a partition that has none for a while is
reported rather than waited for, so that one of them does not keep the others from being shown.

Source: Kafka's ListOffsets API.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from trio_broker.client.deadline import pauses
from trio_broker.client.errors import ConnectFailed, ConnectionLost, Refused
from trio_broker.client.kafka_client import NOT_NOW, PERHAPS_DONE, KafkaClient
from trio_broker.client.topics import find_topics
from trio_broker.topic_partition import TopicPartition

LATEST: Final = -1
"""As a timestamp: the offset that the next record gets to be visible at: the high watermark, or the last stable offset
for those who read committed records only."""

EARLIEST: Final = -2
"""As a timestamp: the first offset that is still there."""

UNKNOWN_OFFSET: Final = -1
"""What a broker answers when no record is as young as the timestamp."""

CONSUMER_REPLICA: Final = -1
"""As a replica id: no replica at all."""

ISOLATION_LEVELS_FROM: Final = 2
"""The first version of ListOffsets in which one can ask for the last stable offset."""

LEADER_ROUNDS: Final = 5
"""How often a partition without a leader is asked for: about a second and a half, an ordinary election."""


@attrs.frozen
class LogRange:
    """The first offset of a log and the one after its last visible record."""

    earliest: int
    latest: int


Found = int | Refused
"""An offset, or why the partition could not tell."""


def find_offsets(
    client: KafkaClient, partitions: Collection[TopicPartition], timestamp: int, *, read_committed: bool = False
) -> dict[TopicPartition, Found]:
    """Return for each partition the offset of ``timestamp``: ``LATEST``, ``EARLIEST`` or milliseconds since 1970.

    For milliseconds it is that of the first record which is at least as young, or ``UNKNOWN_OFFSET``.
    """
    return find_offsets_at(client, dict.fromkeys(partitions, timestamp), read_committed=read_committed)


def find_offsets_at(
    client: KafkaClient, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, Found]:
    """As ``find_offsets``, with a timestamp for each partition. With ``read_committed`` nothing lies behind the last
    stable offset: it is what ``LATEST`` means, and a younger record is not found."""
    isolation_level = 1 if read_committed else 0
    found: dict[TopicPartition, Found] = {}
    wanted = dict(timestamps)
    for rounds, pause in enumerate(pauses(), 1):
        found |= _ask_leaders(client, wanted, isolation_level)
        wanted = {each: wanted[each] for each in wanted if _is_worth_another_round(found[each])}
        if not wanted or rounds == LEADER_ROUNDS or not client.deadline.pause(pause):
            break
    return found


def find_ranges(
    client: KafkaClient, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogRange | Refused]:
    """Return where each partition's log begins and ends."""
    earliest = find_offsets(client, partitions, EARLIEST)
    latest = find_offsets(client, partitions, LATEST)
    return {partition: _range(earliest[partition], latest[partition]) for partition in partitions}


def _range(earliest: Found, latest: Found) -> LogRange | Refused:
    if isinstance(earliest, Refused):
        return earliest
    if isinstance(latest, Refused):
        return latest
    return LogRange(earliest, latest)


def _is_worth_another_round(found: Found) -> bool:
    return isinstance(found, Refused) and (found.code in NOT_NOW or found.code in PERHAPS_DONE)


def _ask_leaders(
    client: KafkaClient, timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, Found]:
    found: dict[TopicPartition, Found] = {}
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, leader in _leaders(client, timestamps).items():
        if isinstance(leader, Refused):
            found[partition] = leader
        else:
            by_leader[leader][partition] = timestamps[partition]
    for leader_id, led in by_leader.items():
        found |= _ask_leader(client, leader_id, led, isolation_level)
    return found


def _leaders(client: KafkaClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | Refused]:
    """Return the leader of each partition by its id, or why there is none."""
    topics = find_topics(client, sorted({partition.topic for partition in partitions}))
    leaders: dict[TopicPartition, int | Refused] = {}
    for partition in partitions:
        topic = topics[partition.topic]
        if isinstance(topic, Refused):
            leaders[partition] = Refused(f"partition {partition}", topic.code)
            continue
        leader_ids = {each.index: each.leader_id for each in topic.partitions}
        leader_id = leader_ids.get(partition.partition)
        if leader_id is None:
            leaders[partition] = Refused(f"partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif leader_id < 0:
            leaders[partition] = Refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            leaders[partition] = leader_id
    return leaders


def _ask_leader(
    client: KafkaClient, leader_id: int, timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, Found]:
    """Ask one broker. One that cannot be reached is an answer too, for its own partitions only."""
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA,
        isolation_level=isolation_level,
        topics=_topics(timestamps),
        timeout_ms=client.deadline.remaining_ms,
    )
    at_least = ISOLATION_LEVELS_FROM if isolation_level else 0
    try:
        response = client.attempt(lambda: client.ask(client.node(leader_id), request, at_least=at_least))
    except (ConnectFailed, ConnectionLost) as error:
        return {each: Refused(f"partition {each}", ErrorCode.BROKER_NOT_AVAILABLE, str(error)) for each in timestamps}
    except Refused as error:
        return {each: Refused(f"partition {each}", error.code, str(error)) for each in timestamps}
    found: dict[TopicPartition, Found] = {
        each: Refused(f"partition {each}", ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
        for each in timestamps
    }
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
