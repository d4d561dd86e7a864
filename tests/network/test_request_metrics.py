"""Which phase a request's time counts to, and over which time the counts are read."""

from __future__ import annotations

import pytest
from attrs import define

from trio_broker.common.histogram import bucket_of
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.request_metrics import (
    BATCH,
    RECENT_INTERVALS,
    RequestChannelMetrics,
    RequestMetrics,
    RequestWaits,
)

PRODUCE, FETCH = 0, 1
MS = 1_000_000


@define
class Timed:
    """A request that was queued at 0, and began after 1 ms."""

    answered_ns: int = 3 * MS
    waits: RequestWaits | None = None
    queued_ns: int = 0
    began_ns: int = 1 * MS


def sums_ms(metrics: RequestMetrics) -> dict[RequestPhase, float]:
    return {phase: times.sum_ns / MS for phase, times in metrics.since_start().phases.items()}


def test_every_millisecond_is_in_one_phase():
    metrics = RequestMetrics()
    waits = RequestWaits(RequestPhase.DISK, 0, disk_ns=40 * MS, purgatory_ns=55 * MS)
    metrics.record(Timed(answered_ns=103 * MS, waits=waits), 107 * MS, 112 * MS)
    assert sums_ms(metrics) == {
        RequestPhase.QUEUE: 1,
        RequestPhase.LOCAL: 7,
        RequestPhase.DISK: 40,
        RequestPhase.PURGATORY: 55,
        RequestPhase.RESPONSE_QUEUE: 4,
        RequestPhase.SEND: 5,
    }
    times = metrics.since_start()
    assert (times.total.sum_ns, times.active.sum_ns) == (112 * MS, 57 * MS)


@pytest.mark.parametrize("wait_ns", [0, 30 * MS, 80 * MS, 5_000 * MS], ids="{} ns".format)
def test_a_long_time_is_in_the_right_bucket_like_a_short_one(wait_ns):
    metrics = RequestMetrics()
    metrics.record(Timed(answered_ns=3 * MS + wait_ns), 4 * MS + wait_ns, 6 * MS + wait_ns)
    times = metrics.since_start()
    buckets = {phase: list(snapshot.counts) for phase, snapshot in times.phases.items() if snapshot.counts}
    assert buckets == {
        RequestPhase.QUEUE: [bucket_of(MS)],
        RequestPhase.LOCAL: [bucket_of(2 * MS + wait_ns)],
        RequestPhase.RESPONSE_QUEUE: [bucket_of(MS)],
        RequestPhase.SEND: [bucket_of(2 * MS)],
    }
    assert list(times.total.counts) == list(times.active.counts) == [bucket_of(6 * MS + wait_ns)]


def test_a_request_that_was_never_in_a_phase_was_there_for_no_time():
    metrics = RequestMetrics()
    metrics.record(Timed(), 3 * MS, 3 * MS)
    waits = RequestWaits(RequestPhase.PURGATORY, 0, purgatory_ns=10 * MS)
    metrics.record(Timed(answered_ns=13 * MS, waits=waits), 13 * MS, 13 * MS)
    times = metrics.since_start().phase(RequestPhase.PURGATORY)
    assert (times.count, times.counts[0], times.sum_ns) == (2, 1, 10 * MS)


def test_the_last_second_the_last_minute_and_the_time_since_the_start():
    metrics = RequestChannelMetrics()
    for second in range(RECENT_INTERVALS + 5):
        metrics.by_api[PRODUCE].record(Timed(), 3 * MS, 3 * MS)
        metrics.update_error_metrics(PRODUCE, {3: 2})
        metrics.roll(second * 1000 * MS)
    metrics.by_api[PRODUCE].record(Timed(), 3 * MS, 3 * MS)
    produce = metrics.by_api[PRODUCE]
    counts = [times.count for times in (produce.last_interval(), produce.last_minute(), produce.since_start())]
    assert counts == [1, RECENT_INTERVALS, RECENT_INTERVALS + 6]
    assert produce.last_interval().errors == {3: 2}
    assert produce.last_minute().errors == {3: 2 * RECENT_INTERVALS}
    assert produce.since_start().errors == {3: 2 * (RECENT_INTERVALS + 5)}
    assert metrics.recent_seconds == RECENT_INTERVALS


def test_a_second_without_requests_is_empty_and_still_a_second():
    metrics = RequestChannelMetrics()
    metrics.by_api[FETCH].record(Timed(), 3 * MS, 3 * MS)
    metrics.roll(1)
    metrics.roll(2)
    fetch = metrics.by_api[FETCH]
    assert (fetch.last_interval().count, fetch.last_minute().count) == (0, 1)


def test_an_error_is_counted_in_the_second_it_was_answered_in_though_no_request_ended_then():
    metrics = RequestChannelMetrics()
    metrics.update_error_metrics(FETCH, {1: 1})
    metrics.roll(1)
    assert metrics.by_api[FETCH].last_interval().errors == {1: 1}
    assert metrics.by_api[FETCH].since_start().errors == {1: 1}


@pytest.mark.parametrize("count", [BATCH - 1, BATCH, BATCH + 1])
def test_no_request_is_lost_between_two_batches(count):
    metrics = RequestMetrics()
    for _ in range(count):
        metrics.record(Timed(), 3 * MS, 3 * MS)
    assert metrics.since_start().count == metrics.since_start().count == count
    metrics.roll()
    assert metrics.last_interval().count == count
