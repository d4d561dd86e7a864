"""The verdict over time: readings that cross thresholds in turns make one verdict, a real change makes another soon."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from tests.metrics.statistics_fixtures import broker_readings, client_backlog
from trio_broker.metrics.bottleneck import Limit, bottleneck, readings_of
from trio_broker.metrics.history import HistorySample, sample_between
from trio_broker.metrics.standing_verdict import StandingVerdict

REPORTED_WITHIN_SECONDS = 20

IDLE = sample_between(broker_readings(0.0), broker_readings(1.0), 0)


def sample(**readings: Any) -> HistorySample:
    """A second of a broker under load, with an event loop that has a CPU unless ``readings`` say otherwise."""
    busy = readings.get("event_loop_busy_ratio", 0.3)
    values = {"requests_per_second": 500.0, "event_loop_busy_ratio": busy, "event_loop_cpu_ratio": busy}
    return attrs.evolve(IDLE, **values | {"process_cpu_ratio": busy} | readings)


LOOP = sample(event_loop_busy_ratio=0.98)
STARVED = sample(event_loop_busy_ratio=0.97, event_loop_cpu_ratio=0.2, process_cpu_ratio=0.3, cpu_pressure_ratio=0.95)
DISK = sample(disk_wait_ratio=0.9)
SYNCS = sample(disk_wait_ratio=0.9, sync_busy_ratio=0.95, syncs_waiting=6.0)
BACKLOG = sample(disk_wait_ratio=0.9, unread_bytes=1_500_000, unread_wait_ms=60_000.0, backlog=client_backlog())
CLIENTS = sample()


def verdicts(samples: Iterable[HistorySample]) -> list[Limit]:
    """Each verdict that is seen, once for each time that it begins."""
    standing = StandingVerdict()
    seen: list[Limit] = []
    for each in samples:
        standing.add(each)
        if not seen or seen[-1] is not standing.verdict.limit:
            seen.append(standing.verdict.limit)
    return seen


def crossing(period_seconds: float, seed: int) -> list[HistorySample]:
    """Ten minutes in which the loop goes about 0.85 and the wait for the disk about 0.5, in turns and with noise."""
    chance = random.Random(seed)
    return [
        sample(
            event_loop_busy_ratio=0.85 + 0.07 * math.cos(2 * math.pi * second / period_seconds) + chance.gauss(0, 0.02),
            disk_wait_ratio=0.5 - 0.07 * math.cos(2 * math.pi * second / period_seconds) + chance.gauss(0, 0.02),
        )
        for second in range(600)
    ]


@pytest.mark.parametrize("period_seconds", [23, 40, 90, 240])
def test_ten_minutes_of_readings_that_cross_two_thresholds_in_turns_make_one_verdict(period_seconds):
    samples = crossing(period_seconds, seed=period_seconds)
    each_by_itself = [bottleneck(readings_of(samples[:end])).limit for end in range(1, len(samples) + 1)]
    assert len(set(each_by_itself)) >= 2, "they cross"
    assert verdicts(samples) == [Limit.EVENT_LOOP]


def test_a_broker_that_is_asked_for_something_is_not_called_idle_for_a_second():
    standing = StandingVerdict()
    for each in [IDLE] * 30 + [CLIENTS]:
        standing.add(each)
    assert standing.verdict.limit is Limit.CLIENTS


def test_a_request_a_second_more_or_less_makes_one_verdict():
    samples = [sample(requests_per_second=1.05 + 0.12 * math.cos(second / 7)) for second in range(600)]
    assert len(verdicts(samples)) == 1


@pytest.mark.parametrize(
    ("before", "after", "limit"),
    [
        (DISK, LOOP, Limit.EVENT_LOOP),
        (LOOP, DISK, Limit.DISK_SYNCS),
        (LOOP, STARVED, Limit.OTHER_PROCESSES),
        (STARVED, LOOP, Limit.EVENT_LOOP),
        (LOOP, CLIENTS, Limit.CLIENTS),
        (CLIENTS, LOOP, Limit.EVENT_LOOP),
        (DISK, SYNCS, Limit.DISK_SYNCS),
        (DISK, BACKLOG, Limit.CLIENT_BACKLOG),
        (BACKLOG, DISK, Limit.DISK_SYNCS),
        (BACKLOG, CLIENTS, Limit.CLIENTS),
        (SYNCS, IDLE, Limit.NOTHING),
        (IDLE, BACKLOG, Limit.CLIENT_BACKLOG),
    ],
)
def test_a_real_change_is_seen_within_seconds_and_stays(before, after, limit):
    standing = StandingVerdict()
    for each in [before] * 60 + [after] * REPORTED_WITHIN_SECONDS:
        standing.add(each)
    assert standing.verdict.limit is limit
    for _ in range(60):
        standing.add(after)
        assert standing.verdict.limit is limit


def test_a_setting_that_would_help_replaces_a_verdict_without_one():
    standing = StandingVerdict()
    for each in [DISK] * 60 + [SYNCS] * REPORTED_WITHIN_SECONDS:
        standing.add(each)
    assert standing.verdict.setting is not None


def test_the_evidence_of_a_verdict_that_stands_is_of_now():
    standing = StandingVerdict()
    for each in [LOOP] * 20 + [sample(event_loop_busy_ratio=0.75)] * 20:
        standing.add(each)
    assert standing.verdict.limit is Limit.EVENT_LOOP
    assert standing.verdict.evidence[0].value == pytest.approx(0.75)


def test_the_clients_are_never_what_limits_while_one_of_them_has_a_backlog():
    standing = StandingVerdict()
    for each in [CLIENTS] * 30 + [attrs.evolve(CLIENTS, backlog=client_backlog())]:
        standing.add(each)
    assert standing.verdict.limit is Limit.CLIENT_BACKLOG


def test_a_broker_without_samples_is_limited_by_nothing():
    assert StandingVerdict().verdict.limit is Limit.NOTHING
