"""Retention: which segments may go, decided on facts."""

from __future__ import annotations

from functools import partial

import pytest

from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.storage.retention import (
    RetentionForecast,
    RetentionReason,
    SegmentFacts,
    expired_segments,
    retention_forecast,
)

NOW_MS = 1_000_000


def segments(*ages_ms: int, size: int = 100) -> list[SegmentFacts]:
    """Segments of ten offsets each, with their age."""
    return [
        SegmentFacts(index * 10, index * 10 + 10, size, partial(int, NOW_MS - age)) for index, age in enumerate(ages_ms)
    ]


def retired(facts: list[SegmentFacts], *, high_watermark: int = 1000, log_start: int = 0, **config: object):
    settings = LogConfig(**config)  # type: ignore[arg-type]
    found = expired_segments(facts, settings, now_ms=NOW_MS, high_watermark=high_watermark, log_start_offset=log_start)
    return [(segment.base_offset, segment.reason) for segment in found]


def test_by_time_the_oldest_go_and_it_stops_at_the_first_that_is_young():
    facts = segments(501, 502, 499, 900)
    assert retired(facts, retention_ms=500) == [(0, RetentionReason.TIME), (10, RetentionReason.TIME)]
    assert retired(facts, retention_ms=-1) == []


def test_a_segment_exactly_as_old_as_the_limit_stays():
    assert retired(segments(500), retention_ms=500) == []


def test_by_size_the_log_keeps_at_least_what_it_may():
    assert retired(segments(0, 0, 0, 0), retention_bytes=250) == [(0, RetentionReason.SIZE)]
    assert len(retired(segments(0, 0, 0, 0), retention_bytes=0)) == 4
    assert retired(segments(0, 0), retention_bytes=-1) == []


def test_nothing_goes_that_is_not_below_the_high_watermark():
    assert [base for base, _ in retired(segments(9, 9, 9), retention_ms=5, high_watermark=20)] == [0, 10]
    assert [base for base, _ in retired(segments(9, 9, 9), retention_ms=5, high_watermark=19)] == [0]


def test_before_the_log_start_segments_go_whatever_the_policy():
    compacted = CleanupPolicy(delete=False, compact=True)
    facts = segments(9, 9, 9)
    assert retired(facts, log_start=20, cleanup_policy=compacted, retention_ms=5) == [
        (0, RetentionReason.LOG_START),
        (10, RetentionReason.LOG_START),
    ]


def test_an_empty_last_segment_stays():
    facts = [*segments(900), SegmentFacts(10, 10, 0, lambda: 0)]
    assert retired(facts, retention_ms=5) == [(0, RetentionReason.TIME)]


@pytest.mark.parametrize("count", [1, 3])
def test_all_may_go(count: int):
    assert len(retired(segments(*[900] * count), retention_ms=5)) == count


def test_the_last_segment_does_not_go_for_the_log_start():
    assert retired(segments(0, 0), log_start=20) == [(0, RetentionReason.LOG_START)]


def forecast(facts: list[SegmentFacts], *, log_start: int = 0, **config: object) -> list[RetentionForecast]:
    settings = LogConfig(**config)  # type: ignore[arg-type]
    return retention_forecast(facts, settings, now_ms=NOW_MS, high_watermark=1000, log_start_offset=log_start)


def test_each_segment_is_due_when_its_time_is_over_and_not_before_the_one_in_front():
    due = [each.due_at_ms for each in forecast(segments(400, 450, 100), retention_ms=500, retention_bytes=-1)]
    assert due == [NOW_MS + 100, NOW_MS + 100, NOW_MS + 400]


def test_no_segment_is_due_behind_the_largest_time():
    """A client that counts in microseconds, and a retention of centuries."""
    [last] = forecast(segments(0), retention_ms=LONG_MAX, retention_bytes=-1)
    assert last.due_at_ms == LONG_MAX


def test_the_limit_of_size_takes_a_segment_once_enough_has_come_behind_it():
    due = [each.due_after_bytes for each in forecast(segments(0, 0, 0), retention_ms=-1, retention_bytes=250)]
    assert due == [50, 150, None]


def test_what_may_go_at_the_next_check_says_why():
    assert [each.reason for each in forecast(segments(900, 100), retention_ms=500)] == [RetentionReason.TIME, None]
    assert [each.reason for each in forecast(segments(9, 9), log_start=10)] == [RetentionReason.LOG_START, None]
    by_size = forecast(segments(0, 0, 0, 0), retention_bytes=250, retention_ms=-1)
    assert [each.reason for each in by_size] == [RetentionReason.SIZE, None, None, None]
    assert by_size[0].due_after_bytes == 0


def test_a_compacted_log_has_no_time_at_which_segments_go():
    compacted = CleanupPolicy(delete=False, compact=True)
    found = forecast(segments(900, 0), cleanup_policy=compacted, retention_ms=5, retention_bytes=5)
    assert [(each.due_at_ms, each.due_after_bytes) for each in found] == [(None, None), (None, None)]


def test_an_empty_last_segment_is_never_due():
    facts = [*segments(100), SegmentFacts(10, 10, 0, lambda: 0)]
    assert [each.due_at_ms for each in forecast(facts, retention_ms=500)] == [NOW_MS + 400, None]
