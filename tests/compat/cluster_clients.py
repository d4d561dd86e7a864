"""What tests of clients of a cluster share: a cluster of quick timeouts, and how to wait for what it does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.waits import TimeLeft, eventually, flushed
from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread

WAIT_SECONDS: Final = 60
PAUSE_SECONDS: Final = 0.05
PARTITIONS: Final = 2

GROUP_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"


def cluster_of_one_shard() -> ClusterThread:
    """A started cluster whose coordinators have one partition each: its leader is the coordinator."""
    return cluster_in_thread(
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=1000,
        group_consumer_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=2000,
        group_consumer_min_heartbeat_interval_ms=300,
        group_consumer_heartbeat_interval_ms=300,
    )


def create_topics(cluster: ClusterThread, *names: str) -> None:
    for name in names:
        cluster.create_topic(name, partitions=PARTITIONS, min_insync_replicas=2)


def in_sync(cluster: ClusterThread) -> bool:
    """Whether all replicas of all partitions are in sync."""
    partitions = [partition for topic in cluster.image.topics.values() for partition in topic.partitions.values()]
    return all(set(each.isr) == set(each.replicas) for each in partitions)


def kill_leader(cluster: ClusterThread, topic: str) -> int:
    """Kill the leader of a topic's first partition; return its id once another leads."""
    leader = cluster.leader_of(topic)
    cluster.kill(leader)
    eventually(lambda: cluster.leader_of(topic) not in (leader, -1), WAIT_SECONDS)
    return leader


def restart(cluster: ClusterThread, node_id: int) -> None:
    """Restart a broker, and return once all replicas are in sync."""
    cluster.restart(node_id)
    eventually(lambda: in_sync(cluster), WAIT_SECONDS)


def write_numbers(cluster: ClusterThread, topic: str, numbers: Iterable[int], template: bytes = b"%d") -> None:
    """Write numbers in ``template``, each to the partition of its remainder, and return when all are acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    failures: list[object] = []
    for number in numbers:
        producer.produce(
            topic,
            template % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert flushed(producer, WAIT_SECONDS)
    assert not failures


def committed_numbers(cluster: ClusterThread, topic: str) -> list[int]:
    """The numbers in a topic up to its last stable offset, in ascending order."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
    }  # fmt: skip
    found: list[int] = []
    ended: set[int | None] = set()
    time_left = TimeLeft(WAIT_SECONDS)
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            assert not time_left.is_over
            message = consumer.poll(PAUSE_SECONDS)
            if message is None:
                continue
            if (error := message.error()) is None:
                found.append(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    return sorted(found)
