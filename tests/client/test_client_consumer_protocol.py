"""The subscriptions and assignments of the members of a classic group, decoded where that is possible."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.client.consumer_protocol import read_assignment, read_subscription
from trio_broker.common.topic_partition import TopicPartition


def test_what_a_client_writes_is_read():
    subscription = ConsumerProtocolMemberMetadata(0, ["b", "a"], b"").encode()
    assignment = ConsumerProtocolMemberAssignment(0, [("b", [1]), ("a", [3, 2])], b"").encode()

    assert read_subscription(subscription) == ("a", "b")
    assert read_assignment(assignment) == (TopicPartition("a", 2), TopicPartition("a", 3), TopicPartition("b", 1))


def test_no_bytes_are_an_assignment_of_nothing_and_no_subscription():
    assert read_assignment(b"") == ()
    assert read_subscription(b"") is None


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"connect!"])
def test_other_bytes_are_unknown(data: bytes):
    assert read_subscription(data) is None
    assert read_assignment(data) is None


@given(st.binary(max_size=64))
def test_no_bytes_do_harm(data: bytes):
    read_subscription(data)
    read_assignment(data)
