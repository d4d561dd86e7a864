"""Questions about partitions, each asked of the broker that leads it.

A leader that moved is looked for again; a partition that has none for a while is reported rather than waited for, so
that one of them does not keep the others from being answered.

Source: Kafka's PartitionLeaderStrategy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from kafka_wire.error_codes import ErrorCode
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.deadline import pauses
from trio_broker.client.errors import ConnectFailed, ConnectionLost, Refused
from trio_broker.client.kafka_client import NOT_NOW, PERHAPS_DONE, KafkaClient
from trio_broker.client.topics import find_topics
from trio_broker.topic_partition import TopicPartition

T = TypeVar("T")

LEADER_ROUNDS: Final = 5
"""How often a partition without a leader is asked for: about a second and a half, an ordinary election."""

AskLeader = Callable[[BrokerConnection, Collection[TopicPartition]], Mapping[TopicPartition, T | Refused]]
"""Asks one broker about the partitions that it leads."""


def ask_leaders(
    client: KafkaClient, partitions: Collection[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T | Refused]:
    """Return the answer for each partition, or why there is none. ``ask`` may be called again after an error."""
    found: dict[TopicPartition, T | Refused] = {}
    wanted: Collection[TopicPartition] = partitions
    for rounds, pause in enumerate(pauses(), 1):
        found |= _ask_once(client, wanted, ask)
        wanted = [each for each in wanted if _is_worth_another_round(found[each])]
        if not wanted or rounds == LEADER_ROUNDS or not client.deadline.pause(pause):
            break
    return found


def find_leaders(client: KafkaClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | Refused]:
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


def _is_worth_another_round(found: T | Refused) -> bool:
    return isinstance(found, Refused) and (found.code in NOT_NOW or found.code in PERHAPS_DONE)


def _ask_once(
    client: KafkaClient, partitions: Collection[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T | Refused]:
    found: dict[TopicPartition, T | Refused] = {}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in find_leaders(client, partitions).items():
        if isinstance(leader, Refused):
            found[partition] = leader
        else:
            by_leader[leader].append(partition)
    for leader_id, led in by_leader.items():
        found |= _ask_leader(client, leader_id, led, ask)
    return found


def _ask_leader(
    client: KafkaClient, leader_id: int, led: Collection[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T | Refused]:
    """Ask one broker. One that cannot be reached is an answer too, for its own partitions only."""
    try:
        answers = client.attempt(lambda: ask(client.node(leader_id), led))
    except (ConnectFailed, ConnectionLost) as error:
        return {each: Refused(f"partition {each}", ErrorCode.BROKER_NOT_AVAILABLE, str(error)) for each in led}
    except Refused as error:
        return {each: Refused(f"partition {each}", error.code, str(error)) for each in led}
    left_out = "the broker left it out of its answer"
    return {
        each: answers[each]
        if each in answers
        else Refused(f"partition {each}", ErrorCode.UNKNOWN_SERVER_ERROR, left_out)
        for each in led
    }
