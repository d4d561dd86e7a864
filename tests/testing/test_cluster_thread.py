"""A cluster in one process, used by real clients: a broker dies, and nothing that was acknowledged is lost."""

from __future__ import annotations

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.waits import eventually, scaled
from trio_broker.cluster.metadata_store import CommittedBatch
from trio_broker.testing import ClusterThread
from trio_broker.testing.cluster_network import CutTail

WAIT_SECONDS = 30


def produce(servers: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "message.timeout.ms": WAIT_SECONDS * 1000})
    failures = []
    for value in values:
        producer.produce(topic, str(value).encode(), partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(scaled(WAIT_SECONDS)) == 0
    assert not any(failures)


def consumed(cluster: ClusterThread, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while len(found) < count:
            message = consumer.poll(scaled(WAIT_SECONDS))
            assert message is not None, f"{len(found)} of {count}"
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
    finally:
        consumer.close()
    return found


def isr(cluster: ClusterThread, topic: str) -> set[int]:
    return set(cluster.image.topics[topic].partitions[0].isr)


def test_every_broker_has_its_replicas_of_a_topic_that_was_created(
    kafka_cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither the one that is asked for the topic, nor the one that decides, which waits for itself.
    late = next(each for each in (2, 3) if each != kafka_cluster.controller_id())
    read = CutTail.__anext__

    async def read_late(tail: CutTail) -> CommittedBatch:
        batch = await read(tail)
        await trio.sleep(0.1 if tail.store.node_id == late else 0.0)
        return batch

    monkeypatch.setattr(CutTail, "__anext__", read_late)
    # What each waits for already, it does not read late.
    kafka_cluster.create_topic("first")
    kafka_cluster.create_topic("orders", partitions=3)
    for node_id in kafka_cluster.broker_ids:
        assert len(kafka_cluster.broker(node_id).services.replicas.topic("orders").partitions) == 3


def test_a_leader_dies_and_what_was_acknowledged_is_read_from_the_next(kafka_cluster):
    kafka_cluster.create_topic("orders", min_insync_replicas=2)
    produce(kafka_cluster.bootstrap_servers, "orders", range(10))
    first = kafka_cluster.leader_of("orders")
    kafka_cluster.kill(first)
    eventually(lambda: kafka_cluster.leader_of("orders") not in (first, -1), WAIT_SECONDS)
    produce(kafka_cluster.bootstrap_servers, "orders", range(10, 20))
    assert consumed(kafka_cluster, "orders", 20) == list(range(20))
    kafka_cluster.restart(first)
    eventually(lambda: isr(kafka_cluster, "orders") == {1, 2, 3}, WAIT_SECONDS)


def test_a_controlled_stop_moves_leaders_before_it_ends(kafka_cluster):
    kafka_cluster.create_topic("orders", min_insync_replicas=2)
    produce(kafka_cluster.bootstrap_servers, "orders", range(5))
    first = kafka_cluster.leader_of("orders")
    kafka_cluster.stop_broker(first)
    assert kafka_cluster.leader_of("orders") not in (first, -1)
    produce(kafka_cluster.bootstrap_servers, "orders", range(5, 10))
    assert consumed(kafka_cluster, "orders", 10) == list(range(10))


def test_a_leader_that_is_cut_off_acknowledges_nothing_that_is_lost(kafka_cluster):
    kafka_cluster.create_topic("orders", min_insync_replicas=2)
    produce(kafka_cluster.bootstrap_servers, "orders", range(5))
    first = kafka_cluster.leader_of("orders")
    others = [each for each in kafka_cluster.broker_ids if each != first]
    kafka_cluster.partition({first}, others)
    eventually(lambda: kafka_cluster.leader_of("orders") in others, WAIT_SECONDS)
    # A client that asks the broker that is cut off is sent to it, as by any Kafka, until it tires of waiting.
    produce(",".join(map(kafka_cluster.address_of, others)), "orders", range(5, 10))
    kafka_cluster.heal()
    eventually(lambda: isr(kafka_cluster, "orders") == {1, 2, 3}, WAIT_SECONDS)
    assert consumed(kafka_cluster, "orders", 10) == list(range(10))
