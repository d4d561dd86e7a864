"""The consumer protocol inside the classic one: subscriptions and assignments."""

from __future__ import annotations

import pytest

from kafka_wire.consumer_protocol import (
    MAX_ELEMENTS,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    protocol_version,
)
from kafka_wire.errors import WireError

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["foo", "bar"],
    user_data=b"mine",
    owned_partitions=[ConsumerProtocolTopic(topic="foo", partitions=[0, 2])],
    generation_id=5,
    rack_id="r1",
)
ASSIGNMENT = ConsumerProtocolAssignment(assigned_partitions=[ConsumerProtocolTopic(topic="foo", partitions=[1])])

JAVA_SUBSCRIPTION = bytes.fromhex(
    "0003"  # version
    "00000001" "0003666f6f"  # topics
    "ffffffff"  # no user data
    "00000001" "0003666f6f" "00000002" "00000000" "00000001"  # owned partitions
    "00000007"  # generation
    "ffff"  # no rack
)  # fmt: skip
"""As Java's cooperative assignor writes it."""

JAVA_ASSIGNMENT = bytes.fromhex("0001000000010003666f6f0000000100000000ffffffff")


def test_what_java_writes_is_read_and_written_the_same():
    subscription = decode_subscription(JAVA_SUBSCRIPTION)
    assert subscription.topics == ["foo"]
    assert subscription.owned_partitions == [ConsumerProtocolTopic(topic="foo", partitions=[0, 1])]
    assert (subscription.generation_id, subscription.rack_id, subscription.user_data) == (7, None, None)
    assert encode_subscription(subscription) == JAVA_SUBSCRIPTION
    assignment = decode_assignment(JAVA_ASSIGNMENT)
    assert assignment.assigned_partitions == [ConsumerProtocolTopic(topic="foo", partitions=[0])]
    assert encode_assignment(assignment, 1) == JAVA_ASSIGNMENT


@pytest.mark.parametrize("version", range(4))
def test_each_version_says_what_it_can(version):
    read = decode_subscription(encode_subscription(SUBSCRIPTION, version))
    assert (read.topics, read.user_data) == (SUBSCRIPTION.topics, b"mine")
    assert bool(read.owned_partitions) == (version >= 1)
    assert read.generation_id == (5 if version >= 2 else -1)
    assert read.rack_id == ("r1" if version >= 3 else None)
    assert decode_assignment(encode_assignment(ASSIGNMENT, version)) == ASSIGNMENT


def test_a_version_to_come_is_read_as_the_newest_known():
    newer = b"\0\x09" + encode_subscription(SUBSCRIPTION)[2:] + b"what is new"
    assert decode_subscription(newer) == SUBSCRIPTION
    assert protocol_version(newer) == 3


@pytest.mark.parametrize("topics", [0, MAX_ELEMENTS + 200])
@pytest.mark.parametrize("owned", [0, MAX_ELEMENTS + 200])
@pytest.mark.parametrize("partitions", [0, MAX_ELEMENTS + 200])
def test_more_elements_than_a_member_can_have_are_not_read(topics, owned, partitions):
    topic = ConsumerProtocolTopic(topic="", partitions=[0] * partitions)
    subscription = ConsumerProtocolSubscription(
        topics=[""] * topics,
        owned_partitions=[*([ConsumerProtocolTopic(topic="", partitions=[])] * owned), topic],
    )
    if topics or owned or partitions:
        with pytest.raises(WireError, match=f"more than {MAX_ELEMENTS} elements"):
            decode_subscription(encode_subscription(subscription))
    if owned or partitions:
        assignment = ConsumerProtocolAssignment(assigned_partitions=subscription.owned_partitions)
        with pytest.raises(WireError, match=f"more than {MAX_ELEMENTS} elements"):
            decode_assignment(encode_assignment(assignment))


def test_a_member_that_owns_a_partition_of_every_topic_there_can_be_is_read():
    topics = [f"topic-{number}" for number in range(MAX_ELEMENTS // 3)]
    owned = [ConsumerProtocolTopic(topic=topic, partitions=[0]) for topic in topics]
    subscription = ConsumerProtocolSubscription(topics=topics, owned_partitions=owned)
    assert decode_subscription(encode_subscription(subscription)) == subscription


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1\0", b"\0\0\x7f\xff\xff\xff", JAVA_SUBSCRIPTION[:-3]])
def test_garbage_is_a_wire_error(data):
    with pytest.raises(WireError):
        decode_subscription(data)
    with pytest.raises(WireError):
        decode_assignment(data[:10])
