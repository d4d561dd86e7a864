"""When a disk will be full, from samples of how full it was."""

from __future__ import annotations

from collections import Counter

import pytest

from trio_broker.partition.disk_usage import (
    DISK_USAGE_INTERVAL_MS,
    MAX_SAMPLES,
    MIN_SAMPLES,
    DiskUsageHistory,
    DiskUsageSample,
    Growth,
    forecast_disk,
)
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.log_directory import LogDirectory

START_MS = 1_700_000_000_000
GIB = 2**30


def samples(used):
    return [DiskUsageSample(START_MS + number * DISK_USAGE_INTERVAL_MS, each, 0) for number, each in enumerate(used)]


def test_a_disk_that_fills_evenly_is_full_when_the_line_says_so():
    forecast = forecast_disk(samples(range(500 * GIB, 500 * GIB + 100 * 30_000, 30_000)), usable_bytes=86_400_000)
    assert forecast.growth is Growth.STEADY
    assert forecast.bytes_per_second == pytest.approx(1000)
    assert forecast.full_in_seconds == pytest.approx(86_400)
    assert forecast.sampled_seconds == 99 * 30


def test_a_forecast_says_what_of_the_growth_is_of_logs():
    used = [
        DiskUsageSample(START_MS + number * DISK_USAGE_INTERVAL_MS, GIB + number * 30_000, number * 6_000)
        for number in range(20)
    ]
    forecast = forecast_disk(used, usable_bytes=86_400_000)
    assert forecast.bytes_per_second == pytest.approx(1000)
    assert forecast.log_bytes_per_second == pytest.approx(200)


def test_small_steps_do_not_make_a_growing_disk_unsteady():
    used = [number * 1_000_000 + (300_000 if number % 2 else 0) for number in range(60)]
    assert forecast_disk(samples(used), GIB).growth is Growth.STEADY


@pytest.mark.parametrize("count", [0, 1, MIN_SAMPLES - 1])
def test_a_few_samples_tell_nothing(count):
    forecast = forecast_disk(samples(range(0, count * 1000, 1000)), GIB)
    assert (forecast.growth, forecast.full_in_seconds) == (Growth.UNKNOWN, None)


def test_samples_of_one_moment_tell_nothing():
    assert forecast_disk([DiskUsageSample(START_MS, 5, 0)] * MIN_SAMPLES, GIB).growth is Growth.UNKNOWN


@pytest.mark.parametrize("used", [[GIB] * 50, list(range(50 * GIB, 0, -GIB))])
def test_a_disk_that_does_not_grow_is_never_full(used):
    forecast = forecast_disk(samples(used), GIB)
    assert (forecast.growth, forecast.full_in_seconds) == (Growth.NONE, None)


def test_growth_for_more_than_a_year_is_none():
    assert forecast_disk(samples(range(100)), 10_000 * GIB).growth is Growth.NONE


def test_a_disk_that_retention_empties_in_turns_has_no_forecast():
    used = [(number % 10) * GIB + number * 1_000_000 for number in range(100)]
    forecast = forecast_disk(samples(used), GIB)
    assert (forecast.growth, forecast.full_in_seconds) == (Growth.UNSTEADY, None)


def test_the_samples_of_a_directory_are_bounded_and_a_failed_one_is_left_out(tmp_path):
    works, failed = LogDirectory(RealDisk(), tmp_path), LogDirectory(RealDisk(), tmp_path / "gone")
    failed.failure = OSError("gone")
    history = DiskUsageHistory([works, failed], Counter)
    for number in range(MAX_SAMPLES + 5):
        history.sample(START_MS + number)
    kept = history.samples(works)
    assert (len(kept), kept[-1].at_ms) == (MAX_SAMPLES, START_MS + MAX_SAMPLES + 4)
    assert history.samples(failed) == []


def test_a_directory_that_cannot_be_measured_leaves_a_gap(tmp_path):
    history = DiskUsageHistory([LogDirectory(RealDisk(), tmp_path / "gone")], Counter)
    history.sample(START_MS)
    assert history.samples(LogDirectory(RealDisk(), tmp_path / "gone")) == []
