"""What a change of settings did: the readings of the minute before it and of the minute after it, and a verdict.

A verdict has to survive a placebo. So a difference counts only where it is larger than what the broker does by itself:
``noise.py`` has the differences of adjacent minutes of the last hour in which nothing was changed. All else is *within
what it does by itself*, and where the minutes cannot be compared the verdict is that it *cannot tell*, with the cause:

* there is too little history without a change;
* other processes had the CPUs in one of the minutes and not in the other, and that would explain the difference;
* the clients did something else: other connections, another mix, or another rate that was theirs.

There are two kinds of clients. Some *offer a rate*: it is theirs, and what the broker can change is how long they wait.
Others work in a *closed loop*: they send the next request when the last one is answered, so that the rate itself is
what the broker can change. A rate that differs by more than it does by itself is the broker's if

* something of the broker was saturated in the slower of the two spans, or
* the number of requests under way (rate times latency, Little's law) differs much less than the rate, as a closed loop
  keeps it.

Where the rate is the clients' own, only latencies count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import exp, inf, log1p, sqrt
from statistics import fmean

import attrs

from trio_broker.changes.change import ChangeEffect, EffectReading, EffectVerdict, ReadingUnit, relative_band_text
from trio_broker.metrics.noise import Noise
from trio_broker.metrics.span import (
    BYTES,
    CPU_PRESSURE,
    FETCH_P99,
    LATENCIES,
    LOOP_BUSY,
    PRODUCE_P99,
    READINGS,
    RECORDS,
    REQUESTS,
    SYNCS_BUSY,
    ReadingSource,
    Span,
    is_same_clients,
    joined,
    step,
)

MIN_SAMPLES = 5
"""Fewer seconds, on either side, are no basis for a verdict."""

NO_LOAD_REQUESTS_PER_SECOND = 1.0
"""Below, nobody waits for the broker."""

SAME_RATE = 0.2
"""Rates that differ by less are the same load: clients are not metronomes."""

SAME_PRESSURE = 0.2
"""So is a share of time in which some task waited for a CPU, in points."""

CLOSED_LOOP = 0.5
"""Requests under way that differ by less than this part of the rate's difference follow from a closed loop."""

SATURATED = 0.8
"""Something that is busy for more of the time makes others wait often enough to set the pace."""

RATE_NOISE = 0.1
"""A smaller change of throughput is none, however even the minutes before were."""

LATENCY_NOISE = 0.2
"""The same of a median or a p99, which scatter more."""

LEAST = -0.999
"""A difference that has a logarithm."""

SHOWN_POINTS = 0.1
"""A share of time is mentioned in the summary if it has changed by more."""


@attrs.frozen(slots=False)
class Comparison:
    """Pairs of spans, and what readings do by themselves from one such span to the next."""

    pairs: Sequence[tuple[Span, Span]]
    noise: Noise

    @cached_property
    def before(self) -> Span:
        return joined([before for before, _ in self.pairs])

    @cached_property
    def after(self) -> Span:
        return joined([after for _, after in self.pairs])

    def steps(self, name: str) -> list[float]:
        """The step of each pair; empty if one has none."""
        steps = [step(READINGS_BY_NAME[name], *pair) for pair in self.pairs]
        return [each for each in steps if each is not None] if None not in steps else []

    def step(self, name: str) -> float | None:
        return fmean(steps) if (steps := self.steps(name)) else None

    def band(self, name: str) -> float:
        """What ``name`` does by itself at most, as a step; without end where that is not known."""
        band = self.noise.band(name, FLOORS.get(name, 0.0))
        # The mean of several pairs scatters less than one pair does.
        return inf if band is None else band / sqrt(len(self.pairs))

    def outside(self, name: str) -> float:
        """The step of a reading that goes beyond what it does by itself, the same way in each pair; else 0."""
        found = self.step(name)
        if found is None or abs(found) <= self.band(name):
            return 0.0
        return found if all(each * found > 0 for each in self.steps(name)) else 0.0


def effect(before: Span, after: Span, noise: Noise) -> ChangeEffect:
    """Compare two spans of one second a row, given what such spans do while nothing is changed."""
    return effect_of_pairs([(before, after)], noise)


def effect_of_pairs(pairs: Sequence[tuple[Span, Span]], noise: Noise) -> ChangeEffect:
    """Compare spans under the old values with spans under the new ones, each with the one after it."""
    compared = Comparison(pairs, noise)
    readings = tuple(reading(each, compared) for each in READINGS)
    verdict, summary = judge(compared, {each.name: each for each in readings})
    return ChangeEffect(verdict, summary, len(compared.before), len(compared.after), readings)


# --- readings ---

READINGS_BY_NAME = {each.name: each for each in READINGS}

FLOORS: Mapping[str, float] = {
    REQUESTS: log1p(SAME_RATE),
    RECORDS: log1p(RATE_NOISE),
    BYTES: log1p(RATE_NOISE),
    CPU_PRESSURE: SAME_PRESSURE,
    **dict.fromkeys(LATENCIES, log1p(LATENCY_NOISE)),
}
"""The least that a reading has to differ by."""


def reading(source: ReadingSource, compared: Comparison) -> EffectReading:
    old, new = compared.before.read(source), compared.after.read(source)
    band = compared.band(source.name) if source.name in FLOORS else inf
    shown = None if band == inf else band if source.unit is ReadingUnit.RATIO else exp(band) - 1
    return EffectReading(source.name, source.unit, old, new, difference(old, new, source.unit), shown)


def difference(before: float | None, after: float | None, unit: ReadingUnit) -> float | None:
    """``after`` relative to ``before``; of ratios the difference itself."""
    if before is None or after is None:
        return None
    if unit is ReadingUnit.RATIO:
        return after - before
    return after / before - 1 if before else None


# --- what cannot be compared ---


def other_clients(compared: Comparison, is_rate_ours: bool) -> str:
    """How the clients did something else after the change than before it; empty if they did not."""
    before, after = compared.before, compared.after
    if not is_same_clients(before, after):
        if not before.has_connections_of(after):
            return f"{before.connections:.0f} connections before, {after.connections:.0f} after"
        return f"reads were {100 * before.share_read:.0f} % of all bytes before, {100 * after.share_read:.0f} % after"
    asked = compared.outside(REQUESTS)
    if not asked or is_rate_ours:
        return ""
    return f"the clients asked for {100 * abs(exp(asked) - 1):.0f} % {'more' if asked > 0 else 'less'}"


def is_paced_by_broker(before: Span, after: Span) -> bool:
    """Whether something of the broker was saturated in the slower of the spans."""
    slower = min(before, after, key=lambda span: span.mean("requests_per_second"))
    return slower.busiest > SATURATED


def is_closed_loop(compared: Comparison) -> bool:
    """Whether about as many requests were under way, at another rate."""
    rate, under_way = compared.step(REQUESTS), compared.after.in_flight_step(compared.before)
    return rate is not None and under_way is not None and abs(under_way) <= CLOSED_LOOP * abs(rate)


def other_pressure(compared: Comparison, verdict: EffectVerdict) -> str:
    """How other processes explain the verdict; empty if they do not.

    One that goes against the pressure stands: what got better while the CPUs were scarcer did so all the same.
    """
    pressure = compared.outside(CPU_PRESSURE)
    is_against = verdict is (EffectVerdict.BETTER if pressure > 0 else EffectVerdict.WORSE)
    if not pressure or is_against:
        return ""
    before, after = (span.read(READINGS_BY_NAME[CPU_PRESSURE]) or 0.0 for span in (compared.before, compared.after))
    numbers = f"pressure {100 * before:.0f} % before, {100 * after:.0f} % after"
    what = "other processes had the CPUs" if pressure > 0 else "other processes gave up the CPUs"
    return f"{what}: {numbers}"


# --- the verdict ---


def judge(compared: Comparison, readings: dict[str, EffectReading]) -> tuple[EffectVerdict, str]:
    """The verdict, and the sentence for it."""
    before, after = compared.before, compared.after
    if min(len(before), len(after)) < MIN_SAMPLES:
        return EffectVerdict.TOO_SHORT, f"cannot tell: {len(before)} s before, {len(after)} s after are too short"
    if max(each.mean("requests_per_second") for each in (before, after)) < NO_LOAD_REQUESTS_PER_SECOND:
        return EffectVerdict.NO_LOAD, "no load, nothing to compare"
    is_paced = is_paced_by_broker(before, after)
    differed = other_clients(compared, is_paced or is_closed_loop(compared))
    if differed:
        return EffectVerdict.LOAD_DIFFERED, f"cannot tell: {differed}"
    if not compared.noise.is_enough:
        return EffectVerdict.TOO_LITTLE_HISTORY, f"cannot tell: {compared.noise.shortage}"
    rate = RECORDS if readings[RECORDS].before or readings[RECORDS].after else BYTES
    gains = [gain(compared.outside(name), falls=True) for name in LATENCIES]
    gains += [gain(compared.outside(rate), falls=False)] if is_paced or compared.outside(REQUESTS) else []
    verdict = verdict_of(gains)
    if pressed := other_pressure(compared, verdict):
        return EffectVerdict.CPU_DIFFERED, f"cannot tell: {pressed}"
    if verdict is EffectVerdict.NO_CHANGE:
        return (
            verdict,
            f"within what it does by itself: {by_itself(readings[rate], shown_p99(readings), len(compared.pairs))}",
        )
    return verdict, summary_of(readings[rate], readings, compared)


def verdict_of(gains: list[int]) -> EffectVerdict:
    if not any(gains):
        return EffectVerdict.NO_CHANGE
    if min(gains) >= 0:
        return EffectVerdict.BETTER
    return EffectVerdict.WORSE if max(gains) <= 0 else EffectVerdict.MIXED


def gain(outside: float, *, falls: bool) -> int:
    """1 for a better reading, -1 for a worse one, 0 for one that changed by no more than it does by itself."""
    if not outside:
        return 0
    return 1 if (outside < 0) == falls else -1


def shown_p99(readings: Mapping[str, EffectReading]) -> EffectReading:
    return readings[PRODUCE_P99] if readings[PRODUCE_P99].difference is not None else readings[FETCH_P99]


def by_itself(rate: EffectReading, p99: EffectReading, pairs: int) -> str:
    """What did not change, each with its band: ``−3 % records/s (± 12 %), p99 +20 % (± 40 %)``.

    A rate beyond its band was the clients' own, and is no reading of the broker; of several pairs one went another way.
    """
    beyond = " (not in each pair)" if pairs > 1 else " (the clients' own)"
    parts = []
    for each, text in ((rate, "{} " + rate.unit.value), (p99, "p99 {}")):
        if each.difference is not None:
            is_within = each.band is not None and abs(log1p(max(each.difference, LEAST))) <= log1p(each.band)
            band = (
                f" ({relative_band_text(each.band or 0.0)})"
                if is_within
                else beyond
                if each is rate or pairs > 1
                else ""
            )
            parts.append(text.format(percent(each.difference)) + band)
    return ", ".join(parts)


def summary_of(rate: EffectReading, readings: dict[str, EffectReading], compared: Comparison) -> str:
    """What changed, in one sentence: ``+182 % records/s, p99 −61 %, syncs busy 99 → 58 %``.

    A latency that went the other way than these is named, too: a verdict of both shows what got worse.
    """
    p99 = shown_p99(readings)
    parts = [] if rate.difference is None else [f"{percent(rate.difference)} {rate.unit.value}"]
    parts += [] if p99.difference is None else [f"p99 {percent(p99.difference)}"]
    for name in (SYNCS_BUSY, LOOP_BUSY):
        share = readings[name]
        if share.before is not None and share.after is not None and abs(share.after - share.before) > SHOWN_POINTS:
            parts.append(f"{name} {100 * share.before:.0f} → {100 * share.after:.0f} %")
    said = {0, gain(compared.outside(rate.name), falls=False), gain(compared.outside(p99.name), falls=True)}
    for name in LATENCIES:
        latency = readings[name]
        if latency.difference is not None and gain(compared.outside(name), falls=True) not in said:
            parts.append(f"{name} {percent(latency.difference)}")
    return ", ".join(parts)


def percent(difference: float) -> str:
    """``+182 %``, ``−61 %``, with a true minus sign."""
    return f"{100 * difference:+.0f} %".replace("-", "−")
