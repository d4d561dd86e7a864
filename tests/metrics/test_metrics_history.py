"""Claims about samples and their history."""

from __future__ import annotations

from math import isnan

import attrs
import pytest

from kafka_wire.apis import ApiKey
from tests.metrics.statistics_fixtures import (
    broker_readings,
    channel_statistics,
    cleaner_statistics,
    client_backlog,
    flusher_statistics,
    handler_statistics,
    processor_statistics,
    slot_statistics,
)
from trio_broker.common.histogram import Histogram
from trio_broker.common.request_phase import RequestPhase
from trio_broker.metrics.history import HISTORY_SAMPLES, SERIES, History, HistorySample, sample_between
from trio_broker.metrics.series import row_of
from trio_broker.network.request_metrics import RequestTimes
from trio_broker.partition.thread_occupancy import ThreadOccupancyStatistics
from trio_broker.runtime.cpu_clock import CpuTimes


def test_rates_are_what_was_added_over_the_time_that_passed() -> None:
    sample = sample_between(
        broker_readings(10.0, bytes_in=1000, bytes_out=50, requests=3),
        broker_readings(12.0, bytes_in=5000, bytes_out=50, requests=13),
        7,
    )
    assert sample.sampled_at_ms == 7
    assert sample.bytes_in_per_second == 2000
    assert sample.bytes_out_per_second == 0
    assert sample.requests_per_second == 5


def test_levels_and_ratios_are_those_at_the_end() -> None:
    later = broker_readings(
        1.0,
        channel=channel_statistics(recent_peak_depth=9, capacity=250),
        handlers=handler_statistics(slot_statistics(0, 0.5), slot_statistics(1, 1.0), delayed=4),
        processors=(processor_statistics(0, 0.25),),
        connections=2,
        loop_busy_ratio=0.3,
    )
    sample = sample_between(broker_readings(0.0, connections=7, loop_busy_ratio=0.9), later, 0)
    assert (sample.queue_depth, sample.queue_capacity, sample.delayed_requests, sample.connections) == (9, 250, 4, 2)
    assert (sample.network_idle_ratio, sample.network_idle_ratios) == (0.25, (0.25,))
    assert (sample.io_idle_ratio, sample.io_idle_ratios) == (0.75, (0.5, 1.0))
    assert sample.event_loop_busy_ratio == 0.3


def test_syncs_are_reported_by_the_time_in_which_all_threads_were_busy_and_what_waited() -> None:
    syncs, waits = Histogram(), Histogram()
    syncs.record(50_000_000)
    earlier = flusher_statistics(
        2, ThreadOccupancyStatistics(0, 0, {1: 10}, 0, 500), sync_times=syncs.snapshot(), wait_times=waits.snapshot()
    )
    for _ in range(100):
        syncs.record(2_000_000)
        waits.record(9_000_000)
    occupied = ThreadOccupancyStatistics(2, 3, {0: 400_000_000, 1: 10, 2: 1_600_000_000}, 1_600_000_000, 6_000_000_500)
    later = flusher_statistics(2, occupied, sync_times=syncs.snapshot(), wait_times=waits.snapshot())
    sample = sample_between(broker_readings(0.0, flusher=earlier), broker_readings(2.0, flusher=later), 0)
    assert (sample.sync_threads, sample.sync_busy_ratio, sample.sync_threads_busy_ratio) == (2, 0.8, 0.8)
    assert (sample.syncs_per_second, sample.syncs_waiting) == (50, 3)
    assert 1.8 <= sample.sync_p50_ms <= sample.sync_p99_ms <= 2.3
    assert 8 <= sample.sync_wait_p99_ms <= 10.5


def test_times_of_requests_and_errors_are_those_of_the_interval() -> None:
    active = Histogram()
    active.record(3_000_000)
    waits = Histogram()
    waits.record(1_500_000)
    produce = RequestTimes(
        {RequestPhase.DISK: waits.snapshot()}, active.snapshot(), active.snapshot(), errors={3: 4, 6: 1}
    )
    intervals = {ApiKey.PRODUCE: produce, ApiKey.METADATA: RequestTimes(errors={3: 1})}
    readings = broker_readings(2.0, appended_records=500, intervals=intervals)
    sample = sample_between(broker_readings(0.0, appended_records=100), readings, 0)
    assert (sample.records_in_per_second, sample.errors_per_second, sample.disk_wait_ratio) == (200, 3, 0.5)
    assert 2.7 <= sample.produce_p50_ms <= sample.produce_p99_ms <= 3.4
    assert (sample.fetch_p50_ms, sample.fetch_p99_ms) == (0, 0)


def test_cold_sends_and_compaction_are_shares_of_the_interval() -> None:
    cold = attrs.evolve(processor_statistics(1, 0.5), cold_sends=9, cold_send_ns=500_000_000)
    later = broker_readings(
        1.0,
        processors=(processor_statistics(0, 0.5), cold),
        cleaner=cleaner_statistics(busy_ns=250_000_000, bytes_read=3000, bytes_written=1000),
    )
    sample = sample_between(broker_readings(0.0, processors=(processor_statistics(0, 0.5),)), later, 0)
    assert (sample.cold_send_busy_ratio, sample.cold_sends_per_second) == (0.5, 9)
    assert (sample.compaction_busy_ratio, sample.compaction_bytes_per_second) == (0.25, 4000)


def test_cpu_times_are_shares_of_the_interval() -> None:
    earlier = CpuTimes(loop_ns=7, process_ns=50, pressure_ns=1_000_000_000)
    later = CpuTimes(loop_ns=500_000_007, process_ns=3_000_000_050, pressure_ns=2_500_000_000)
    sample = sample_between(broker_readings(0.0, cpu=earlier), broker_readings(2.0, cpu=later), 0)
    assert (sample.event_loop_cpu_ratio, sample.process_cpu_ratio, sample.cpu_pressure_ratio) == (0.25, 1.5, 0.75)


def test_a_pressure_that_the_kernel_does_not_count_is_unknown_in_the_series_too() -> None:
    sample = sample_between(broker_readings(0.0), broker_readings(1.0), 0)
    assert sample.cpu_pressure_ratio is None
    values = dict(zip(SERIES, row_of(sample).values, strict=True))
    assert isnan(values["cpu_pressure_ratio"])
    assert values["event_loop_cpu_ratio"] == 0


@pytest.mark.parametrize(
    ("backlog", "wait_ms"),
    [(None, 0.0), (client_backlog(wait_seconds=2.5), 2500.0), (client_backlog(wait_seconds=None), None)],
)
def test_what_is_unread_is_as_of_the_end_and_how_long_it_waits_may_not_be_known(backlog, wait_ms) -> None:
    later = broker_readings(1.0, unread_bytes=7, backlog=backlog)
    sample = sample_between(broker_readings(0.0, unread_bytes=9), later, 0)
    assert (sample.unread_bytes, sample.backlog, sample.unread_wait_ms) == (7, backlog, wait_ms)


def test_two_readings_at_one_moment_divide_by_nothing() -> None:
    sample = sample_between(broker_readings(5.0), broker_readings(5.0), 0)
    assert sample.bytes_in_per_second == 0
    assert sample.io_idle_ratio == 1


def test_the_history_keeps_five_minutes() -> None:
    times = iter(range(1000, 10**9, 1000))
    history = History(broker_readings(), lambda: next(times))
    for second in range(1, HISTORY_SAMPLES + 11):
        history.add(broker_readings(second))
    assert len(history.samples) == HISTORY_SAMPLES == 300
    assert history.samples[0].sampled_at_ms == 11_000


def test_listeners_receive_each_sample_of_the_time_since_the_last_one() -> None:
    history = History(broker_readings(), lambda: 0)
    heard: list[HistorySample] = []
    history.subscribe(heard.append)
    for second in (1, 3):
        history.add(broker_readings(second, requests=10 * second))
    assert [sample.requests_per_second for sample in heard] == [10, 10]
    assert tuple(heard) == history.samples
