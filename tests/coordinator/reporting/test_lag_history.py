"""The lag of groups over time: rates, trend, and what is kept."""

from __future__ import annotations

import pytest

from trio_broker.coordinator.reporting.lag_history import (
    MAX_GROUPS,
    MAX_READINGS,
    SAMPLE_INTERVAL_MS,
    GroupReading,
    LagHistory,
    ReadingRing,
    chosen_groups,
    rates_of,
)
from trio_broker.coordinator.reporting.snapshot import LagTrend


def reading(number: int, committed: int, ends: int, partitions: int = 2) -> GroupReading:
    """The reading ``number`` of a group, ``SAMPLE_INTERVAL_MS`` apart."""
    return GroupReading(1000 + SAMPLE_INTERVAL_MS * number, ends - committed, 1.5, committed, ends, partitions)


def steps(*sums: tuple[int, int]) -> list[GroupReading]:
    return [reading(number, committed, ends) for number, (committed, ends) in enumerate(sums)]


def test_the_latest_reading_of_each_group_comes_with_its_rates():
    history = LagHistory()
    assert history.latest() == []
    for number, lags in enumerate(({"a": 100, "b": 100}, {"a": 200, "b": 100}, {"b": 100})):
        for group_id in history.keep(lags):
            history.add(group_id, reading(number, 0, lags[group_id]))
        if number == 1:
            latest = {each.group_id: each for each in history.latest()}
            assert (latest["a"].lag_records, latest["a"].lag_seconds) == (200, 1.5)
            assert (rates := latest["a"].rates) is not None
            assert rates.trend is LagTrend.GROWING
            assert latest["b"].rates == history.rates("b")
    assert [each.group_id for each in history.latest()] == ["b"]


@pytest.mark.parametrize(
    ("readings", "consumed", "produced", "trend", "catches_up"),
    [
        (steps((0, 0), (0, 0)), 0.0, 0.0, LagTrend.STEADY, 0.0),
        (steps((0, 100), (0, 100)), 0.0, 0.0, LagTrend.STEADY, None),
        (steps((0, 100), (50, 150), (100, 200)), 10.0, 10.0, LagTrend.STEADY, None),
        (steps((0, 100), (50, 300)), 10.0, 40.0, LagTrend.GROWING, None),
        (steps((0, 1000), (200, 1000), (400, 1000)), 40.0, 0.0, LagTrend.SHRINKING, 15.0),
        (steps((0, 0), (0, 500)), 0.0, 100.0, LagTrend.GROWING, None),
        # A commit more or less within the window is no trend.
        (steps((0, 100), (950, 1100)), 190.0, 200.0, LagTrend.STEADY, None),
    ],
)
def test_rates_and_trend_follow_from_sums(
    readings: list[GroupReading], consumed: float, produced: float, trend: LagTrend, catches_up: float | None
):
    rates = rates_of(readings)
    assert rates is not None
    assert (rates.consumed_per_second, rates.produced_per_second) == (consumed, produced)
    assert (rates.trend, rates.catches_up_in_seconds) == (trend, catches_up)


@pytest.mark.parametrize(
    "readings",
    [
        [],
        steps((0, 100)),
        steps((50, 100), (0, 100)),  # a reset
        steps((0, 100), (0, 40)),  # a topic deleted
        [reading(0, 0, 100, partitions=1), reading(1, 10, 200, partitions=2)],
        [reading(0, 0, 0, partitions=0), reading(1, 0, 0, partitions=0)],
        [reading(1, 0, 100), reading(0, 50, 100)],  # the wall clock was set back
    ],
)
def test_readings_that_cannot_be_compared_give_no_rates(readings: list[GroupReading]):
    assert rates_of(readings) is None


def test_an_interval_with_a_reset_is_left_out():
    rates = rates_of(steps((0, 100), (50, 150), (0, 200), (50, 250)))
    assert rates is not None
    assert (rates.over_seconds, rates.consumed_per_second, rates.produced_per_second) == (10.0, 10.0, 10.0)


def test_a_ring_keeps_an_hour():
    ring = ReadingRing()
    for number in range(MAX_READINGS + 3):
        ring.add(reading(number, number, 2 * number))
    kept = ring.latest()
    assert len(kept) == len(ring) == MAX_READINGS
    assert kept[0] == reading(3, 3, 6)
    assert kept[-1] == reading(MAX_READINGS + 2, MAX_READINGS + 2, 2 * (MAX_READINGS + 2))
    assert ring.latest(2) == kept[-2:]


def test_a_lag_that_is_not_known_stays_unknown():
    ring = ReadingRing()
    ring.add(GroupReading(1, None, None, 0, 0, 0))
    assert ring.latest() == [GroupReading(1, None, None, 0, 0, 0)]


def test_the_groups_furthest_behind_are_kept_and_stay_while_they_are_near():
    lags: dict[str, int | None] = {f"g{number:04}": number for number in range(4 * MAX_GROUPS)}
    chosen = chosen_groups(lags, ())
    assert sorted(chosen) == [f"g{number:04}" for number in range(3 * MAX_GROUPS, 4 * MAX_GROUPS)]
    near, far = f"g{2 * MAX_GROUPS:04}", "g0000"
    again = chosen_groups(lags, [near, far])
    assert len(again) == MAX_GROUPS
    assert near in again
    assert far not in again
    assert chosen_groups({"unknown": None, **lags}, ["unknown"])[0] != "unknown"


def test_a_history_forgets_groups_that_are_gone():
    history = LagHistory()
    for number in range(2):
        history.keep({"a": 1, "b": 2})
        history.add("a", reading(number, 50 * number, 100 + 50 * number))
        history.add("b", reading(number, 0, 100))
    assert [sample.lag_records for sample in history.samples("a")] == [100, 100]
    rates = history.rates("a")
    assert rates is not None
    assert rates.consumed_per_second == 10.0
    history.keep({"b": 2})
    assert history.samples("a") == ()
    assert history.rates("a") is None
