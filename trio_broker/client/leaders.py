"""Requests about partitions, each sent to the broker that leads the partition.

After a leader has moved, or cannot be reached any more, the client looks up the new one, for as long as it takes to
replace a broker. A partition without a leader is reported after a few attempts, so that one such partition does not
delay the answers about all others.

Source: Kafka's PartitionLeaderStrategy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from kafka_wire.error_codes import ErrorCode
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.deadline import attempts
from trio_broker.client.error_codes import RETRIED_BY_COMMANDS
from trio_broker.client.errors import ConnectFailed, ConnectionLost, Refused, TimedOut
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topics import find_topics
from trio_broker.common.topic_partition import TopicPartition

T = TypeVar("T")

LEADER_ROUNDS: Final = 5
"""How many attempts a partition gets that has no leader: none of its replicas may lead. The pauses between five add up
to 1.5 s, which is more than a controller takes to elect one of them."""

ELECTION_SECONDS: Final = 15.0
"""How long partitions are asked about whose leader is named and does not serve them. The brokers notice the loss of one
within ``broker.session.timeout.ms``, 9 s by default."""

AskLeader = Callable[[BrokerConnection, Collection[TopicPartition]], Mapping[TopicPartition, T | Refused]]
"""Sends a request about some partitions to the broker that leads them."""


def ask_leaders(
    client: KafkaClient, partitions: Collection[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T | Refused]:
    """Return the answer for each partition, or the error that took its place. ``ask`` may be called repeatedly."""
    found: dict[TopicPartition, T | Refused] = {}
    wanted: Collection[TopicPartition] = partitions
    # Half of what is left at the most: the next question of the same command has to have its time.
    deadline = client.deadline.within(min(ELECTION_SECONDS, client.deadline.remaining_seconds / 2))
    for round_number, _ in enumerate(attempts(deadline), 1):
        found |= _ask_once(client, wanted, ask)
        is_late = round_number >= LEADER_ROUNDS
        # Only these: a repeated request about the others would cost a round trip and could change their answer.
        wanted = [each for each in wanted if _is_retriable(client, found[each], is_late=is_late)]
        if not wanted:
            break
        client.forget()
    return found


def find_leaders(client: KafkaClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | Refused]:
    """Return the id of the broker that leads each partition, or the error that says why no broker does."""
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


def _is_retriable(client: KafkaClient, found: T | Refused, *, is_late: bool) -> bool:
    if not isinstance(found, Refused):
        return False
    match found.code:
        case ErrorCode.LEADER_NOT_AVAILABLE:
            return not is_late
        # This client's own, about the broker that is said to lead.
        case ErrorCode.BROKER_NOT_AVAILABLE:
            return client.may_replace or not is_late
    return found.code in RETRIED_BY_COMMANDS


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
    """Ask one broker. If it does not answer, its own partitions get that error, and no others."""
    try:
        with client.repeatable_request():
            answers = ask(client.node(leader_id), led)
    except (ConnectFailed, ConnectionLost, TimedOut) as error:
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
