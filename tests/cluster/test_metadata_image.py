"""The fold over the metadata records."""

from __future__ import annotations

import copy
from uuid import uuid4

import attrs
import pytest

from kafka_wire.stored.metadata import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from tests.fakes import images
from tests.fakes.images import image_after, image_of
from trio_broker.cluster.metadata_delta import ContradictoryMetadata, MetadataDelta
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    ConfigResourceType,
    PartitionImage,
    TopicImage,
)
from trio_broker.common.cluster_status import RegistrationState

TOPIC_ID = uuid4().bytes
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")


def partition_record(index=0, topic_id=TOPIC_ID):
    return images.partition_record(topic_id, index, [1, 2], isr=[1])


def config_record(name, value, resource=TOPIC):
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


def delta_of(image, *records):
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


@pytest.fixture
def image():
    return image_of(
        TopicRecord(name="orders", topic_id=TOPIC_ID), config_record("retention.ms", "5"), partition_record()
    )


def test_a_topic_is_found_by_name_and_by_id(image):
    assert image.topics["orders"] is image.topics_by_id[TOPIC_ID]
    assert image.topics["orders"].partitions == {
        0: PartitionImage(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1,))
    }


def test_a_topic_shows_its_settings(image):
    image = image_after(image, config_record("segment.ms", "7"))
    topic = image.topics["orders"]
    assert topic.configs == {"retention.ms": "5", "segment.ms": "7"} == image.configs(TOPIC)
    assert topic is image.topics_by_id[TOPIC_ID]
    image = image_after(image, config_record("retention.ms", None))
    assert image.topics["orders"].configs == {"segment.ms": "7"}
    image = image_after(image, config_record("segment.ms", None))
    assert (image.topics["orders"].configs, image.configs_by_resource) == ({}, {})


def test_naming_a_leader_raises_both_epochs_even_if_it_is_the_same(image):
    image = image_after(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    partition = image.topics["orders"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)


def test_a_change_of_the_in_sync_replicas_raises_the_partition_epoch_alone(image):
    image = image_after(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 2], replicas=[2, 1]))
    partition = image.topics["orders"].partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)
    assert (partition.isr, partition.replicas) == ((1, 2), (2, 1))


def test_a_partition_may_lose_its_leader(image):
    image = image_after(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    assert image.topics["orders"].partitions[0].leader == -1


def test_a_removed_topic_leaves_nothing_behind(image):
    image = image_after(image, partition_record(1))
    assert image.partition_count == 2
    image = image_after(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (image.topics, image.topics_by_id, image.partition_count) == ({}, {}, 0)
    assert image.configs(TOPIC) == {}


def test_settings_of_brokers_are_kept_by_their_name():
    image = image_of(config_record("num.io.threads", "9", CLUSTER_DEFAULT))
    assert image.configs(CLUSTER_DEFAULT) == {"num.io.threads": "9"}
    assert image.configs(ConfigResource(ConfigResourceType.BROKER, "1")) == {}


def test_a_broker_registers_and_changes():
    image = image_of(images.broker_record(broker_epoch=7, fenced=True))
    assert (image.brokers[1].broker_epoch, image.brokers[1].fenced) == (7, True)
    image = image_after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert not image.brokers[1].fenced
    image = image_after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1))
    assert image.brokers[1].state is RegistrationState.STOPPING
    image = image_after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1))
    assert image.brokers[1].in_controlled_shutdown
    assert image.brokers[1].state is RegistrationState.FENCED, "it has stopped"


def test_features_and_producer_ids_are_remembered():
    image = image_of(
        FeatureLevelRecord(name="a", feature_level=2),
        FeatureLevelRecord(name="b", feature_level=1),
        FeatureLevelRecord(name="b", feature_level=0),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        NoOpRecord(),
    )
    assert (image.features, image.next_producer_id) == ({"a": 2, "b": 0}, 1000)


def test_a_partition_that_is_created_twice_is_an_error(image):
    with pytest.raises(ContradictoryMetadata):
        image_after(image, partition_record(0))


def test_a_record_that_this_broker_never_writes_is_not_passed_over():
    with pytest.raises(NotImplementedError, match="BeginTransactionRecord"):
        image_of(BeginTransactionRecord())


def registration(**fields):
    defaults = {"incarnation_id": bytes(16), "broker_epoch": 7, "end_points": [], "features": [], "rack": None}
    return RegisterBrokerRecord(broker_id=1, **{**defaults, **fields})


def test_a_broker_is_fenced_unfenced_and_taken_out_in_the_epoch_in_which_it_registered():
    image = image_of(registration(fenced=False), FenceBrokerRecord(id=1, epoch=7))
    assert image.brokers[1].fenced
    image = image_after(image, UnfenceBrokerRecord(id=1, epoch=7))
    assert not image.brokers[1].fenced
    for late in (FenceBrokerRecord(id=1, epoch=6), UnregisterBrokerRecord(broker_id=1, broker_epoch=6)):
        with pytest.raises(ContradictoryMetadata, match="no broker 1 of epoch 6"):
            image_after(image, late)
    assert image_after(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=7)).brokers == {}


def test_log_dirs_and_cordoned_ones_change_where_they_are_named():
    image = image_of(registration(log_dirs=[b"a" * 16], cordoned_log_dirs=None))
    image = image_after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, cordoned_log_dirs=[]))
    assert (image.brokers[1].log_dirs, image.brokers[1].cordoned_log_dirs) == ((b"a" * 16,), ())
    image = image_after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=[b"b" * 16]))
    assert (image.brokers[1].log_dirs, image.brokers[1].cordoned_log_dirs) == ((b"b" * 16,), ())


def test_eligible_leaders_are_cleared_of_one_topic_or_of_all(image):
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[2], last_known_elr=[1])
    image = image_after(image, change)
    assert image_after(image, ClearElrRecord(topic_name="other")).topics == image.topics
    for name in ("", "orders"):
        partition = image_after(image, ClearElrRecord(topic_name=name)).topics["orders"].partitions[0]
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
        assert partition.partition_epoch == image.topics["orders"].partitions[0].partition_epoch + 1


def test_a_topic_is_created_once_and_again_only_after_its_removal(image):
    again = TopicRecord(name="orders", topic_id=uuid4().bytes)
    for record in (again, TopicRecord(name="else", topic_id=TOPIC_ID)):
        with pytest.raises(ContradictoryMetadata, match="was created before"):
            image_after(image, record)
    with pytest.raises(ContradictoryMetadata, match="was created before"):
        image_after(image, RemoveTopicRecord(topic_id=TOPIC_ID), again, again)
    assert image_after(image, RemoveTopicRecord(topic_id=TOPIC_ID), again).topics["orders"].topic_id == again.topic_id


def test_a_quota_is_kept_for_whom_it_holds_in_any_order_until_it_is_removed():
    parts = [EntityData(entity_type="user", entity_name="u"), EntityData(entity_type="client-id", entity_name=None)]

    def quota(entity, *, remove=False):
        return ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0, remove=remove)

    image = image_of(quota(parts), quota(parts[:1]))
    assert len(image.keyed_records[ClientQuotaRecord]) == 2
    image = image_after(image, quota(parts[::-1], remove=True))
    assert list(image.keyed_records[ClientQuotaRecord].values()) == [quota(parts[:1])]
    assert image_after(image, quota(parts[:1], remove=True)).keyed_records == {}


def test_a_change_of_a_topic_that_is_not_there_is_an_error(image):
    unknown = PartitionChangeRecord(partition_id=0, topic_id=uuid4().bytes, leader=1)
    removal = RemoveTopicRecord(topic_id=TOPIC_ID)
    for records in ([unknown], [removal, partition_record(1)], [removal, removal]):
        with pytest.raises(ContradictoryMetadata):
            image_after(image, *records)


# --- images as values ---


def test_an_image_names_the_last_record_that_it_contains(image):
    delta = delta_of(image, NoOpRecord(), NoOpRecord())
    after = delta.apply(offset=41, epoch=3)
    assert (after.offset, after.epoch) == (41, 3)


def test_an_image_stays_as_it_was_whatever_comes_after_it(image):
    before = copy.deepcopy(attrs.asdict(image, recurse=False))
    new = uuid4().bytes
    image_after(
        image,
        TopicRecord(name="new", topic_id=new),
        partition_record(topic_id=new),
        partition_record(1),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        config_record("retention.ms", "6"),
        config_record("num.io.threads", "9", CLUSTER_DEFAULT),
        FeatureLevelRecord(name="a", feature_level=2),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
    )
    image_after(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert attrs.asdict(image, recurse=False) == before


def test_an_image_shares_what_the_records_do_not_change(image):
    new = uuid4().bytes
    records = [TopicRecord(name="new", topic_id=new), partition_record(topic_id=new)]
    after = image_after(image, *records)
    assert after.topics["orders"] is image.topics["orders"]
    assert after.configs_by_resource is image.configs_by_resource
    later = image_after(after, ProducerIdsRecord(broker_id=1, next_producer_id=1000))
    assert (later.topics, later.topics_by_id) == (after.topics, after.topics_by_id)
    assert later.topics is after.topics
    assert later.topics_by_id is after.topics_by_id


def test_a_topic_that_its_own_records_delete_leaves_nothing_behind(image):
    new = uuid4().bytes
    config = ConfigResource(ConfigResourceType.TOPIC, "new")
    delta = delta_of(
        image,
        TopicRecord(name="new", topic_id=new),
        partition_record(topic_id=new),
        config_record("retention.ms", "1", config),
        RemoveTopicRecord(topic_id=new),
    )
    assert (delta.changed_topics, delta.deleted_topics, delta.changed_configs) == ((), (), ())
    after = delta.apply(offset=0, epoch=0)
    assert (after.topics, after.topics_by_id, after.partition_count) == (image.topics, image.topics_by_id, 1)
    assert config not in after.configs_by_resource


# --- delta ---


def test_a_delta_names_what_records_change(image):
    other = uuid4().bytes
    records = [
        TopicRecord(name="new", topic_id=other),
        config_record("retention.ms", "1", ConfigResource(ConfigResourceType.TOPIC, "new")),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        config_record("num.io.threads", "9", CLUSTER_DEFAULT),
    ]
    delta = delta_of(image, *records)
    assert (delta.changed_topics, delta.deleted_topics) == (("new", "orders"), ())
    assert delta.changed_configs == (ConfigResource(ConfigResourceType.TOPIC, "new"), CLUSTER_DEFAULT)


def test_a_deleted_topic_is_named_as_such_alone_and_as_it_was(image):
    records = [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        config_record("retention.ms", "1"),
        RemoveTopicRecord(topic_id=TOPIC_ID),
    ]
    delta = delta_of(image, *records)
    assert (delta.changed_topics, delta.changed_configs) == ((), ())
    assert delta.deleted_topics == (image.topics["orders"],)


def test_a_name_that_is_used_again_has_nothing_of_the_topic_before(image):
    new = uuid4().bytes
    delta = delta_of(
        image,
        RemoveTopicRecord(topic_id=TOPIC_ID),
        TopicRecord(name="orders", topic_id=new),
        config_record("segment.ms", "7"),
    )
    assert (delta.changed_topics, delta.changed_configs) == (("orders",), (TOPIC,))
    assert [topic.topic_id for topic in delta.deleted_topics] == [TOPIC_ID]
    after = delta.apply(offset=0, epoch=0)
    assert after.topics == {"orders": TopicImage("orders", new, {}, {"segment.ms": "7"})}
    assert after.topics_by_id == {new: after.topics["orders"]}
    assert after.configs(TOPIC) == {"segment.ms": "7"}


def test_only_new_partitions_and_other_replicas_are_another_assignment(image):
    def is_other(*records):
        return delta_of(image, *records).has_other_assignments

    def change(**fields):
        return PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields)

    assert not is_other(change(leader=1), change(isr=[1, 2]), config_record("retention.ms", "7"))
    assert is_other(change(replicas=[1, 3]))
    assert is_other(partition_record(1))
    assert is_other(TopicRecord(name="empty", topic_id=uuid4().bytes))
    assert is_other(RemoveTopicRecord(topic_id=TOPIC_ID))


def test_a_delta_has_the_partitions_that_changed_and_no_other(image):
    image = image_after(image, partition_record(1))
    delta = delta_of(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=2), partition_record(2))
    assert {index: each.leader_epoch for index, each in delta.changed_partitions(TOPIC_ID).items()} == {1: 1, 2: 0}
    assert list(delta.apply(offset=9, epoch=0).topics["orders"].partitions) == [0, 1, 2]
    assert delta.changed_partitions(uuid4().bytes) == {}
