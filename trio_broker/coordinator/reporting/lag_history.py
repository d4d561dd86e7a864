"""The lag of groups over the last hour, and what follows from it: how fast a group reads, and when it catches up.

A reading has the sums over the partitions that a group has committed. Between two readings of the same number of
partitions the committed offsets grow by what the group has consumed, and the ends of the logs by what was produced.
Where the number changes, or offsets go back (a reset, a topic that was deleted), nothing is known of that interval.

Bounded: an hour of readings of the 200 groups with the largest lag, in arrays of doubles; about 7 MB at most. Pure: the
time comes with the readings.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import pairwise

import attrs

from trio_broker.coordinator.reporting.snapshot import GroupLagReading, GroupRates, LagSample, LagTrend, max_known

SAMPLE_INTERVAL_MS = 5000
"""Between two readings: as long as clients wait between two commits by default."""

MAX_READINGS = 720
"""An hour of them."""

MAX_GROUPS = 200
"""Groups whose readings are kept."""

TREND_SECONDS = 120.0
"""The time that rates and trend are about: long enough that single commits do not count for much."""

MIN_TREND_SECONDS = 4.0
"""Readings closer together say more of the moments of commits than of a rate."""

STEADY_SHARE = 0.1
"""A lag that changes by less than this share of what is produced or consumed is steady: single commits move it so."""

MAX_READINGS_A_MINUTE = 2 * 60_000 // SAMPLE_INTERVAL_MS
"""So many of the latest readings have a minute that is just over among them."""

NUMBERS_PER_READING = 6


@attrs.frozen
class GroupReading:
    """The lag of one group at one time. ``committed`` and ``ends`` are sums over ``partitions`` partitions."""

    at_ms: int
    lag_records: int | None
    lag_seconds: float | None
    committed: int
    ends: int
    partitions: int


class ReadingRing:
    """The readings of one group, oldest first, up to ``MAX_READINGS``."""

    def __init__(self) -> None:
        self._numbers = array("d")
        self._next = 0

    def add(self, reading: GroupReading) -> None:
        numbers = array("d", (math.nan if value is None else float(value) for value in attrs.astuple(reading)))
        if len(self._numbers) < MAX_READINGS * NUMBERS_PER_READING:
            self._numbers.extend(numbers)
            return
        start = self._next * NUMBERS_PER_READING
        self._numbers[start : start + NUMBERS_PER_READING] = numbers
        self._next = (self._next + 1) % MAX_READINGS

    def __len__(self) -> int:
        return len(self._numbers) // NUMBERS_PER_READING

    def latest(self, count: int = MAX_READINGS) -> list[GroupReading]:
        """The last ``count`` readings."""
        held = len(self)
        return [self._reading((self._next + index) % held) for index in range(max(0, held - count), held)]

    def _reading(self, index: int) -> GroupReading:
        start = index * NUMBERS_PER_READING
        at_ms, lag_records, lag_seconds, committed, ends, partitions = self._numbers[start : start + 6]
        return GroupReading(
            int(at_ms),
            None if math.isnan(lag_records) else int(lag_records),
            None if math.isnan(lag_seconds) else lag_seconds,
            int(committed),
            int(ends),
            int(partitions),
        )


class LagHistory:
    """The readings of the groups that are furthest behind, and their rates."""

    def __init__(self) -> None:
        self._rings: dict[str, ReadingRing] = {}
        self._rates: dict[str, GroupRates | None] = {}

    def keep(self, lags: Mapping[str, int | None]) -> list[str]:
        """Choose the groups to keep readings of, by their lag in records; return them."""
        chosen = chosen_groups(lags, self._rings.keys())
        self._rings = {group_id: self._rings.get(group_id) or ReadingRing() for group_id in chosen}
        self._rates = {group_id: self._rates.get(group_id) for group_id in chosen}
        return chosen

    def add(self, group_id: str, reading: GroupReading) -> None:
        """Add a reading of a group that was chosen."""
        ring = self._rings[group_id]
        ring.add(reading)
        self._rates[group_id] = rates_of(ring.latest(int(TREND_SECONDS * 1000 / SAMPLE_INTERVAL_MS) + 1))

    def rates(self, group_id: str) -> GroupRates | None:
        """How fast the group reads, as of its last reading; None if that is not known."""
        return self._rates.get(group_id)

    def latest(self) -> list[GroupLagReading]:
        """The last reading of each group that is kept, and its rates."""
        readings = [(group_id, each.latest(1)[0]) for group_id, each in self._rings.items() if len(each)]
        return [
            GroupLagReading(group_id, each.lag_records, each.lag_seconds, self._rates[group_id])
            for group_id, each in readings
        ]

    def samples(self, group_id: str) -> tuple[LagSample, ...]:
        """The lag of the last hour, oldest first."""
        ring = self._rings.get(group_id)
        readings = [] if ring is None else ring.latest()
        return tuple(
            LagSample(each.at_ms, each.lag_records, each.lag_seconds, consumed_between(earlier, each))
            for earlier, each in zip([None, *readings], readings, strict=False)
        )

    def peaks(self, from_ms: int, to_ms: int) -> dict[str, tuple[float | None, ...]]:
        """Of each group the largest lag in records and in seconds, and the mean of what it consumed per second, from
        ``from_ms`` up to ``to_ms``, a minute at most that is not long over."""
        peaks: dict[str, tuple[float | None, ...]] = {}
        for group_id, ring in self._rings.items():
            readings = [each for each in ring.latest(MAX_READINGS_A_MINUTE) if from_ms <= each.at_ms < to_ms]
            if readings:
                rates = rates_of(readings)
                peaks[group_id] = (
                    max_known(each.lag_records for each in readings),
                    max_known(each.lag_seconds for each in readings),
                    None if rates is None else rates.consumed_per_second,
                )
        return peaks


def chosen_groups(lags: Mapping[str, int | None], held: Iterable[str]) -> list[str]:
    """Return the ``MAX_GROUPS`` groups with the largest lag.

    One that is ``held`` stays while it is among twice as many, so that groups of about equal lag do not take turns.
    """
    if len(lags) <= MAX_GROUPS:
        return list(lags)
    # No other can be chosen, and to sort ten thousand groups takes the loop for long.
    ranked = nsmallest(2 * MAX_GROUPS, lags, key=lambda group_id: (-(lags[group_id] or 0), group_id))
    near = set(ranked).intersection(held)
    staying = [group_id for group_id in ranked if group_id in near][:MAX_GROUPS]
    stays = set(staying)
    others = [group_id for group_id in ranked if group_id not in stays]
    return staying + others[: MAX_GROUPS - len(staying)]


def rates_of(readings: Sequence[GroupReading]) -> GroupRates | None:
    """What follows from readings, oldest first; None if they are too few or cannot be compared."""
    consumed = produced = 0
    seconds = 0.0
    for before, after in pairwise(readings):
        took = (after.at_ms - before.at_ms) / 1000
        if is_comparable(before, after) and took > 0:
            consumed += after.committed - before.committed
            produced += after.ends - before.ends
            seconds += took
    if seconds < MIN_TREND_SECONDS:
        return None
    lag = readings[-1].lag_records
    change = (produced - consumed) / seconds
    trend = trend_of(change, max(produced, consumed) / seconds)
    catches_up = None
    if lag == 0:
        catches_up = 0.0
    elif lag is not None and trend is LagTrend.SHRINKING:
        catches_up = lag / -change
    return GroupRates(
        over_seconds=seconds,
        consumed_per_second=consumed / seconds,
        produced_per_second=produced / seconds,
        lag_change_per_second=change,
        trend=trend,
        catches_up_in_seconds=catches_up,
    )


def consumed_between(before: GroupReading | None, after: GroupReading) -> float | None:
    """What the group consumed per second from one reading to the next, as far as that is known."""
    if before is None or after.at_ms <= before.at_ms or not is_comparable(before, after):
        return None
    return (after.committed - before.committed) * 1000 / (after.at_ms - before.at_ms)


def is_comparable(before: GroupReading, after: GroupReading) -> bool:
    """Whether the sums of two readings are about the same partitions, as far as can be seen."""
    return (
        before.partitions == after.partitions > 0 and after.committed >= before.committed and after.ends >= before.ends
    )


def trend_of(change_per_second: float, pace_per_second: float) -> LagTrend:
    """How a lag develops that changes by so many records a second, while so many are produced or consumed."""
    if abs(change_per_second) <= STEADY_SHARE * pace_per_second:
        return LagTrend.STEADY
    return LagTrend.GROWING if change_per_second > 0 else LagTrend.SHRINKING
