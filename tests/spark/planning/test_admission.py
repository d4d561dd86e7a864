"""How much the next micro-batch takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import read_options
from trio_broker.spark.planning.admission import (
    Admission,
    Limits,
    check_available_now,
    divide_in_proportion,
    limits_of,
    new_partitions,
    next_offsets,
    shorter_logs,
)

A, B, C, D = (TopicPartition(topic, 0) for topic in "abcd")


def test_without_limits_everything_is_taken():
    assert next_offsets({A: 1, B: 2}, {A: 5, B: 2}, {}).offsets == {A: 5, B: 2}


@pytest.mark.parametrize(
    ("start", "latest", "earliest_of_new", "limit", "offsets"),
    [
        # In proportion.
        ({A: 0, B: 0}, {A: 100, B: 300}, {}, 40, {A: 10, B: 30}),
        # Rounded down.
        ({A: 0, B: 0}, {A: 10, B: 20}, {}, 10, {A: 3, B: 6}),
        # At least one, so that nobody starves.
        ({A: 0, B: 5}, {A: 1000, B: 6}, {}, 10, {A: 9, B: 6}),
        # Never more than there is.
        ({A: 0, B: 7}, {A: 3, B: 9}, {}, 1000, {A: 3, B: 9}),
        # Nothing of those that have nothing.
        ({A: 0, B: 9}, {A: 100, B: 9}, {}, 10, {A: 10, B: 9}),
        ({A: 4, B: 9}, {A: 4, B: 9}, {}, 10, {A: 4, B: 9}),
        # New partitions from their earliest offset on.
        ({A: 0}, {A: 100, B: 110}, {B: 10}, 20, {A: 10, B: 20}),
        # One that came and went.
        ({A: 0}, {A: 100, B: 110}, {}, 20, {A: 20, B: 110}),
        # One whose log became shorter.
        ({A: 0, B: 50}, {A: 100, B: 7}, {}, 20, {A: 20, B: 7}),
        # Where floating point would give 28.
        ({A: 0, B: 0}, {A: 29, B: 71}, {}, 100, {A: 29, B: 71}),
        # Beyond what a double holds exactly.
        ({A: 2**62, B: 0}, {A: 2**63 - 1, B: 1}, {}, 2**61, {A: 2**62 + 2**61 - 1, B: 1}),
    ],
)
def test_a_limit_is_shared_out(start, latest, earliest_of_new, limit, offsets):
    assert next_offsets(start, latest, earliest_of_new, Limits(max_offsets=limit)).offsets == offsets


def test_the_first_micro_batch_does_not_wait():
    limits = Limits(min_offsets=100, max_delay_ms=1000)
    assert next_offsets({A: 0}, {A: 1}, {}, limits, now_ms=50) == Admission({A: 1}, last_trigger_ms=50)


@pytest.mark.parametrize(
    ("waiting", "now_ms", "waits"),
    [(99, 1999, True), (100, 1001, False), (99, 2000, False), (0, 1999, True), (0, 2000, False)],
)
def test_a_micro_batch_waits_for_the_least_but_not_for_ever(waiting, now_ms, waits):
    limits = Limits(min_offsets=100, max_delay_ms=1000)
    admission = next_offsets({A: 10}, {A: 10 + waiting}, {}, limits, last_trigger_ms=1000, now_ms=now_ms)
    expected = Admission({A: 10}, 1000) if waits else Admission({A: 10 + waiting}, now_ms)
    assert admission == expected


def test_a_micro_batch_that_waits_ends_where_it_began_even_if_partitions_come():
    limits = Limits(min_offsets=100, max_delay_ms=1000)
    assert next_offsets({A: 0}, {A: 1, B: 99}, {B: 90}, limits, last_trigger_ms=0, now_ms=1).offsets == {A: 0}


def test_the_least_counts_new_partitions_from_their_earliest_offset_on():
    limits = Limits(min_offsets=10, max_delay_ms=1000)
    assert next_offsets({A: 0}, {A: 1, B: 99}, {B: 90}, limits, last_trigger_ms=0, now_ms=1).offsets == {A: 1, B: 99}


def test_the_least_and_the_most_go_together():
    limits = Limits(max_offsets=20, min_offsets=10, max_delay_ms=1000)
    assert next_offsets({A: 0}, {A: 9}, {}, limits, last_trigger_ms=0, now_ms=1).offsets == {A: 0}
    assert next_offsets({A: 0}, {A: 99}, {}, limits, last_trigger_ms=0, now_ms=1) == Admission({A: 20}, 1)


def test_limits_come_from_the_options():
    options = read_options(
        {
            "kafka.bootstrap.servers": "here:9092",
            "subscribe": "a",
            "maxOffsetsPerTrigger": "7",
            "minOffsetsPerTrigger": "3",
            "maxTriggerDelay": "2s",
        },
        Mode.STREAM,
    )
    assert limits_of(options) == Limits(7, 3, 2000)
    assert limits_of(options, available_now=True) == Limits(7, None, 2000)


def test_partitions_that_came_and_logs_that_became_shorter_are_found():
    assert new_partitions({A: 1, B: 5}, {C: 2, B: 4, A: 1}) == [C]
    assert shorter_logs({A: 1, B: 5, D: 9}, {C: 2, B: 4, A: 1}) == [B]


@pytest.mark.parametrize(
    ("end", "gone", "text"),
    [
        ({A: 5}, [], "partitions came or went since the query was started: b-0"),
        ({A: 5, B: 6, C: 0}, [], "partitions came or went since the query was started: c-0"),
        ({A: 5, B: 7}, [], "the log became shorter since the query was started: b-0"),
        ({A: 5, B: 6}, [B], "partitions went since the query was started: b-0"),
    ],
)
def test_a_query_over_what_was_there_stays_within_it(end, gone, text):
    with pytest.raises(SparkJobError, match=text):
        check_available_now({A: 5, B: 6}, end, gone)


def test_a_query_over_what_was_there_may_read_it():
    check_available_now({A: 5, B: 6}, {A: 5, B: 2}, [])


sizes = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abcdefgh"), st.integers(0, 3)), st.integers(0, 2**62) | st.integers(0, 9)
)


@given(sizes, st.integers(1, 2**62) | st.integers(1, 9))
def test_shares_are_bounded_by_the_limit_by_what_there_is_and_by_nobody_starving(waiting, limit):
    shares = divide_in_proportion(limit, waiting)
    having = [partition for partition, size in waiting.items() if size]
    assert shares.keys() == waiting.keys()
    assert all(0 <= shares[partition] <= size for partition, size in waiting.items())
    assert all(shares[partition] >= 1 for partition in having)
    assert sum(shares.values()) <= limit + len(having)
    if sum(waiting.values()) <= limit:
        assert shares == waiting


offsets = st.dictionaries(st.builds(TopicPartition, st.sampled_from("abcd"), st.integers(0, 2)), st.integers(0, 10**6))


@given(offsets, offsets, st.none() | st.integers(1, 1000))
def test_every_trigger_makes_progress_and_no_partition_passes_its_end_or_goes_back(start, growth, limit):
    latest = {partition: start.get(partition, 0) + growth.get(partition, 0) for partition in start | growth}
    earliest_of_new = dict.fromkeys(new_partitions(start, latest), 0)
    for _ in range(10):
        end = next_offsets(start, latest, earliest_of_new, Limits(max_offsets=limit)).offsets
        assert end.keys() == latest.keys()
        assert all(start.get(partition, 0) <= offset <= latest[partition] for partition, offset in end.items())
        assert sum(end.values()) > sum(start.values()) or end == latest
        start = end


@given(offsets, offsets, offsets, st.integers(1, 1000))
def test_no_partition_drops_out_of_the_offsets_and_none_passes_its_end(start, named, earliest, limit):
    latest = {**start, **named}
    end = next_offsets(start, latest, earliest, Limits(max_offsets=limit)).offsets
    assert end.keys() == latest.keys()
    assert all(offset <= latest[partition] for partition, offset in end.items())
