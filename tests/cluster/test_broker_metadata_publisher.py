"""Partitions that follow the metadata, on a ReplicaManager that only notes what it is asked for."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.broker_metadata_publisher import BrokerMetadataPublisher
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from trio_broker.cluster.replication_control import NewPartitions, NewTopic, TopicTarget
from trio_broker.partition.leader_and_isr import LeaderAndIsr


@attrs.define(eq=False)
class NotedReplicas:
    applied: list[tuple[str, dict[int, int], int]] = attrs.field(factory=list)
    followed: list[dict[int, LeaderAndIsr]] = attrs.field(factory=list)
    deleted: list[str] = attrs.field(factory=list)
    deleted_partitions: list[int] = attrs.field(factory=list)
    configured: list[tuple[str, int]] = attrs.field(factory=list)
    fails_on: str = ""

    async def apply_local_changes(self, changes):
        if self.fails_on in changes.deleted_topics:
            raise RuntimeError("a mistake")
        self.deleted += changes.deleted_topics
        for topic in changes.topics:
            epochs = {index: decided.leader_epoch for index, decided in topic.leaders.items()}
            self.applied.append((topic.name, epochs, topic.config.retention_ms))
            self.followed.append(topic.followers)
            self.deleted_partitions += topic.deletes

    @property
    def local_partitions(self):
        return self

    def update_config(self, name, config):
        self.configured.append((name, config.retention_ms))


@pytest.fixture
def replicas(controller, config):
    made: Any = NotedReplicas()
    controller.loader.publisher.subscribers = (BrokerMetadataPublisher(made, config),)
    return made


async def publish(controller, *records):
    """Have the parts of the broker follow ``records``, which are in no log."""
    image = controller.image
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    offset = image.offset + len(records)
    await controller.loader.publisher.publish(delta, delta.apply(offset=offset, epoch=image.epoch))


async def set_retention(controller, resource, name, value):
    alteration = ConfigAlteration(name, ConfigOperation.SET, value)
    await controller.change_configs([ResourceAlterations(resource, (alteration,))])


async def test_a_new_topic_is_applied_once_with_its_settings(controller, replicas):
    await controller.create_topics([NewTopic(name="t", num_partitions=2, configs={"retention.ms": "5"})])
    assert replicas.applied == [("t", {0: 0, 1: 0}, 5)]
    assert replicas.configured == []


async def test_settings_of_a_topic_reach_it_alone_and_defaults_reach_all(controller, replicas):
    await controller.create_topics([NewTopic(name="a"), NewTopic(name="b")])
    await set_retention(controller, ConfigResource(ConfigResourceType.TOPIC, "a"), "retention.ms", "5")
    assert replicas.configured == [("a", 5)]
    await set_retention(controller, CLUSTER_DEFAULT, "log.retention.ms", "7")
    assert replicas.configured == [("a", 5), ("a", 5), ("b", 7)]


async def test_a_mistake_in_deleting_topics_leaves_what_follows_alone(controller, replicas):
    await controller.create_topics([NewTopic(name=name) for name in "ab"])
    replicas.fails_on = "b"
    await controller.delete_topics([TopicTarget("b")])
    await controller.create_topics([NewTopic(name="c")])
    await controller.delete_topics([TopicTarget(name) for name in "ac"])
    assert [name for name, _, _ in replicas.applied] == ["a", "b", "c"]
    assert replicas.deleted == ["a", "c"]


async def test_a_new_epoch_of_one_partition_is_applied_to_that_one(controller, replicas):
    await controller.create_topics([NewTopic(name="t", num_partitions=3)])
    await controller.create_partitions([NewPartitions(name="t", count=4)])
    topic_id = controller.image.topics["t"].topic_id
    await publish(controller, PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=1))
    assert [epochs for _, epochs, _ in replicas.applied] == [{0: 0, 1: 0, 2: 0}, {3: 0}, {1: 1}]


async def test_a_leadership_that_is_lost_is_followed_and_a_replica_that_has_moved_is_deleted(controller, replicas):
    await controller.create_topics([NewTopic(name="t", num_partitions=3)])
    topic_id = controller.image.topics["t"].topic_id
    lost = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2, replicas=[1, 2], isr=[1, 2])
    moved = PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=2, replicas=[2], isr=[2])
    away = PartitionChangeRecord(partition_id=2, topic_id=topic_id, leader=-1)
    await publish(controller, lost, moved, away)
    assert replicas.applied[1:] == [("t", {}, replicas.applied[0][2])]
    followed = replicas.followed[1]
    assert {index: (each.leader, each.leader_epoch, each.isr) for index, each in followed.items()} == {
        0: (2, 1, (1, 2)),
        2: (-1, 1, (1,)),
    }
    assert replicas.deleted_partitions == [1]
