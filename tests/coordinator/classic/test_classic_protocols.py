"""What members bring with them, and what the broker makes of it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.messages.join_group import JoinGroupRequestProtocol
from trio_broker.coordinator.classic import protocols as classic_protocols

SUBSCRIPTION_V0 = b"\0\0" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff"
SUBSCRIPTION_V3 = b"\0\3" + b"\0\0\0\1" + b"\0\1a" + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\0\0\0\7" + b"\0\4rack"
ASSIGNMENT_V0 = b"\0\0" + b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\5" + b"\xff\xff\xff\xff"


def test_topics_are_read_from_a_subscription_of_any_version():
    assert classic_protocols.subscribed_topics(SUBSCRIPTION_V0) == ("a", "bc")
    assert classic_protocols.subscribed_topics(SUBSCRIPTION_V3) == ("a",)
    assert classic_protocols.subscribed_topics(b"\x7f\xff\0\0\0\0and things to come") == ()


def test_partitions_are_read_from_an_assignment():
    assert classic_protocols.assigned_partitions(ASSIGNMENT_V0) == {"a": (0, 5)}
    assert classic_protocols.assigned_partitions(b"") == {}


@pytest.mark.parametrize("length", range(len(SUBSCRIPTION_V0) - 4))
def test_a_subscription_that_is_cut_off_is_not_known(length):
    assert classic_protocols.subscribed_topics(SUBSCRIPTION_V0[:length]) is None


@pytest.mark.parametrize("length", range(1, len(ASSIGNMENT_V0) - 4))
def test_an_assignment_that_is_cut_off_is_not_known(length):
    assert classic_protocols.assigned_partitions(ASSIGNMENT_V0[:length]) is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
    ids=["negative version", "no topics", "more topics than bytes", "null topic", "not UTF-8"],
)
def test_garbage_is_not_known(garbage):
    assert classic_protocols.subscribed_topics(garbage) is None
    assert classic_protocols.assigned_partitions(garbage) is None


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    classic_protocols.subscribed_topics(data)
    classic_protocols.assigned_partitions(data)


def subscription(count):
    return struct.pack(">hi", 0, count) + bytes(2 * count) + struct.pack(">i", -1)


def test_a_subscription_to_more_topics_than_there_can_be_is_not_read():
    assert classic_protocols.subscribed_topics(subscription(classic_protocols.MAX_SUBSCRIBED_TOPICS)) is not None
    assert classic_protocols.subscribed_topics(subscription(classic_protocols.MAX_SUBSCRIBED_TOPICS + 1)) is None
    assert classic_protocols.subscribed_topics(subscription(5_000_000)) is None


def test_the_subscriptions_of_a_group_are_read_once_each_and_not_without_end(monkeypatch):
    assert classic_protocols.topics_of_all([SUBSCRIPTION_V0] * 1_000_000) == frozenset({"a", "bc"})
    assert classic_protocols.topics_of_all([SUBSCRIPTION_V0, SUBSCRIPTION_V3]) == frozenset({"a", "bc"})
    assert classic_protocols.topics_of_all([SUBSCRIPTION_V0, b"garbage"]) is None
    monkeypatch.setattr(classic_protocols, "MAX_READ_TOPICS", 2)
    assert classic_protocols.topics_of_all([SUBSCRIPTION_V0]) == frozenset({"a", "bc"})
    assert classic_protocols.topics_of_all([SUBSCRIPTION_V0, SUBSCRIPTION_V3]) is None


def test_a_strategy_that_is_listed_twice_counts_where_it_stands_first():
    listed = [
        JoinGroupRequestProtocol(name=name, metadata=metadata)
        for name, metadata in [("a", b"1"), ("b", b"2"), ("a", b"3")]
    ]
    assert list(classic_protocols.protocols_of(listed).items()) == [("a", b"1"), ("b", b"2")]


def test_names_bytes_and_order_make_protocols_the_same():
    assert classic_protocols.are_same({"a": b"1", "b": b"2"}, {"a": b"1", "b": b"2"})
    assert not classic_protocols.are_same({"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"})
    assert not classic_protocols.are_same({"a": b"1"}, {"a": b"2"})
    assert not classic_protocols.are_same({"a": b"1"}, {"a": b"1", "b": b"2"})


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        (["ab", "ab"], "a"),
        (["ab", "ba", "ba"], "b"),
        (["xab", "bax", "ba"], "b"),
        (["ab", "ba"], "a"),
        (["ba", "ab"], "b"),
        (["abc", "c"], "c"),
    ],
)
def test_the_strategy_most_members_prefer_among_those_that_all_support_is_chosen(lists, chosen):
    assert classic_protocols.choose_protocol([dict.fromkeys(names, b"") for names in lists]) == chosen
