"""What a change of settings did, by the readings before and after it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.metrics.statistics_fixtures import broker_readings
from trio_broker.changes.change import (
    ChangeAction,
    ChangedResource,
    EffectVerdict,
    MadeChange,
    ReadingUnit,
)
from trio_broker.changes.change_log import ChangeLog
from trio_broker.config.entries import ValueChange
from trio_broker.metrics.effect import EffectWatch, effect
from trio_broker.metrics.history import sample_between
from trio_broker.runtime.clock import ManualClock

LOADED: dict[str, Any] = {
    "requests_per_second": 500.0,
    "records_in_per_second": 500.0,
    "bytes_in_per_second": 1e6,
    "produce_p50_ms": 48.0,
    "produce_p99_ms": 130.0,
    "connections": 24,
    "event_loop_busy_ratio": 0.3,
    "sync_busy_ratio": 0.99,
}
"""A closed loop of 24 clients against one sync thread."""

EIGHT_THREADS: dict[str, Any] = {
    "requests_per_second": 1410.0,
    "records_in_per_second": 1410.0,
    "bytes_in_per_second": 2.8e6,
    "produce_p50_ms": 17.0,
    "produce_p99_ms": 51.0,
    "sync_busy_ratio": 0.58,
}
OFFERED = {**LOADED, "sync_busy_ratio": 0.1}
"""Clients that send at their own rate to a broker that waits for them."""


def sample(at_ms=0, **readings):
    idle = sample_between(broker_readings(0.0), broker_readings(1.0), at_ms)
    return attrs.evolve(idle, **readings)


def span(readings, seconds=60):
    return [sample(**readings)] * seconds


@pytest.mark.parametrize(
    ("before", "changes", "verdict", "summary"),
    [
        (LOADED, EIGHT_THREADS, EffectVerdict.BETTER, "+182 % records/s, p99 −61 %, syncs busy 99 → 58 %"),
        (
            {**LOADED, **EIGHT_THREADS},
            {name: LOADED[name] for name in EIGHT_THREADS},
            EffectVerdict.WORSE,
            "−65 % records/s, p99 +155 %, syncs busy 58 → 99 %",
        ),
        (LOADED, {}, EffectVerdict.NO_CHANGE, "no change"),
        (LOADED, {"records_in_per_second": 530.0, "requests_per_second": 530.0}, EffectVerdict.NO_CHANGE, "no change"),
        # The broker set the pace, so that a little more is its merit.
        (
            LOADED,
            {"records_in_per_second": 575.0, "requests_per_second": 575.0},
            EffectVerdict.BETTER,
            "+15 % records/s, p99 +0 %",
        ),
        # The clients set the pace: 15 % more is their own doing.
        (OFFERED, {"records_in_per_second": 575.0, "requests_per_second": 575.0}, EffectVerdict.NO_CHANGE, "no change"),
        (OFFERED, {"produce_p99_ms": 65.0}, EffectVerdict.BETTER, "+0 % records/s, p99 −50 %"),
        (OFFERED, {"produce_p99_ms": 260.0}, EffectVerdict.WORSE, "+0 % records/s, p99 +100 %"),
        (
            OFFERED,
            {"produce_p50_ms": 30.0, "produce_p99_ms": 260.0},
            EffectVerdict.MIXED,
            "+0 % records/s, p99 +100 %, Produce p50 −38 %",
        ),
        (
            {**LOADED, "fetch_p99_ms": 1.0},
            {**EIGHT_THREADS, "fetch_p99_ms": 9.0},
            EffectVerdict.MIXED,
            "+182 % records/s, p99 −61 %, syncs busy 99 → 58 %, Fetch p99 +800 %",
        ),
        # Twice the rate at half the latency: as many requests under way, which is a closed loop.
        (
            OFFERED,
            {"requests_per_second": 1000.0, "records_in_per_second": 1000.0, "produce_p50_ms": 24.0},
            EffectVerdict.BETTER,
            "+100 % records/s, p99 +0 %",
        ),
        # Twice the rate at the same latency, and nothing saturated: the clients sent more.
        (
            OFFERED,
            {"requests_per_second": 1000.0, "records_in_per_second": 1000.0},
            EffectVerdict.LOAD_DIFFERED,
            "load differed, not comparable",
        ),
        (LOADED, {"requests_per_second": 250.0, "sync_busy_ratio": 0.1}, EffectVerdict.LOAD_DIFFERED, None),
        (LOADED, {**EIGHT_THREADS, "connections": 48}, EffectVerdict.LOAD_DIFFERED, None),
        (LOADED, {**EIGHT_THREADS, "bytes_out_per_second": 2.8e6}, EffectVerdict.LOAD_DIFFERED, None),
        (
            {"requests_per_second": 0.0, "connections": 1},
            {},
            EffectVerdict.NO_LOAD,
            "no load, nothing to compare",
        ),
    ],
)
def test_each_verdict_and_its_sentence(before, changes, verdict, summary):
    measured = effect(span(before), span({**before, **changes}))
    assert measured.verdict is verdict
    assert summary in (None, measured.summary)


@pytest.mark.parametrize(("seconds_before", "seconds_after"), [(4, 60), (60, 4), (0, 0), (0, 60)])
def test_a_few_seconds_are_no_basis(seconds_before, seconds_after):
    measured = effect(span(LOADED, seconds_before), span(EIGHT_THREADS, seconds_after))
    assert measured.verdict is EffectVerdict.TOO_SHORT
    assert measured.summary == f"too short to compare: {seconds_before} s before, {seconds_after} s after"


def test_consumers_alone_are_compared_by_bytes_and_by_the_latency_of_fetches():
    reading = {
        "requests_per_second": 100.0,
        "bytes_out_per_second": 1e6,
        "connections": 5,
        "cold_send_busy_ratio": 0.95,
    }
    faster = {**reading, "bytes_out_per_second": 2e6, "requests_per_second": 200.0, "fetch_p99_ms": 10.0}
    measured = effect(span({**reading, "fetch_p99_ms": 20.0}), span(faster))
    assert measured.summary == "+100 % bytes/s, p99 −50 %"


def test_the_table_has_each_reading_before_after_and_their_difference():
    measured = effect(span(LOADED), span({**LOADED, **EIGHT_THREADS}, 30))
    readings = {each.name: each for each in measured.readings}
    assert (measured.before_seconds, measured.after_seconds) == (60, 30)
    assert (readings["Produce p50"].before, readings["Produce p50"].after) == (0.048, 0.017)
    assert readings["Produce p50"].difference == pytest.approx(17 / 48 - 1)
    assert readings["syncs busy"].unit is ReadingUnit.RATIO
    assert readings["syncs busy"].difference == pytest.approx(-0.41)
    assert (readings["Fetch p50"].before, readings["Fetch p50"].difference) == (None, None)


def test_one_second_of_a_stall_does_not_stand_for_the_minute():
    stall = sample(**{**LOADED, "produce_p99_ms": 9000.0})
    assert effect(span(LOADED), [stall, *span(LOADED, 59)]).verdict is EffectVerdict.NO_CHANGE


# --- watching ---


class Watched:
    """A change log whose effects are measured, a history, and a clock that is turned."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.changes = ChangeLog(self.clock)
        self.samples: list[Any] = []
        self.watch = EffectWatch(self.changes, lambda: self.samples)

    def run(self, seconds, readings):
        for _ in range(seconds):
            self.clock.advance(1)
            self.samples.append(sample(self.clock.now_ms(), **readings))
            self.watch.sampled(self.samples[-1])

    def change(self, action=ChangeAction.CONFIG, resource_type=ChangedResource.BROKER, names=("num.io.threads",)):
        values = tuple(ValueChange(name, "1", "8") for name in names)
        return self.changes.record(MadeChange(action, resource_type, "1", values)).number

    def effect(self, number):
        change = self.changes.change(number)
        assert change is not None
        return change.effect


@pytest.fixture
def watched():
    return Watched()


def test_a_change_gets_the_minute_before_it_and_the_minute_after_it(watched):
    watched.run(100, LOADED)
    number = watched.change()
    watched.run(59, {**LOADED, **EIGHT_THREADS})
    assert watched.effect(number) is None
    watched.run(1, {**LOADED, **EIGHT_THREADS})
    measured = watched.effect(number)
    assert (measured.before_seconds, measured.after_seconds) == (60, 60)
    assert measured.summary == "+182 % records/s, p99 −61 %, syncs busy 99 → 58 %"


def test_a_second_change_ends_the_first_ones_span_and_begins_its_own_there(watched):
    watched.run(60, LOADED)
    first = watched.change()
    watched.run(20, {**LOADED, **EIGHT_THREADS})
    second = watched.change()
    assert watched.effect(first).after_seconds == 20
    watched.run(61, LOADED)
    measured = watched.effect(second)
    assert (measured.before_seconds, measured.after_seconds) == (20, 60)
    assert measured.verdict is EffectVerdict.WORSE


def test_a_change_soon_after_another_is_too_soon_to_tell(watched):
    watched.run(60, LOADED)
    first = watched.change()
    watched.run(3, LOADED)
    second = watched.change()
    watched.run(61, LOADED)
    assert [watched.effect(number).verdict for number in (first, second)] == [EffectVerdict.TOO_SHORT] * 2


def test_changes_that_are_no_settings_are_not_measured_and_end_nothing(watched):
    watched.run(60, LOADED)
    number = watched.change()
    watched.run(20, LOADED)
    created = watched.change(ChangeAction.CREATED)
    watched.run(41, LOADED)
    assert watched.effect(number).after_seconds == 60
    assert watched.effect(created) is None


def test_more_that_is_learnt_of_a_change_meanwhile_stays(watched):
    watched.run(60, LOADED)
    number = watched.change()
    change = watched.changes.change(number)
    watched.changes.update(attrs.evolve(change, undoes=9))
    watched.run(61, LOADED)
    assert watched.changes.change(number).undoes == 9
    assert watched.effect(number).verdict is EffectVerdict.NO_CHANGE


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        (ChangedResource.BROKER, "metrics.per.partition"),
        (ChangedResource.CLUSTER, "log.retention.ms"),
        (ChangedResource.BROKER, "num.recovery.threads.per.data.dir"),
        (ChangedResource.BROKER, "sasl.jaas.config"),
        (ChangedResource.TOPIC, "retention.bytes"),
        (ChangedResource.CLIENT_METRICS, "interval.ms"),
    ],
)
def test_a_change_that_acts_on_no_rate_gets_no_comparison_and_ends_none(watched, resource_type, name):
    watched.run(60, LOADED)
    number = watched.change()
    watched.run(20, LOADED)
    placebo = watched.change(resource_type=resource_type, names=(name,))
    assert watched.effect(placebo).verdict is EffectVerdict.NO_RATE
    assert watched.effect(placebo).summary == f"acts on no rate: {name}"
    watched.run(41, LOADED)
    assert watched.effect(number).after_seconds == 60


@pytest.mark.parametrize(
    ("resource_type", "names"),
    [
        (ChangedResource.BROKER, ("metrics.per.partition", "queued.max.requests")),
        (ChangedResource.TOPIC, ("flush.messages",)),
        (ChangedResource.BROKER_LOGGER, ("trio_broker.network",)),
        (ChangedResource.BROKER, ("a.key.of.a.newer.version",)),
    ],
)
def test_a_change_of_anything_that_can_act_is_compared(watched, resource_type, names):
    watched.run(60, LOADED)
    number = watched.change(resource_type=resource_type, names=names)
    assert watched.effect(number) is None
    watched.run(61, LOADED)
    assert watched.effect(number).after_seconds == 60
