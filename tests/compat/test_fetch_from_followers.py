"""Clients that were not written here read from the replica in their rack, and go on when the leader dies (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from tests.compat.cluster_clients import WAIT_SECONDS, create_topics, in_sync, kill_leader, write_numbers
from tests.waits import TimeLeft, eventually
from trio_broker.config.replication_config import RACK_AWARE_REPLICA_SELECTOR
from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread

RACKS = ("a", "b", "c")
FIRST, LATER = range(0, 100, 2), range(100, 200, 2)
"""Even numbers: all of them are in partition 0."""

Read = Callable[[], bytes | None]
"""Polls once for the next value."""


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with cluster_in_thread(racks=RACKS, replica_selector_class=RACK_AWARE_REPLICA_SELECTOR) as running:
        yield running


@contextmanager
def confluent_reader(cluster: ClusterThread, rack: str) -> Iterator[Read]:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "client.rack": rack, "log_level": 0,
        "isolation.level": "read_committed",
    }  # fmt: skip
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])

        def read() -> bytes | None:
            message = consumer.poll(0.1)
            return None if message is None or message.error() else message.value()

        yield read


@contextmanager
def python_reader(cluster: ClusterThread, rack: str) -> Iterator[Read]:
    servers = cluster.bootstrap_servers.split(",")
    partition = PythonTopicPartition("orders", 0)
    with closing(
        KafkaConsumer(bootstrap_servers=servers, client_rack=rack, isolation_level="read_committed")
    ) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()

        def read() -> bytes | None:
            records = consumer.poll(timeout_ms=100, max_records=1).get(partition, [])
            return records[0].value if records else None

        yield read


def bytes_read_from(cluster: ClusterThread) -> dict[int, int]:
    """How many bytes consumers have had from each running broker of the first partition."""

    async def look() -> dict[int, int]:
        brokers = {each: cluster.broker(each).services.replicas for each in cluster.running}
        return {each: replicas.topic("orders").partition(0).fetched_bytes for each, replicas in brokers.items()}

    return cluster.call(look)


def read_numbers(read: Read, expected: range) -> None:
    time_left = TimeLeft(WAIT_SECONDS)
    for number in expected:
        while (value := read()) is None:
            assert not time_left.is_over
        assert value == b"%d" % number


@pytest.mark.parametrize("reader", [confluent_reader, python_reader])
def test_a_consumer_reads_in_its_rack_and_goes_on_when_the_leader_dies(
    cluster: ClusterThread, reader: Callable[[ClusterThread, str], AbstractContextManager[Read]]
) -> None:
    create_topics(cluster, "orders")
    eventually(lambda: in_sync(cluster), WAIT_SECONDS)
    leader = cluster.leader_of("orders")
    follower, other = (each for each in cluster.broker_ids if each != leader)
    write_numbers(cluster, "orders", FIRST)
    with reader(cluster, RACKS[follower - 1]) as read:
        read_numbers(read, FIRST)
        had = bytes_read_from(cluster)
        assert had[follower] > 0
        assert had[leader] == had[other] == 0
        kill_leader(cluster, "orders")
        write_numbers(cluster, "orders", LATER)
        read_numbers(read, LATER)
