"""What passes a throttle, and how a job is cut into rounds."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.pipelines.rounds.slice_schedule import DEFAULT_SLICE_RECORDS, next_slices, slice_records_at
from trio_broker.spark.pipelines.rounds.token_bucket import STEP_SECONDS, RateLimit, Throttle, TokenBucket
from trio_broker.spark.ranges import OffsetRange

A, B, C = (TopicPartition("orders", number) for number in range(3))


@attrs.define
class Time:
    """A clock that moves when somebody sleeps."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v" * 10] * count, pa.binary())})


@given(st.floats(1, 1e6), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5000)), min_size=1, max_size=30))
def test_no_more_passes_than_the_rate_and_a_step(rate: float, takes: list[tuple[float, int]]):
    time = Time()
    bucket = TokenBucket(rate, time.now, time.sleep)
    passed = 0
    for pause, count in takes:
        time.sleep(pause)
        bucket.take(count)
        passed += count
        assert passed <= rate * (time.seconds + STEP_SECONDS) * (1 + 1e-9)


def test_a_bucket_begins_empty_and_keeps_no_more_than_a_step():
    time = Time()
    bucket = TokenBucket(100, time.now, time.sleep)
    bucket.take(50)
    assert time.seconds == pytest.approx(0.5)
    time.sleep(1000)
    bucket.take(125)
    assert time.seconds == pytest.approx(1001.5)


def test_rows_pass_in_order_and_in_small_pieces_at_the_rate():
    time = Time()
    throttle = Throttle(RateLimit(records=100), time.now, time.sleep)
    pieces = list(throttle.pieces(rows(1000)))
    assert [piece.num_rows for piece in pieces] == [25] * 40
    assert time.seconds == pytest.approx(10)


def test_bytes_are_limited_as_well():
    time = Time()
    batch = rows(1000)
    list(Throttle(RateLimit(records=1e9, bytes=batch.nbytes / 20), time.now, time.sleep).pieces(batch))
    assert time.seconds == pytest.approx(20, rel=0.05)


def test_a_single_row_above_the_rate_passes_late():
    time = Time()
    assert [piece.num_rows for piece in Throttle(RateLimit(records=0.1), time.now, time.sleep).pieces(rows(2))] == [
        1,
        1,
    ]
    assert time.seconds == pytest.approx(20)


def test_without_a_limit_a_batch_passes_whole_and_at_once():
    time = Time()
    assert [piece.num_rows for piece in Throttle(RateLimit(), time.now, time.sleep).pieces(rows(1000))] == [1000]
    assert time.seconds == 0


def test_shares_of_a_limit_add_up_to_it():
    limit = RateLimit(records=90, bytes=None)
    assert [limit.share(part, 6).records for part in (1, 2, 3)] == [15, 30, 45]
    assert limit.seconds_for(900, None) == 10
    assert RateLimit().seconds_for(900, None) is None


def slices_of(
    position: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most_slices: int, slice_records: int
) -> tuple[OffsetRange, ...]:
    return next_slices(
        position,
        ends,
        most_slices=most_slices,
        size=lambda each: each.offset_count,
        slice_end=lambda each: min(each.end_offset, each.start_offset + slice_records),
    )


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.integers(1, 4),
    st.integers(1, 30),
)
def test_rounds_cover_everything_once_and_in_order(
    ranges: dict[TopicPartition, tuple[int, int]], most_slices: int, slice_records: int
):
    position = {partition: start for partition, (start, _) in ranges.items()}
    ends = {partition: start + count for partition, (start, count) in ranges.items()}
    while slices := slices_of(position, ends, most_slices, slice_records):
        assert len(slices) <= most_slices
        assert len({each.partition for each in slices}) == len(slices)
        for each in slices:
            assert each.start_offset == position[each.partition]
            assert 0 < each.offset_count <= slice_records
            position[each.partition] = each.end_offset
    assert position == ends


def test_partitions_with_most_records_remaining_come_first():
    found = slices_of({A: 0, B: 0, C: 0}, {A: 5, B: 50, C: 20}, 2, 10)
    assert found == (OffsetRange(B, 0, 10), OffsetRange(C, 0, 10))


def test_slow_jobs_have_small_slices():
    assert slice_records_at(RateLimit(), 8) == DEFAULT_SLICE_RECORDS
    assert slice_records_at(RateLimit(records=80), 8) == 300
    assert slice_records_at(RateLimit(bytes=8000), 8) == 300
    assert slice_records_at(RateLimit(records=0.001), 8) == 1
