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


@attrs.define(eq=False)
class NotedReplicas:
    applied: list[tuple[str, dict[int, int], int]] = attrs.field(factory=list)
    deleted: list[str] = attrs.field(factory=list)
    configured: list[tuple[str, int]] = attrs.field(factory=list)
    fails_on: str = ""

    async def apply_topic(self, assignment):
        if assignment.name == self.fails_on:
            raise OSError("no space")
        self.applied.append((assignment.name, assignment.leader_epochs, assignment.config.retention_ms))

    async def delete_topics(self, names):
        if self.fails_on in names:
            raise RuntimeError("a mistake")
        self.deleted += names

    def update_config(self, name, config):
        self.configured.append((name, config.retention_ms))


@pytest.fixture
def replicas(controller, config):
    made: Any = NotedReplicas()
    controller.loader.publisher.subscribers = (BrokerMetadataPublisher(made, config),)
    return made


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


async def test_a_topic_that_fails_leaves_the_others_of_its_request_alone(controller, replicas):
    replicas.fails_on = "b"
    await controller.create_topics([NewTopic(name=name) for name in "abc"])
    assert [name for name, _, _ in replicas.applied] == ["a", "c"]


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
    change = PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=1)
    image = controller.image
    delta = MetadataDelta(image)
    delta.replay(change)
    await controller.loader.publisher.publish(delta, delta.apply(offset=image.offset + 1, epoch=image.epoch))
    assert [epochs for _, epochs, _ in replicas.applied] == [{0: 0, 1: 0, 2: 0}, {3: 0}, {1: 1}]
