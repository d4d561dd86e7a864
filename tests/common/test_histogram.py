"""Claims about buckets and quantiles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import each
from trio_broker.common.histogram import (
    BUCKET_TABLE,
    BUCKETS,
    TABLE_UNITS,
    UNIT_SHIFT,
    Histogram,
    HistogramSnapshot,
    bucket_of,
    upper_bound_ns,
)


def histogram_of(*durations_ns: int) -> Histogram:
    histogram = Histogram()
    for duration_ns in durations_ns:
        histogram.record(duration_ns)
    return histogram


@each("bucket", range(BUCKETS - 1))
def test_a_bucket_ends_where_the_next_begins(bucket):
    bound_ns = upper_bound_ns(bucket)
    assert (bucket_of(bound_ns - 1), bucket_of(bound_ns)) == (bucket, bucket + 1)


@each("bucket", range(1, BUCKETS - 1))
def test_a_bucket_is_at_most_a_quarter_as_wide_as_where_it_begins(bucket):
    begin_ns = upper_bound_ns(bucket - 1)
    assert upper_bound_ns(bucket) <= begin_ns * 1.25


def test_what_is_longer_than_all_bounds_is_in_the_last_bucket():
    assert upper_bound_ns(BUCKETS - 2) == 1 << 37
    assert bucket_of(1 << 50) == BUCKETS - 1


@given(st.integers(0, TABLE_UNITS - 1))
def test_the_table_says_what_computing_says(units):
    assert BUCKET_TABLE[units] == bucket_of(units << UNIT_SHIFT)


@given(st.lists(st.integers(1_100, 10**11), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_is_in_the_bucket_of_the_duration_of_that_rank(durations_ns, quantile):
    snapshot = histogram_of(*durations_ns).snapshot()
    rank = quantile * len(durations_ns)
    exact_ns = sorted(durations_ns)[max(0, -int(-rank // 1) - 1)]
    assert exact_ns / 1.26 <= snapshot.quantile_ms(quantile) * 1e6 <= exact_ns * 1.26


def test_nothing_counted_has_no_times():
    assert HistogramSnapshot().quantile_ms(0.99) == HistogramSnapshot().max_ms == 0.0


def test_the_sum_is_exact_and_the_maximum_that_of_its_bucket():
    snapshot = histogram_of(1_000_000, 3_000_000).snapshot()
    assert (snapshot.count, snapshot.sum_ns) == (2, 4_000_000)
    assert 3.0 <= snapshot.max_ms <= 3.75


def test_the_difference_of_two_snapshots_is_what_came_between():
    histogram = histogram_of(5_000)
    earlier = histogram.snapshot()
    histogram.record(7_000_000)
    histogram.record(5_000)
    assert histogram.snapshot().minus(earlier) == histogram_of(5_000, 7_000_000).snapshot()


def test_what_is_taken_is_gone_and_can_be_added_up():
    histogram = histogram_of(5_000, 6_000)
    taken = histogram.take()
    assert (histogram.snapshot(), taken.count) == (HistogramSnapshot(), 2)
    assert taken.plus(taken).count == 4
