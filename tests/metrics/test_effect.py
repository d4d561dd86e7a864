"""What a change of settings did, by the readings before and after it."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from tests.metrics.load_model import LoadModel
from tests.metrics.statistics_fixtures import broker_readings
from trio_broker.changes.change import (
    COMPARED_PAIRS,
    ChangeAction,
    ChangedResource,
    EffectVerdict,
    MadeChange,
    ReadingUnit,
    Trial,
    TrialOutcome,
)
from trio_broker.changes.change_log import ChangeLog
from trio_broker.config.entries import ValueChange
from trio_broker.metrics.effect import effect, effect_of_pairs
from trio_broker.metrics.effect_watch import EffectWatch
from trio_broker.metrics.history import sample_between
from trio_broker.metrics.noise import MIN_PAIRS, Noise
from trio_broker.metrics.series import row_of
from trio_broker.metrics.span import READINGS, Span
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


STEADY = Noise(60, MIN_PAIRS, {each.name: [0.0] * MIN_PAIRS for each in READINGS})
"""Of minutes that are all alike, so that the least differences count."""


def span(readings, seconds=60):
    return Span([row_of(sample(**readings))] * seconds)


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
        (
            LOADED,
            {},
            EffectVerdict.NO_CHANGE,
            "within what it does by itself: +0 % records/s (± 10 %), p99 +0 % (± 20 %)",
        ),
        (
            LOADED,
            {"records_in_per_second": 530.0, "requests_per_second": 530.0},
            EffectVerdict.NO_CHANGE,
            "within what it does by itself: +6 % records/s (± 10 %), p99 +0 % (± 20 %)",
        ),
        # The broker set the pace, so that a little more is its merit.
        (
            LOADED,
            {"records_in_per_second": 575.0, "requests_per_second": 575.0},
            EffectVerdict.BETTER,
            "+15 % records/s, p99 +0 %",
        ),
        # The clients set the pace: 15 % more is their own doing.
        (
            OFFERED,
            {"records_in_per_second": 575.0, "requests_per_second": 575.0},
            EffectVerdict.NO_CHANGE,
            "within what it does by itself: +15 % records/s (the clients' own), p99 +0 % (± 20 %)",
        ),
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
            "cannot tell: the clients asked for 100 % more",
        ),
        (
            LOADED,
            {"requests_per_second": 250.0, "sync_busy_ratio": 0.1},
            EffectVerdict.LOAD_DIFFERED,
            "cannot tell: the clients asked for 50 % less",
        ),
        (
            LOADED,
            {**EIGHT_THREADS, "connections": 48},
            EffectVerdict.LOAD_DIFFERED,
            "cannot tell: 24 connections before, 48 after",
        ),
        (
            LOADED,
            {**EIGHT_THREADS, "bytes_out_per_second": 2.8e6},
            EffectVerdict.LOAD_DIFFERED,
            "cannot tell: reads were 0 % of all bytes before, 50 % after",
        ),
        # Pressure that explains what differs, and pressure that does not.
        (
            {**OFFERED, "cpu_pressure_ratio": 0.12},
            {"produce_p99_ms": 260.0, "cpu_pressure_ratio": 0.85},
            EffectVerdict.CPU_DIFFERED,
            "cannot tell: other processes had the CPUs: pressure 12 % before, 85 % after",
        ),
        (
            {**OFFERED, "cpu_pressure_ratio": 0.85},
            {"produce_p99_ms": 65.0, "cpu_pressure_ratio": 0.12},
            EffectVerdict.CPU_DIFFERED,
            "cannot tell: other processes gave up the CPUs: pressure 85 % before, 12 % after",
        ),
        ({**OFFERED, "cpu_pressure_ratio": 0.1}, {"cpu_pressure_ratio": 0.9}, EffectVerdict.CPU_DIFFERED, None),
        (
            {**OFFERED, "cpu_pressure_ratio": 0.12},
            {"produce_p99_ms": 65.0, "cpu_pressure_ratio": 0.85},
            EffectVerdict.BETTER,
            None,
        ),
        (
            {"requests_per_second": 0.0, "connections": 1},
            {},
            EffectVerdict.NO_LOAD,
            "no load, nothing to compare",
        ),
    ],
)
def test_each_verdict_and_its_sentence(before, changes, verdict, summary):
    measured = effect(span(before), span({**before, **changes}), STEADY)
    assert measured.verdict is verdict
    assert summary in (None, measured.summary)


@pytest.mark.parametrize(("seconds_before", "seconds_after"), [(4, 60), (60, 4), (0, 0), (0, 60)])
def test_a_few_seconds_are_no_basis(seconds_before, seconds_after):
    measured = effect(span(LOADED, seconds_before), span(EIGHT_THREADS, seconds_after), STEADY)
    assert measured.verdict is EffectVerdict.TOO_SHORT
    assert measured.summary == f"cannot tell: {seconds_before} s before, {seconds_after} s after are too short"


def test_consumers_alone_are_compared_by_bytes_and_by_the_latency_of_fetches():
    reading = {
        "requests_per_second": 100.0,
        "bytes_out_per_second": 1e6,
        "connections": 5,
        "cold_send_busy_ratio": 0.95,
    }
    faster = {**reading, "bytes_out_per_second": 2e6, "requests_per_second": 200.0, "fetch_p99_ms": 10.0}
    measured = effect(span({**reading, "fetch_p99_ms": 20.0}), span(faster), STEADY)
    assert measured.summary == "+100 % bytes/s, p99 −50 %"


def test_the_table_has_each_reading_before_after_and_their_difference():
    measured = effect(span(LOADED), span({**LOADED, **EIGHT_THREADS}, 30), STEADY)
    readings = {each.name: each for each in measured.readings}
    assert (measured.before_seconds, measured.after_seconds) == (60, 30)
    assert (readings["Produce p50"].before, readings["Produce p50"].after) == (0.048, 0.017)
    assert readings["Produce p50"].difference == pytest.approx(17 / 48 - 1)
    assert readings["syncs busy"].unit is ReadingUnit.RATIO
    assert readings["syncs busy"].difference == pytest.approx(-0.41)
    assert (readings["Fetch p50"].before, readings["Fetch p50"].difference) == (None, None)


def test_one_second_of_a_stall_does_not_stand_for_the_minute():
    stall = sample(**{**LOADED, "produce_p99_ms": 9000.0})
    after = Span([row_of(stall), *span(LOADED, 59).rows])
    assert effect(span(LOADED), after, STEADY).verdict is EffectVerdict.NO_CHANGE


# --- watching ---


class Watched:
    """A change log whose effects are measured, a history, and a clock that is turned."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.changes = ChangeLog(self.clock)
        self.rows: list[Any] = []
        self.watch = EffectWatch(self.changes, lambda: self.rows)

    def run(self, seconds, readings):
        for _ in range(seconds):
            self.clock.advance(1)
            latest = sample(self.clock.now_ms(), **readings)
            self.rows.append(row_of(latest))
            self.watch.sampled(latest)

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
    watched.run(310, LOADED)
    number = watched.change()
    watched.run(59, {**LOADED, **EIGHT_THREADS})
    assert watched.effect(number) is None
    watched.run(1, {**LOADED, **EIGHT_THREADS})
    measured = watched.effect(number)
    assert (measured.before_seconds, measured.after_seconds) == (60, 60)
    assert measured.summary == "+182 % records/s, p99 −61 %, syncs busy 99 → 58 %"


def test_a_second_change_ends_the_first_ones_span_and_begins_its_own_there(watched):
    watched.run(300, LOADED)
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
    watched.run(300, LOADED)
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


# --- placebos and real changes, under loads that scatter ---

REPORTED = frozenset({EffectVerdict.BETTER, EffectVerdict.WORSE, EffectVerdict.MIXED})
"""What says that a change did something."""


def run_load(watched, seconds, load):
    for _ in range(seconds):
        watched.run(1, next(load))


def placebos(model, count, quiet_seconds=900):
    """The effects of ``count`` changes that change nothing, three minutes apart."""
    watched, load = Watched(), model.seconds()
    run_load(watched, quiet_seconds, load)
    for _ in range(count):
        number = watched.change(names=("queued.max.requests",))
        run_load(watched, 180, load)
        yield watched.effect(number)


def bursty_loads():
    """Clients that send on their own in bursts, a closed loop with pauses, and one that saturates the disk; most of
    them on a disk that others use, too."""
    yield LoadModel(random.Random(1), threads=2)
    yield LoadModel(random.Random(2), threads=4, has_slow_spells=True)
    yield LoadModel(random.Random(3), threads=1, closed_loop_clients=6, think_seconds=0.4, has_slow_spells=True)
    yield LoadModel(random.Random(4), threads=1, closed_loop_clients=6, has_slow_spells=True)


def test_of_twenty_placebos_under_loads_that_come_in_bursts_at_most_one_gets_a_verdict():
    effects = [each for model in bursty_loads() for each in placebos(model, 5)]
    assert len(effects) == 20
    assert len([each.summary for each in effects if each.verdict in REPORTED]) <= 1, effects
    # It is not that nothing is ever compared.
    assert len([each for each in effects if each.verdict is EffectVerdict.NO_CHANGE]) >= 15, effects


@pytest.mark.parametrize("think_seconds", [0.0, pytest.param(0.05, marks=pytest.mark.soak)])
def test_of_ten_real_changes_of_the_sync_threads_of_a_slow_disk_nine_get_their_verdict(think_seconds):
    sizes = [(1, 4), (1, 8), (2, 8), (1, 3), (2, 6), (4, 1), (8, 1), (8, 2), (3, 1), (6, 2)]
    found = []
    for seed, (before, after) in enumerate(sizes):
        model = LoadModel(
            random.Random(seed), threads=before, closed_loop_clients=12, think_seconds=think_seconds, sync_scale=2.0
        )
        watched, load = Watched(), model.seconds()
        run_load(watched, 600, load)
        number = watched.change()
        model.resize(after, 600.0)
        run_load(watched, 61, load)
        expected = EffectVerdict.BETTER if after > before else EffectVerdict.WORSE
        found.append((watched.effect(number).verdict is expected, watched.effect(number).summary))
    assert sum(is_right for is_right, _ in found) >= 9, found


def test_before_there_is_enough_history_without_a_change_it_cannot_tell(watched):
    watched.run(180, LOADED)
    number = watched.change()
    watched.run(61, {**LOADED, **EIGHT_THREADS})
    measured = watched.effect(number)
    assert measured.verdict is EffectVerdict.TOO_LITTLE_HISTORY
    assert measured.summary == (
        "cannot tell: 3 minutes of history without a change and with these clients, 5 minutes are needed"
    )


def compared(model, threads_new, pairs=COMPARED_PAIRS):
    """The effect of a comparison of ``model``'s threads with others, 30 s each, without any history."""
    watched, load = Watched(), model.seconds()
    old = model.threads
    run_load(watched, 10, load)
    started_ms = watched.clock.now_ms()
    trial = Trial(30, started_ms + 180_000, pairs=COMPARED_PAIRS)
    values = (ValueChange("num.io.threads", str(old), str(threads_new)),)
    change = watched.changes.record(MadeChange(ChangeAction.CONFIG, ChangedResource.BROKER, "1", values), trial=trial)
    switches = []
    for turn in range(2 * pairs):
        if turn:
            switches.append(watched.clock.now_ms())
        model.resize(threads_new if turn % 2 else old, 10.0 + 30 * turn)
        run_load(watched, 30, load)
    ended = attrs.evolve(
        trial,
        outcome=TrialOutcome.UNDONE,
        ended_at_ms=watched.clock.now_ms(),
        switches_at_ms=tuple(switches),
    )
    watched.changes.update(attrs.evolve(change, trial=ended))
    return watched.effect(change.number)


def test_of_twenty_comparisons_with_a_placebo_at_most_one_gets_a_verdict():
    effects = []
    for seed in range(5):
        for model in bursty_loads():
            model.random = random.Random(100 + seed)
            effects.append(compared(model, model.threads))
    assert len([each.summary for each in effects if each.verdict in REPORTED]) <= 1, effects


def test_of_ten_comparisons_with_more_sync_threads_nine_are_found_without_any_history():
    found = []
    for seed in range(10):
        model = LoadModel(random.Random(seed), threads=1 + seed % 2, closed_loop_clients=12, sync_scale=2.0)
        found.append(compared(model, 4 + seed % 3))
    assert len([each for each in found if each.verdict is EffectVerdict.BETTER]) >= 9, found


def test_a_comparison_that_is_ended_early_cannot_tell():
    measured = compared(LoadModel(random.Random(1), closed_loop_clients=12), 4, pairs=1)
    assert measured.verdict is EffectVerdict.TOO_SHORT
    assert measured.summary == "cannot tell: the comparison was ended after 1 of 3 pairs"


def test_a_comparison_in_which_one_pair_goes_the_other_way_finds_nothing():
    old, slow, fast = (
        span(OFFERED, 30),
        span({**OFFERED, "produce_p99_ms": 900.0}, 30),
        span({**OFFERED, "produce_p99_ms": 100.0}, 30),
    )
    measured = effect_of_pairs([(old, slow), (old, fast), (old, slow)], STEADY)
    assert measured.verdict is EffectVerdict.NO_CHANGE
    assert measured.summary.endswith("(not in each pair)")
