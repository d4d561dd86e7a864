"""What a change of settings did: the readings of the minute before it and of the minute after it, and a verdict.

Readings can be compared only if the clients did the same before and after. There are two kinds of them. Some *offer a
rate*: it is theirs, and what the broker can change is how long they wait. Others work in a *closed loop*: they send the
next request when the last one is answered, so that the rate itself is what the broker can change. So the load is
comparable if the clients and their mix are the same, and

* the rate of requests is the same, or
* something of the broker was saturated in the slower of the two spans, so that the rate was the broker's, or
* the number of requests under way (rate times latency, Little's law) is the same, as a closed loop keeps it.

Otherwise the verdict is that the load differed. Where the rate is the clients' own, only latencies count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

import attrs

from trio_broker.changes.change import (
    Change,
    ChangedResource,
    ChangeEffect,
    EffectReading,
    EffectVerdict,
    ReadingUnit,
)
from trio_broker.changes.change_log import ChangeLog
from trio_broker.config.client_metrics_config import CLIENT_METRICS_KEYS
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from trio_broker.metrics.history import HistorySample

WINDOW_SECONDS = 60
"""Before and after: long enough for a p99 of a few requests a second, short enough to wait for."""

SAMPLE_MS = 1000
"""A sample is about the second that it ends."""

MIN_SAMPLES = 5
"""Fewer seconds, on either side, are no basis for a verdict."""

NO_LOAD_REQUESTS_PER_SECOND = 1.0
"""Below, nobody waits for the broker."""

SAME_RATE = 0.2
"""Rates that differ by less are the same load: clients are not metronomes."""

SAME_CLIENTS = 0.2
"""So may the number of connections, which tools and new members open."""

SAME_MIX = 0.2
"""And the share of what is read in all bytes, in points."""

SAME_IN_FLIGHT = 0.3
"""And the requests under way; wider, because a rate times a median is an estimate of them."""

SATURATED = 0.8
"""Something that is busy for more of the time makes others wait often enough to set the pace."""

RATE_NOISE = 0.1
"""A smaller change of throughput is none: two equal minutes of one load differ by so much on a shared machine."""

LATENCY_NOISE = 0.2
"""The same of a median or a p99, which scatter more."""

SHOWN_POINTS = 0.1
"""A share of time is mentioned in the summary if it has changed by more."""


def effect(before: Sequence[HistorySample], after: Sequence[HistorySample]) -> ChangeEffect:
    """Compare two spans of samples, one a second each."""
    readings = tuple(reading(each, before, after) for each in READINGS)
    verdict, summary = judge(before, after, {each.name: each for each in readings})
    return ChangeEffect(verdict, summary, len(before), len(after), readings)


# --- readings ---


@attrs.frozen
class ReadingSource:
    """How one reading is taken of a span of samples; ``of`` returns None for nothing to measure."""

    name: str
    unit: ReadingUnit
    of: Callable[[Sequence[HistorySample]], float | None]


def mean_of(pick: Callable[[HistorySample], float]) -> Callable[[Sequence[HistorySample]], float | None]:
    return lambda samples: fmean(map(pick, samples)) if samples else None


def typical_seconds(pick_ms: Callable[[HistorySample], float]) -> Callable[[Sequence[HistorySample]], float | None]:
    """The median over the seconds that had such a request: one second of a stall does not stand for the minute."""

    def take(samples: Sequence[HistorySample]) -> float | None:
        measured = [value for sample in samples if (value := pick_ms(sample)) > 0]
        return median(measured) / 1000 if measured else None

    return take


RECORDS, BYTES = "records written", "bytes in and out"
PRODUCE_P50, PRODUCE_P99 = "Produce p50", "Produce p99"
FETCH_P50, FETCH_P99 = "Fetch p50", "Fetch p99"
LATENCIES = (PRODUCE_P50, PRODUCE_P99, FETCH_P50, FETCH_P99)
LOOP_BUSY, SYNCS_BUSY = "event loop busy", "syncs busy"

READINGS = (
    ReadingSource(RECORDS, ReadingUnit.RECORDS_PER_SECOND, mean_of(lambda each: each.records_in_per_second)),
    ReadingSource(
        BYTES,
        ReadingUnit.BYTES_PER_SECOND,
        mean_of(lambda each: each.bytes_in_per_second + each.bytes_out_per_second),
    ),
    ReadingSource(PRODUCE_P50, ReadingUnit.SECONDS, typical_seconds(lambda each: each.produce_p50_ms)),
    ReadingSource(PRODUCE_P99, ReadingUnit.SECONDS, typical_seconds(lambda each: each.produce_p99_ms)),
    ReadingSource(FETCH_P50, ReadingUnit.SECONDS, typical_seconds(lambda each: each.fetch_p50_ms)),
    ReadingSource(FETCH_P99, ReadingUnit.SECONDS, typical_seconds(lambda each: each.fetch_p99_ms)),
    ReadingSource(LOOP_BUSY, ReadingUnit.RATIO, mean_of(lambda each: each.event_loop_busy_ratio)),
    ReadingSource(SYNCS_BUSY, ReadingUnit.RATIO, mean_of(lambda each: each.sync_busy_ratio)),
    ReadingSource("syncs waiting", ReadingUnit.COUNT, mean_of(lambda each: each.syncs_waiting)),
    ReadingSource("request queue", ReadingUnit.COUNT, mean_of(lambda each: each.queue_depth)),
)


def reading(source: ReadingSource, before: Sequence[HistorySample], after: Sequence[HistorySample]) -> EffectReading:
    old, new = source.of(before), source.of(after)
    return EffectReading(source.name, source.unit, old, new, difference(old, new, source.unit))


def difference(before: float | None, after: float | None, unit: ReadingUnit) -> float | None:
    """``after`` relative to ``before``; of ratios the difference itself."""
    if before is None or after is None:
        return None
    if unit is ReadingUnit.RATIO:
        return after - before
    return after / before - 1 if before else None


# --- the load ---


def is_same_load(before: Sequence[HistorySample], after: Sequence[HistorySample]) -> bool:
    """Whether the load was comparable, by the rules of this module."""
    if not is_close(connections(before), connections(after), SAME_CLIENTS, slack=1):
        return False
    if abs(share_read(before) - share_read(after)) > SAME_MIX:
        return False
    if is_close(requests(before), requests(after), SAME_RATE):
        return True
    return is_paced_by_broker(before, after) or is_close(in_flight(before), in_flight(after), SAME_IN_FLIGHT)


def is_paced_by_broker(before: Sequence[HistorySample], after: Sequence[HistorySample]) -> bool:
    """Whether something of the broker was saturated in the slower of the spans."""
    slower = min(before, after, key=requests)
    return (
        fmean(each.event_loop_busy_ratio for each in slower) > SATURATED
        or fmean(each.sync_busy_ratio for each in slower) > SATURATED
        or fmean(each.cold_send_busy_ratio for each in slower) > SATURATED
        or fmean(1 - each.io_idle_ratio for each in slower) > SATURATED
        or fmean(each.queue_depth / each.queue_capacity for each in slower) > SATURATED
    )


def requests(samples: Sequence[HistorySample]) -> float:
    return fmean(each.requests_per_second for each in samples)


def connections(samples: Sequence[HistorySample]) -> float:
    return fmean(each.connections for each in samples)


def share_read(samples: Sequence[HistorySample]) -> float:
    """What part of all bytes went out."""
    out = sum(each.bytes_out_per_second for each in samples)
    both = out + sum(each.bytes_in_per_second for each in samples)
    return out / both if both else 0.0


def in_flight(samples: Sequence[HistorySample]) -> float:
    """How many requests were under way, by Little's law."""
    latency = READINGS_BY_NAME[PRODUCE_P50].of(samples) or READINGS_BY_NAME[FETCH_P50].of(samples)
    return requests(samples) * (latency or 0.0)


READINGS_BY_NAME = {each.name: each for each in READINGS}


def is_close(one: float, other: float, tolerance: float, *, slack: float = 0.0) -> bool:
    """Whether two amounts differ by at most ``tolerance`` of the larger, or by ``slack``."""
    return abs(one - other) <= max(tolerance * max(one, other), slack)


# --- the verdict ---


def judge(
    before: Sequence[HistorySample], after: Sequence[HistorySample], readings: dict[str, EffectReading]
) -> tuple[EffectVerdict, str]:
    """The verdict, and the sentence for it."""
    if min(len(before), len(after)) < MIN_SAMPLES:
        return EffectVerdict.TOO_SHORT, f"too short to compare: {len(before)} s before, {len(after)} s after"
    if max(requests(before), requests(after)) < NO_LOAD_REQUESTS_PER_SECOND:
        return EffectVerdict.NO_LOAD, "no load, nothing to compare"
    if not is_same_load(before, after):
        return EffectVerdict.LOAD_DIFFERED, "load differed, not comparable"
    rate = readings[RECORDS] if readings[RECORDS].before or readings[RECORDS].after else readings[BYTES]
    is_rate_ours = not is_close(requests(before), requests(after), SAME_RATE) or is_paced_by_broker(before, after)
    gains = [gain(readings[name], LATENCY_NOISE, falls=True) for name in LATENCIES]
    gains += [gain(rate, RATE_NOISE, falls=False)] if is_rate_ours else []
    if not any(gains):
        return EffectVerdict.NO_CHANGE, "no change"
    if min(gains) >= 0:
        verdict = EffectVerdict.BETTER
    else:
        verdict = EffectVerdict.WORSE if max(gains) <= 0 else EffectVerdict.MIXED
    return verdict, summary_of(rate, readings)


def gain(reading: EffectReading, noise: float, *, falls: bool) -> int:
    """1 for a better reading, -1 for a worse one, 0 for one that changed by no more than noise."""
    if reading.difference is None or abs(reading.difference) <= noise:
        return 0
    return 1 if (reading.difference < 0) == falls else -1


def summary_of(rate: EffectReading, readings: dict[str, EffectReading]) -> str:
    """What changed, in one sentence: ``+182 % records/s, p99 −61 %, syncs busy 99 → 58 %``.

    A latency that went the other way than these is named, too: a verdict of both shows what got worse.
    """
    p99 = readings[PRODUCE_P99] if readings[PRODUCE_P99].difference is not None else readings[FETCH_P99]
    parts = [] if rate.difference is None else [f"{percent(rate.difference)} {rate.unit.value}"]
    parts += [] if p99.difference is None else [f"p99 {percent(p99.difference)}"]
    for name in (SYNCS_BUSY, LOOP_BUSY):
        share = readings[name]
        if share.before is not None and share.after is not None and abs(share.after - share.before) > SHOWN_POINTS:
            parts.append(f"{name} {100 * share.before:.0f} → {100 * share.after:.0f} %")
    said = {0, gain(rate, RATE_NOISE, falls=False), gain(p99, LATENCY_NOISE, falls=True)}
    for name in LATENCIES:
        latency = readings[name]
        if latency.difference is not None and gain(latency, LATENCY_NOISE, falls=True) not in said:
            parts.append(f"{name} {percent(latency.difference)}")
    return ", ".join(parts)


def percent(difference: float) -> str:
    """``+182 %``, ``−61 %``, with a true minus sign."""
    return f"{100 * difference:+.0f} %".replace("-", "−")


# --- watching ---

KEYS: Mapping[ChangedResource, Mapping[str, ConfigKey]] = {
    ChangedResource.BROKER: BROKER_KEYS,
    ChangedResource.CLUSTER: BROKER_KEYS,
    ChangedResource.TOPIC: TOPIC_KEYS,
    ChangedResource.GROUP: GROUP_KEYS,
    ChangedResource.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
"""What the settings of a resource are declared as. Those of loggers are levels, which can act."""


def acts_on_rates(change: Change) -> bool:
    """Whether any of the settings that were changed can act on rates or latencies, as their keys declare."""
    keys = KEYS.get(change.resource_type, {})
    found = [keys.get(value.name) for value in change.values]
    return bool(change.further_values) or any(
        key is None or (key.acts_on_rates and not key.without_effect) for key in found
    )


def no_rate(change: Change) -> ChangeEffect:
    """The effect of a change that can have none."""
    names = ", ".join(value.name for value in change.values)
    return ChangeEffect(EffectVerdict.NO_RATE, f"acts on no rate: {names}", 0, 0)


@attrs.frozen
class OpenWindow:
    """The change that is being measured. Its before begins after the change of settings before it, at ``from_ms``."""

    change: Change
    from_ms: int


class EffectWatch:
    """Measures the effect of each change of settings, and puts it into the change log.

    The next change of settings that can act on rates ends the span of the one before: a minute with two changes says
    nothing of either. One that cannot is not compared, and ends nothing.
    """

    def __init__(self, changes: ChangeLog, samples: Callable[[], Sequence[HistorySample]]) -> None:
        self._changes = changes
        self._samples = samples
        self._window: OpenWindow | None = None
        self._last = max((change.number for change in changes.changes), default=0)
        self._last_at_ms = 0
        changes.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        if change.number <= self._last or not change.is_of_settings:
            return
        self._last = change.number
        if not acts_on_rates(change):
            self._changes.update(attrs.evolve(change, effect=no_rate(change)))
            return
        self._close(change.changed_at_ms)
        self._window = OpenWindow(change, self._last_at_ms)
        self._last_at_ms = change.changed_at_ms

    def sampled(self, sample: HistorySample) -> None:
        """Close the window whose time is over."""
        if self._window is not None:
            end_ms = self._window.change.changed_at_ms + WINDOW_SECONDS * 1000
            if sample.sampled_at_ms >= end_ms:
                self._close(end_ms)

    def _close(self, until_ms: int) -> None:
        if (window := self._window) is None:
            return
        self._window = None
        at_ms = window.change.changed_at_ms
        from_ms = max(window.from_ms, at_ms - WINDOW_SECONDS * 1000)
        samples = self._samples()
        # The second in which something was changed is neither before nor after.
        measured = effect(
            [each for each in samples if from_ms + SAMPLE_MS <= each.sampled_at_ms <= at_ms],
            [each for each in samples if at_ms + SAMPLE_MS <= each.sampled_at_ms <= until_ms],
        )
        latest = self._changes.change(window.change.number)
        if latest is not None:
            self._changes.update(attrs.evolve(latest, effect=measured))
