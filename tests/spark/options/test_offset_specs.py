"""Offsets, times and partitions as options write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.limits import INT64_MAX
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.options.offset_specs import (
    Earliest,
    Latest,
    SpecificOffsets,
    format_offsets_json,
    listed,
    parse_offsets,
    parse_offsets_json,
    parse_partitions_json,
    parse_timestamp,
    parse_timestamps_json,
)

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("earliest", Earliest()),
        ("EARLIEST", Earliest()),
        ("Latest", Latest()),
        ('{"orders": {"0": 23, "1": -2}}', SpecificOffsets({ORDERS_0: 23, ORDERS_1: -2})),
        (f'{{"orders": {{"0": {INT64_MAX}}}}}', SpecificOffsets({ORDERS_0: INT64_MAX})),
        ('{"orders": {}}', SpecificOffsets({})),
        ("{}", SpecificOffsets({})),
    ],
)
def test_offsets_that_are_understood(text, spec):
    assert parse_offsets(text) == spec


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("newest", "'newest' is neither earliest nor latest"),
        ("", "'' is neither earliest nor latest"),
        ("23", "'23' is neither earliest nor latest"),
        ("[]", "'[]' is neither earliest nor latest"),
        ('{"orders": {"0": 23}', "is no JSON"),
        ('{"orders": {"0": 23}} x', "is no JSON"),
        ('{"orders": 23}', "orders: 23 has no partitions"),
        ('{"orders": [0]}', "orders: [0] has no partitions"),
        ('{"orders": null}', "orders: null has no partitions"),
        ('{"orders": {"zero": 1}}', 'orders: "zero" is no partition'),
        ('{"orders": {"-1": 1}}', 'orders: "-1" is no partition'),
        ('{"orders": {"00": 1}}', 'orders: "00" is no partition'),
        ('{"orders": {"٣": 1}}', "is no partition"),
        ('{"orders": {"2147483648": 1}}', 'orders: "2147483648" is no partition'),
        ('{"orders": {"%s": 1}}' % ("9" * 5000), "is no partition"),
        ('{"orders": {"1": -3}}', "orders-1: -3 is no offset; -2 is the earliest, -1 the latest"),
        ('{"orders": {"1": 2.0}}', "orders-1: 2.0 is not a whole number"),
        ('{"orders": {"1": 2e3}}', "orders-1: 2000.0 is not a whole number"),
        ('{"orders": {"1": true}}', "orders-1: true is not a whole number"),
        ('{"orders": {"1": "2"}}', 'orders-1: "2" is not a whole number'),
        ('{"orders": {"1": null}}', "orders-1: null is not a whole number"),
        ('{"orders": {"1": NaN}}', "NaN is not a whole number"),
        ('{"orders": {"1": {"2": 3}}}', 'orders-1: {"2": 3} is not a whole number'),
        (f'{{"orders": {{"1": {INT64_MAX + 1}}}}}', f"orders-1: {INT64_MAX + 1} needs more than 64 bits"),
        ('{"orders": {"1": %s}}' % ("9" * 5000), ""),
        ('{"orders": {"1": 1, "1": 2}}', "'1' is named twice"),
        ('{"orders": {"1": 1}, "orders": {"2": 2}}', "'orders' is named twice"),
        ('{"": {"1": 1}}', "the name of a topic is empty"),
        ('{"orders": ' + "[" * 100_000, "is no JSON"),
    ],
)
def test_offsets_that_mean_nothing(text, reason):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
        parse_offsets(text)
    assert reason in str(caught.value)


def test_an_error_repeats_only_the_beginning_of_a_long_value():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
        parse_offsets_json(json.dumps({"orders": list(range(10_000))}))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"orders": {"0": -1}}', "orders-0: -1 is no time; one is milliseconds since 1970"),
        (f'{{"orders": {{"0": {INT64_MAX + 1}}}}}', "orders-0: 9223372036854775808 needs more than 64 bits"),
        ('{"orders": {"0": 1.5}}', "orders-0: 1.5 is not a whole number"),
    ],
)
def test_times_of_partitions_that_mean_nothing(text, reason):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
        parse_timestamps_json(text)
    assert reason in str(caught.value)


def test_times_have_64_bits():
    assert parse_timestamps_json(f'{{"orders": {{"0": {INT64_MAX}, "1": 0}}}}') == {ORDERS_0: INT64_MAX, ORDERS_1: 0}
    assert parse_timestamp(str(INT64_MAX)) == INT64_MAX
    with pytest.raises(ValueError, match="more than 64 bits"):
        parse_timestamp(str(INT64_MAX + 1))
    with pytest.raises(ValueError, match="-5 is no time"):
        parse_timestamp("-5")
    with pytest.raises(ValueError, match="'2024-01-01' is not a whole number"):
        parse_timestamp("2024-01-01")


def test_assigned_partitions_come_sorted():
    assert parse_partitions_json('{"orders": [1, 0], "a": [7]}') == (TopicPartition("a", 7), ORDERS_0, ORDERS_1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders", "is no JSON"),
        ('["orders"]', "is no JSON object"),
        ("{}", "names no partition"),
        ('{"orders": []}', "names no partition"),
        ('{"orders": {"0": 1}}', "is no list of partitions"),
        ('{"orders": 0}', "orders: 0 is no list of partitions"),
        ('{"orders": ["0"]}', 'orders: "0" is no partition'),
        ('{"orders": [true]}', "orders: true is no partition"),
        ('{"orders": [0.0]}', "orders: 0.0 is no partition"),
        ('{"orders": [-1]}', "orders: -1 is no partition"),
        ('{"orders": [2147483648]}', "orders: 2147483648 is no partition"),
        ('{"orders": [0, 0]}', "orders-0 is named twice"),
    ],
)
def test_assigned_partitions_that_mean_nothing(text, reason):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
        parse_partitions_json(text)
    assert reason in str(caught.value)


partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 20))


@given(st.dictionaries(partitions, st.integers(-2, INT64_MAX)), st.randoms())
def test_offsets_are_written_alike_in_whatever_order_they_were_found_and_read_back(offsets, random):
    """Spark compares the offsets of a stream as texts."""
    items = list(offsets.items())
    random.shuffle(items)
    text = format_offsets_json(dict(items))
    assert text == format_offsets_json(offsets)
    assert parse_offsets_json(text) == offsets


def test_offsets_are_written_dense_and_sorted_by_number():
    offsets = {TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1}
    assert format_offsets_json(offsets) == '{"a":{"0":1},"b":{"9":2,"10":3}}'


def test_many_partitions_are_counted_rather_than_listed():
    assert listed([ORDERS_1, ORDERS_0]) == "orders-0, orders-1"
    assert listed([TopicPartition("t", number) for number in range(13)]).endswith("t-9 and 3 more")
