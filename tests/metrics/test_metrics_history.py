"""Claims about samples and their history."""

from __future__ import annotations

from tests.metrics.statistics_fixtures import (
    channel_statistics,
    handler_statistics,
    processor_statistics,
    server_statistics,
    slot_statistics,
)
from trio_broker.metrics.history import HISTORY_SAMPLES, History, HistorySample, sample_between


def test_rates_are_what_was_added_over_the_time_that_passed() -> None:
    sample = sample_between(
        server_statistics(10.0, bytes_in=1000, bytes_out=50, requests=3),
        server_statistics(12.0, bytes_in=5000, bytes_out=50, requests=13),
        7,
    )
    assert sample.sampled_at_ms == 7
    assert sample.bytes_in_per_second == 2000
    assert sample.bytes_out_per_second == 0
    assert sample.requests_per_second == 5


def test_levels_and_ratios_are_those_at_the_end() -> None:
    later = server_statistics(
        1.0,
        channel=channel_statistics(recent_peak_depth=9, capacity=250),
        handlers=handler_statistics(slot_statistics(0, 0.5), slot_statistics(1, 1.0), parked=4),
        processors=(processor_statistics(0, 0.25),),
        connections=2,
        loop_busy_ratio=0.3,
    )
    sample = sample_between(server_statistics(0.0, connections=7, loop_busy_ratio=0.9), later, 0)
    assert (sample.queue_depth, sample.queue_capacity, sample.parked_requests, sample.connections) == (9, 250, 4, 2)
    assert (sample.network_idle_ratio, sample.network_idle_ratios) == (0.25, (0.25,))
    assert (sample.io_idle_ratio, sample.io_idle_ratios) == (0.75, (0.5, 1.0))
    assert sample.event_loop_busy_ratio == 0.3


def test_two_readings_at_one_moment_divide_by_nothing() -> None:
    sample = sample_between(server_statistics(5.0), server_statistics(5.0), 0)
    assert sample.bytes_in_per_second == 0
    assert sample.io_idle_ratio == 1


def test_the_history_keeps_five_minutes() -> None:
    times = iter(range(1000, 10**9, 1000))
    history = History(server_statistics(), lambda: next(times))
    for second in range(1, HISTORY_SAMPLES + 11):
        history.add(server_statistics(second))
    assert len(history.samples) == HISTORY_SAMPLES == 300
    assert history.samples[0].sampled_at_ms == 11_000


def test_listeners_receive_each_sample_of_the_time_since_the_last_one() -> None:
    history = History(server_statistics(), lambda: 0)
    heard: list[HistorySample] = []
    history.subscribe(heard.append)
    for second in (1, 3):
        history.add(server_statistics(second, requests=10 * second))
    assert [sample.requests_per_second for sample in heard] == [10, 10]
    assert tuple(heard) == history.samples
