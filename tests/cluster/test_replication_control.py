"""Which topics may come, grow and go."""

from __future__ import annotations

from collections.abc import Iterable
from random import SystemRandom
from typing import Any, cast
from uuid import uuid4

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.fakes.clusters import cluster_image
from tests.fakes.images import broker_record, image_after, image_of
from trio_broker.cluster import replication_control
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.replication_control import (
    MAX_PARTITIONS,
    MAX_PARTITIONS_PER_REQUEST,
    NewPartitions,
    NewTopic,
    TopicTarget,
    decide_new_partitions,
    decide_new_topics,
    decide_topic_deletions,
)
from trio_broker.common.topic_names import is_internal_topic, is_valid_topic_name
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig

RANDOM = SystemRandom()


def decided(decide, *arguments):
    """The decisions, in a loop of their own."""
    return trio.run(run_steps, decide(*arguments))


def register(image, broker_id):
    return image_after(image, broker_record(broker_id))


@pytest.fixture
def config():
    return BrokerConfig({"num.partitions": "3"})


@pytest.fixture
def image(config):
    image = register(MetadataImage(), 1)
    return accept(
        image, *decided(decide_new_topics, image, config, [NewTopic(name="orders.eu", num_partitions=2)], RANDOM)
    )


def accept(image, *decisions):
    for decision in decisions:
        assert isinstance(decision, ControllerResult), decision
        image = image_after(image, *decision.records)
    return image


def accepted(outcomes: Iterable[ControllerResult[Any] | KafkaError]) -> list[ControllerResult[Any]]:
    """The decisions, none of which is a refusal."""
    decisions = list(outcomes)
    assert all(isinstance(decision, ControllerResult) for decision in decisions), decisions
    return cast(list[ControllerResult[Any]], decisions)


def codes(outcomes):
    return [item.code if isinstance(item, KafkaError) else ErrorCode.NONE for item in outcomes]


def code_for(image, config, **topic):
    [outcome] = decided(decide_new_topics, image, config, [NewTopic(**topic)], RANDOM)
    return codes([outcome])[0]


# --- creation ---


def test_a_topic_comes_as_topic_settings_and_partitions(image, config):
    [decision] = accepted(
        decided(
            decide_new_topics,
            image,
            config,
            [NewTopic(name="t", num_partitions=2, configs={"retention.ms": "5"})],
            RANDOM,
        )
    )
    topic, setting, *partitions = decision.records
    assert isinstance(topic, TopicRecord)
    assert (topic.name, topic.topic_id) == ("t", decision.outcome.topic_id)
    assert isinstance(setting, ConfigRecord)
    assert (setting.resource_name, setting.name, setting.value) == ("t", "retention.ms", "5")
    assert [partition.partition_id for partition in partitions] == [0, 1]
    first = partitions[0]
    assert isinstance(first, PartitionRecord)
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (1, 0, 0)
    assert (first.replicas, first.isr) == ([1], [1])


def test_every_topic_gets_an_id_of_its_own(image, config):
    decisions = [accepted(decided(decide_new_topics, image, config, [NewTopic(name="t")], RANDOM)) for _ in range(5)]
    ids = {decision.outcome.topic_id for [decision] in decisions}
    assert len(ids) == 5
    assert NO_UUID not in ids


def test_minus_one_stands_for_the_brokers_defaults(image, config):
    [decision] = accepted(
        decided(
            decide_new_topics, image, config, [NewTopic(name="t", num_partitions=-1, replication_factor=-1)], RANDOM
        )
    )
    assert (decision.outcome.num_partitions, decision.outcome.replication_factor) == (3, 1)


@pytest.mark.parametrize("factor", ["0", "-1"])
def test_a_default_that_is_no_number_of_replicas_needs_a_number_with_each_topic(image, factor):
    """Kafka takes it, too."""
    config = BrokerConfig({"default.replication.factor": factor})
    assert code_for(image, config, name="t", replication_factor=-1) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert code_for(image, config, name="t", replication_factor=1) is ErrorCode.NONE


def test_a_topic_that_exists_is_refused_with_36(image, config):
    assert code_for(image, config, name="orders.eu") is ErrorCode.TOPIC_ALREADY_EXISTS
    assert int(ErrorCode.TOPIC_ALREADY_EXISTS) == 36


@pytest.mark.parametrize("count", [0, -2])
def test_partitions_must_be_positive(image, config, count):
    assert code_for(image, config, name="t", num_partitions=count) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 2])
def test_the_replication_factor_must_be_positive_and_not_above_the_brokers(image, config, factor):
    assert code_for(image, config, name="t", replication_factor=factor) is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "größe", "a b"])
def test_a_name_that_no_topic_can_have_is_refused(image, config, name):
    assert not is_valid_topic_name(name)
    assert code_for(image, config, name=name) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_of_249_characters_is_allowed(image, config):
    assert code_for(image, config, name="a" * 249) is ErrorCode.NONE


def test_a_name_that_differs_only_in_dot_and_underscore_collides(image, config):
    assert code_for(image, config, name="orders_eu") is ErrorCode.INVALID_TOPIC_EXCEPTION
    outcomes = decided(decide_new_topics, image, config, [NewTopic(name="x.y"), NewTopic(name="x_y")], RANDOM)
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_the_metadata_log_is_nobodys_topic(image, config):
    assert code_for(image, config, name="__cluster_metadata") is ErrorCode.INVALID_REQUEST


def test_the_brokers_own_topics_are_known():
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("orders")


def test_a_topic_named_twice_is_refused_twice_and_others_are_not(image, config):
    outcomes = decided(
        decide_new_topics, image, config, [NewTopic(name="a"), NewTopic(name="b"), NewTopic(name="a")], RANDOM
    )
    assert codes(outcomes) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    "configs", [{"retention.ms": "x"}, {"no.such": "1"}, {"retention.ms": None}, {"num.io.threads": "1"}]
)
def test_bad_settings_are_refused(image, config, configs):
    assert code_for(image, config, name="t", configs=configs) is ErrorCode.INVALID_CONFIG


def test_a_manual_assignment_counts(image, config):
    image = register(image, 2)
    [decision] = accepted(
        decided(decide_new_topics, image, config, [NewTopic(name="t", assignments={1: [1, 2], 0: [2, 1]})], RANDOM)
    )
    assert [record.replicas for record in decision.records[1:]] == [[2, 1], [1, 2]]
    assert [record.leader for record in decision.records[1:]] == [2, 1]
    assert (decision.outcome.num_partitions, decision.outcome.replication_factor) == (2, 2)


@pytest.mark.parametrize(
    "assignments", [{1: [1]}, {0: []}, {0: [1, 1]}, {0: [7]}, {0: [1], 2: [1]}, {0: [1], 1: [1, 2]}]
)
def test_a_manual_assignment_that_cannot_be_is_refused(image, config, assignments):
    image = register(image, 2)
    assert code_for(image, config, name="t", assignments=assignments) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("numbers", [{"num_partitions": 1}, {"replication_factor": 1}])
def test_a_manual_assignment_excludes_numbers(image, config, numbers):
    assert code_for(image, config, name="t", assignments={0: [1]}, **numbers) is ErrorCode.INVALID_REQUEST


def test_leaders_are_even_over_the_brokers(image, config):
    image = register(image, 2)
    [decision] = accepted(
        decided(decide_new_topics, image, config, [NewTopic(name="t", num_partitions=4, replication_factor=2)], RANDOM)
    )
    assert sorted(record.leader for record in decision.records[1:]) == [1, 1, 2, 2]
    assert all(record.leader == record.replicas[0] for record in decision.records[1:])


def test_brokers_that_are_not_active_are_replicas_and_not_in_sync(image, config):
    """The leader is one that is; a replica of a broker that is down for a moment catches up later."""
    image = image_after(image, broker_record(2, fenced=True))
    [decision] = accepted(
        decided(decide_new_topics, image, config, [NewTopic(name="t", num_partitions=2, replication_factor=2)], RANDOM)
    )
    assert [(record.replicas, record.isr, record.leader) for record in decision.records[1:]] == [([1, 2], [1], 1)] * 2
    [decision] = accepted(
        decided(decide_new_topics, image, config, [NewTopic(name="u", assignments={0: [2, 1]})], RANDOM)
    )
    assert [(record.replicas, record.isr, record.leader) for record in decision.records[1:]] == [([2, 1], [1], 1)]


def test_without_a_broker_that_could_lead_there_is_no_topic(image, config):
    image = image_after(image, broker_record(2, fenced=True), broker_record(3, in_controlled_shutdown=True))
    assert code_for(image, config, name="t", assignments={0: [2]}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_for(image, config, name="t", assignments={0: [3]}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_for(image, config, name="t", replication_factor=3) is ErrorCode.INVALID_REPLICATION_FACTOR
    fenced = image_of(broker_record(2, fenced=True))
    assert code_for(fenced, config, name="t") is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_that_is_moving_grows_by_as_many_replicas_as_it_will_have():
    moving = {"replicas": (2, 3, 1), "adding_replicas": [2, 3], "removing_replicas": [1], "isr": [1], "leader": 1}
    image = cluster_image([1, 2, 3], [moving])
    [decision] = accepted(decided(decide_new_partitions, image, [NewPartitions(name="t", count=2)], RANDOM))
    assert [len(record.replicas) for record in decision.records] == [2]


def test_each_of_several_brokers_has_room_for_so_many_partitions(image, config, monkeypatch):
    monkeypatch.setattr(replication_control, "MAX_PARTITIONS", 8)
    image = register(image, 2)

    def created(image, **topic):
        [outcome] = decided(decide_new_topics, image, config, [NewTopic(**topic)], RANDOM)
        return outcome

    first = created(image, name="a", num_partitions=8)
    image = image_after(image, *first.records)
    second = created(image, name="b", num_partitions=2, replication_factor=2)
    image = image_after(image, *second.records)
    assert created(image, name="c").code is ErrorCode.POLICY_VIOLATION
    image = register(image, 3)
    assert not isinstance(created(image, name="c", assignments={0: [3]}), KafkaError)


def test_one_request_may_not_ask_for_too_many_partitions(image, config):
    half = MAX_PARTITIONS_PER_REQUEST // 2 + 1
    topics = [NewTopic(name=name, num_partitions=half) for name in "ab"]
    with pytest.raises(KafkaError) as refusal:
        decided(decide_new_topics, image, config, topics, RANDOM)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def test_a_node_has_room_for_so_many_partitions_and_no_more(image, config):
    image = attrs.evolve(image, partition_count=MAX_PARTITIONS - 3)
    outcomes = decided(
        decide_new_topics, image, config, [NewTopic(name=name, num_partitions=2) for name in "ab"], RANDOM
    )
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


# --- growth ---


def test_growth_adds_the_partitions_behind_those_there_are(image):
    [decision] = accepted(decided(decide_new_partitions, image, [NewPartitions(name="orders.eu", count=4)], RANDOM))
    assert [record.partition_id for record in decision.records] == [2, 3]


@pytest.mark.parametrize("count", [-1, 0, 1, 2])
def test_growth_must_grow(image, count):
    assert codes(decided(decide_new_partitions, image, [NewPartitions(name="orders.eu", count=count)], RANDOM)) == [
        ErrorCode.INVALID_PARTITIONS
    ]


def test_growth_of_an_unknown_topic_is_refused(image):
    assert codes(decided(decide_new_partitions, image, [NewPartitions(name="x", count=4)], RANDOM)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


@pytest.mark.parametrize("assignments", [[], [[1]], [[1], [7]], [[1], []]])
def test_growth_needs_one_good_assignment_for_each_new_partition(image, assignments):
    outcomes = decided(
        decide_new_partitions, image, [NewPartitions(name="orders.eu", count=4, assignments=assignments)], RANDOM
    )
    assert codes(outcomes) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_growth_takes_a_manual_assignment(image):
    [decision] = accepted(
        decided(decide_new_partitions, image, [NewPartitions(name="orders.eu", count=3, assignments=[[1]])], RANDOM)
    )
    assert [record.replicas for record in decision.records] == [[1]]


def test_growth_twice_in_one_request_is_refused(image):
    outcomes = decided(
        decide_new_partitions, image, [NewPartitions(name="orders.eu", count=count) for count in (3, 4)], RANDOM
    )
    assert codes(outcomes) == [ErrorCode.INVALID_REQUEST] * 2


# --- deletion ---


def test_a_topic_goes_by_name_or_by_id(image, config):
    topic_id = image.topics["orders.eu"].topic_id
    for target in (TopicTarget(name="orders.eu"), TopicTarget(topic_id=topic_id)):
        [decision] = accepted(decided(decide_topic_deletions, image, config, [target]))
        assert decision.records == (RemoveTopicRecord(topic_id=topic_id),)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (TopicTarget(), ErrorCode.INVALID_REQUEST),
        (TopicTarget("orders.eu", uuid4().bytes), ErrorCode.INVALID_REQUEST),
        (TopicTarget("x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicTarget(topic_id=uuid4().bytes), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_topic_that_is_not_there_cannot_go(image, config, target, code):
    assert codes(decided(decide_topic_deletions, image, config, [target])) == [code]


def test_a_topic_that_is_meant_twice_does_not_go(image, config):
    topic_id = image.topics["orders.eu"].topic_id
    outcomes = decided(
        decide_topic_deletions, image, config, [TopicTarget("orders.eu"), TopicTarget(topic_id=topic_id)]
    )
    assert codes(outcomes) == [ErrorCode.INVALID_REQUEST] * 2


def test_deletion_can_be_switched_off(image):
    with pytest.raises(KafkaError) as refusal:
        decided(
            decide_topic_deletions, image, BrokerConfig({"delete.topic.enable": "false"}), [TopicTarget("orders.eu")]
        )
    assert refusal.value.code is ErrorCode.TOPIC_DELETION_DISABLED
