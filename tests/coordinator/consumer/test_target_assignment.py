"""Targets, the hash that tells whether they are still for the topics as they are, and whose assignor computes them."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_wire.stored.metadata import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.fakes.images import image_after
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.consumer.target_assignment import (
    MAX_KNOWN_SUBSCRIPTIONS,
    NO_TOPICS_HASH,
    TopicIds,
    metadata_hash,
    preferred_assignor,
)

FOO, BAR = b"\1" * 16, b"\2" * 16


def image(*topics: tuple[str, bytes, int], rack: str | None = None) -> MetadataImage:
    built = MetadataImage()
    built = image_after(
        built,
        RegisterBrokerRecord(
            broker_id=1,
            is_migrating_zk_broker=False,
            incarnation_id=b"\3" * 16,
            broker_epoch=1,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=1, security_protocol=0)],
            features=[],
            rack=rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=[],
        ),
    )
    for name, topic_id, partitions in topics:
        built = image_after(built, TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            built = image_after(
                built,
                PartitionRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=[1],
                    isr=[1],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                ),
            )
    return built


def test_no_topics_that_exist_have_the_hash_of_old_records():
    assert metadata_hash(set(), image()) == metadata_hash({"foo"}, image()) == NO_TOPICS_HASH


def test_the_hash_goes_by_what_the_topics_are_and_not_by_their_order():
    both = image(("foo", FOO, 2), ("bar", BAR, 1))
    assert metadata_hash({"foo", "bar"}, both) == metadata_hash({"bar", "foo"}, both)
    assert metadata_hash({"foo"}, both) == metadata_hash({"foo", "missing"}, image(("foo", FOO, 2)))


@pytest.mark.parametrize(
    "other",
    [
        image(("foo", FOO, 3)),
        image(("foo", BAR, 2)),
        image(("foo", FOO, 2), rack="r1"),
        image(),
    ],
)
def test_the_hash_changes_with_partitions_ids_racks_and_existence(other):
    assert metadata_hash({"foo"}, other) != metadata_hash({"foo"}, image(("foo", FOO, 2)))


def test_the_hash_is_the_same_in_every_process():
    """It is compared with one that an earlier process wrote."""
    assert metadata_hash({"foo"}, image(("foo", FOO, 2))) == -2_658_244_138_685_961_281


def test_topics_that_do_not_exist_have_no_id():
    assert TopicIds(image(("foo", FOO, 1))).of(frozenset({"foo", "missing"})) == {FOO}


def test_the_assignor_with_most_votes_is_preferred_and_the_first_one_without_any():
    configured = ("uniform", "range")
    assert preferred_assignor(Counter(), configured) == "uniform"
    assert preferred_assignor(Counter(range=1), configured) == "range"
    assert preferred_assignor(Counter(range=1, uniform=2), configured) == "uniform"
    assert preferred_assignor(Counter(range=1, gone=5), configured) == "range"
    assert preferred_assignor(Counter(gone=5), ("range",)) == "range"


def test_the_ids_of_a_subscription_are_looked_up_once():
    ids = TopicIds(image(("foo", FOO, 1), ("bar", BAR, 1)))
    topics = ids.of(frozenset({"foo"}))
    assert ids.of(frozenset({"foo"})) is topics
    assert ids.of(frozenset({"bar"})) == {BAR}
    for number in range(MAX_KNOWN_SUBSCRIPTIONS):
        ids.of(frozenset({"foo", str(number)}))
    assert ids.of(frozenset({"foo"})) is not topics, "those of few subscriptions are kept"
    topics = ids.of(frozenset({"foo"}))
    ids.forget_subscriptions()
    assert ids.of(frozenset({"foo"})) is not topics
