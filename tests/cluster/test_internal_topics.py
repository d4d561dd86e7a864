"""The broker's own topics have as many replicas as there are brokers, up to three, where no setting says so."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import attrs
import pytest

from kafka_wire.stored.metadata import ConfigRecord, TopicRecord
from tests.fakes.clusters import after, caught_up, cluster_image
from tests.fakes.images import broker_record, image_after, partition_record
from trio_broker.cluster.internal_topics import decide_internal_growth
from trio_broker.cluster.replication_control import NewTopic, decide_new_topics
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig

OFFSETS_ID = bytes(15) + b"\x51"
TWO = {"min.insync.replicas": "2"}


@pytest.fixture
def image():
    """A broker with six partitions of offsets, to which two others have come."""
    records = [TopicRecord(name=CONSUMER_OFFSETS_TOPIC, topic_id=OFFSETS_ID)]
    return image_after(cluster_image([1, 2, 3]), *records, *(partition_record(OFFSETS_ID, index) for index in range(6)))


async def created(image, config, *topics: NewTopic) -> list[Any]:
    return list(await run_steps(decide_new_topics(image, config, topics, Random(1))))


def partitions(image):
    return list(image.topics[CONSUMER_OFFSETS_TOPIC].partitions.values())


async def grown(image, config):
    decision = await run_steps(decide_internal_growth(image, config))
    return after(image, decision)


@pytest.mark.parametrize(("brokers", "factor", "min_isr"), [(1, 1, {}), (2, 2, {}), (3, 3, TWO), (5, 3, TWO)])
async def test_they_are_created_with_as_many_replicas_as_there_are_brokers_up_to_three(
    config, brokers, factor, min_isr
):
    image = cluster_image(range(1, brokers + 1))
    topics = [NewTopic(name=name) for name in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "other")]
    offsets, state, other = await created(image, config, *topics)
    assert [each.outcome.replication_factor for each in (offsets, state, other)] == [factor, factor, 1]
    assert state.outcome.configs == offsets.outcome.configs == min_isr


async def test_a_broker_that_is_not_active_does_not_count(config):
    image = image_after(cluster_image([1]), broker_record(2, fenced=True))
    [decision] = await created(image, config, NewTopic(name=CONSUMER_OFFSETS_TOPIC))
    assert decision.outcome.replication_factor == 1


async def test_what_is_asked_for_counts(config):
    topic = NewTopic(name=TRANSACTION_STATE_TOPIC, replication_factor=2, configs={"min.insync.replicas": "2"})
    [decision] = await created(cluster_image([1, 2, 3]), config, topic)
    assert (decision.outcome.replication_factor, decision.outcome.configs) == (2, {"min.insync.replicas": "2"})


async def test_they_gain_replicas_when_brokers_join_and_are_led_evenly(image, config):
    image = await grown(image, config)
    for each in partitions(image):
        assert (sorted(each.replicas), each.leader, each.isr, each.adding_replicas) == ([1, 2, 3], 1, (1,), (2, 3))
    assert Counter(each.replicas[0] for each in partitions(image)) == {1: 2, 2: 2, 3: 2}


async def test_nothing_is_asked_twice_while_replicas_catch_up(image, config):
    image = await grown(image, config)
    assert (await run_steps(decide_internal_growth(image, config))).records == []


async def test_a_second_replica_in_sync_is_asked_for_once_every_partition_has_one(image, config):
    image = await grown(image, config)
    assert image.topics[CONSUMER_OFFSETS_TOPIC].configs == {}
    decision = await run_steps(decide_internal_growth(caught_up(image), config))
    assert decision.records == [
        ConfigRecord(resource_type=2, resource_name=CONSUMER_OFFSETS_TOPIC, name="min.insync.replicas", value="2")
    ]
    ready = caught_up(image)
    # That of an operator as well, who asks for one.
    for value in ("2", "1"):
        topic = attrs.evolve(ready.topics[CONSUMER_OFFSETS_TOPIC], configs={"min.insync.replicas": value})
        ready = attrs.evolve(ready, topics={topic.name: topic})
        assert (await run_steps(decide_internal_growth(ready, config))).records == []


async def test_a_setting_is_left_alone(image):
    config = BrokerConfig({"node.id": "1", "offsets.topic.replication.factor": "1"})
    assert (await run_steps(decide_internal_growth(image, config))).records == []


async def test_brokers_of_other_racks_come_first(config):
    image = image_after(
        cluster_image([]),
        broker_record(1, rack="a"),
        broker_record(2, rack="a"),
        broker_record(3, rack="b"),
        broker_record(4, rack="c"),
        TopicRecord(name=CONSUMER_OFFSETS_TOPIC, topic_id=OFFSETS_ID),
        partition_record(OFFSETS_ID),
    )
    [grown_partition] = partitions(await grown(image, config))
    assert sorted(grown_partition.replicas) == [1, 3, 4]
