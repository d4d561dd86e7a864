"""The fold over the metadata records."""

from __future__ import annotations

import pytest

from kafka_wire.primitives import random_uuid
from kafka_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from trio_broker.cluster.metadata_delta import DeletedTopic, MetadataDelta, delta_of
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    ConfigResourceType,
    ContradictoryMetadata,
    MetadataImage,
    PartitionImage,
)

TOPIC_ID = random_uuid()
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")


def partition_record(index=0, **fields):
    return PartitionRecord(
        partition_id=index,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        **fields,
    )


def config_record(name, value, resource=TOPIC):
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


def fold(*records):
    image = MetadataImage()
    for record in records:
        image.apply(record)
    return image


@pytest.fixture
def image():
    return fold(TopicRecord(name="orders", topic_id=TOPIC_ID), config_record("retention.ms", "5"), partition_record())


def test_a_topic_is_found_by_name_and_by_id(image):
    assert image.topics["orders"] is image.topics_by_id[TOPIC_ID]
    assert image.topics["orders"].partitions == {
        0: PartitionImage(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1,))
    }


def test_a_topic_shows_its_settings_as_they_are_now(image):
    topic = image.topics["orders"]
    image.apply(config_record("segment.ms", "7"))
    assert topic.configs == {"retention.ms": "5", "segment.ms": "7"} == image.configs(TOPIC)
    image.apply(config_record("retention.ms", None))
    assert topic.configs == {"segment.ms": "7"}


def test_naming_a_leader_raises_both_epochs_even_if_it_is_the_same(image):
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    partition = image.topics["orders"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)


def test_a_change_of_the_in_sync_replicas_raises_the_partition_epoch_alone(image):
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 2], replicas=[2, 1]))
    partition = image.topics["orders"].partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)
    assert (partition.isr, partition.replicas) == ((1, 2), (2, 1))


def test_a_partition_may_lose_its_leader(image):
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    assert image.topics["orders"].partitions[0].leader == -1


def test_a_removed_topic_leaves_nothing_behind(image):
    image.apply(partition_record(1))
    assert image.partition_count == 2
    image.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (image.topics, image.topics_by_id, image.partition_count) == ({}, {}, 0)
    assert image.configs(TOPIC) == {}


def test_settings_of_brokers_are_kept_by_their_name():
    image = fold(config_record("num.io.threads", "9", CLUSTER_DEFAULT))
    assert image.configs(CLUSTER_DEFAULT) == {"num.io.threads": "9"}
    assert image.configs(ConfigResource(ConfigResourceType.BROKER, "1")) == {}


def test_a_broker_registers_and_changes():
    image = fold(
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=random_uuid(),
            broker_epoch=7,
            end_points=[],
            features=[],
            rack=None,
            fenced=True,
        )
    )
    assert (image.brokers[1].broker_epoch, image.brokers[1].fenced) == (7, True)
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert not image.brokers[1].fenced
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1))
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (False, True)


def test_features_and_producer_ids_are_remembered():
    image = fold(
        FeatureLevelRecord(name="a", feature_level=2),
        FeatureLevelRecord(name="b", feature_level=1),
        FeatureLevelRecord(name="b", feature_level=0),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        NoOpRecord(),
    )
    assert (image.features, image.next_producer_id) == ({"a": 2, "b": 0}, 1000)


def test_a_partition_that_is_created_twice_is_an_error(image):
    with pytest.raises(ContradictoryMetadata):
        image.apply(partition_record(0))


def test_a_record_that_this_broker_never_writes_is_not_passed_over():
    with pytest.raises(NotImplementedError, match="FenceBrokerRecord"):
        fold(FenceBrokerRecord(id=1, epoch=0))


# --- delta ---


def test_a_delta_names_what_a_batch_changes(image):
    other = random_uuid()
    records = [
        TopicRecord(name="new", topic_id=other),
        config_record("retention.ms", "1", ConfigResource(ConfigResourceType.TOPIC, "new")),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        config_record("num.io.threads", "9", CLUSTER_DEFAULT),
    ]
    assert delta_of(image, records) == MetadataDelta(
        changed_topics=("new", "orders"),
        changed_configs=(ConfigResource(ConfigResourceType.TOPIC, "new"), CLUSTER_DEFAULT),
    )


def test_a_deleted_topic_is_named_as_such_alone(image):
    records = [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        config_record("retention.ms", "1"),
        RemoveTopicRecord(topic_id=TOPIC_ID),
    ]
    assert delta_of(image, records) == MetadataDelta(deleted_topics=(DeletedTopic("orders", TOPIC_ID),))
