"""Targets, the hash that tells whether they are still for the topics as they are, and whose assignor computes them."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_wire.stored.metadata import TopicRecord
from tests.fakes.images import broker_record, image_after, image_of, partition_record
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
    built = image_of(broker_record(rack=rack))
    for name, topic_id, partitions in topics:
        indexes = range(partitions)
        built = image_after(
            built,
            TopicRecord(name=name, topic_id=topic_id),
            *(partition_record(topic_id, index) for index in indexes),
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
