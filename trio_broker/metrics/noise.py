"""What readings do by themselves: their steps between adjacent spans of the last hour in which nothing was changed.

A band has to hold for all readings of a comparison together and for a handful of pairs, so it is wider than the spread
of what was seen: Student's quantile for as many pairs, at ``FALSE_VERDICTS`` shared among the readings. And it is never
narrower than the widest step seen, since bursts have no normal distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import NormalDist, fmean

import attrs

from trio_broker.metrics.series import Row
from trio_broker.metrics.span import READINGS, Span, is_same_clients, step

MIN_PAIRS = 4
"""Below, Student's quantile is so wide that nothing is ever outside of it: five minutes for spans of one."""

FALSE_VERDICTS = 0.01
"""How many of the comparisons of equal spans may find a difference in any reading."""

JUDGED_READINGS = 5
"""Four latencies and a rate."""

MIN_COVERAGE = 0.8
"""A span in which fewer of its seconds have a sample is not taken: the broker was away, or far too busy."""


@attrs.frozen
class Noise:
    """The steps of each reading between adjacent spans of ``span_seconds``."""

    span_seconds: int
    pairs: int
    steps: Mapping[str, Sequence[float]]

    @property
    def is_enough(self) -> bool:
        return self.pairs >= MIN_PAIRS

    @property
    def shortage(self) -> str:
        """What there is of quiet history, and what is needed."""
        there = (self.pairs + 1) * self.span_seconds if self.pairs else self.span_seconds
        needed = (MIN_PAIRS + 1) * self.span_seconds
        return f"{length(there)} of history without a change and with these clients, {length(needed)} are needed"

    def band(self, name: str, floor: float) -> float | None:
        """How far the reading ``name`` goes by itself, ``floor`` at least; None if too few of its steps are known."""
        steps = self.steps.get(name, ())
        if len(steps) < MIN_PAIRS:
            return None
        spread = sqrt(fmean(each * each for each in steps))
        return max(floor, student_quantile(len(steps)) * spread, max(map(abs, steps)))


def length(seconds: int) -> str:
    return f"{seconds} s" if seconds % 60 else f"{seconds // 60} minutes"


def student_quantile(pairs: int) -> float:
    """Student's quantile for the two sides of ``FALSE_VERDICTS`` of one of the readings, by Hill's expansion."""
    z = NormalDist().inv_cdf(1 - FALSE_VERDICTS / JUDGED_READINGS / 2)
    return (
        z
        + (z**3 + z) / (4 * pairs)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * pairs**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * pairs**3)
    )


def noise_of(quiet: Sequence[Span], seconds: int, equal: Sequence[tuple[Span, Span]] = ()) -> Noise:
    """The noise of spans of ``seconds``, out of times in which nothing was changed, and of pairs under equal values."""
    pairs = [*(pair for each in quiet for pair in adjacent_pairs(each, seconds)), *equal]
    steps = {
        source.name: [found for pair in pairs if (found := step(source, *pair)) is not None] for source in READINGS
    }
    return Noise(seconds, len(pairs), steps)


def adjacent_pairs(quiet: Span, seconds: int) -> Iterator[tuple[Span, Span]]:
    """The adjacent spans of ``seconds`` in one quiet time, with the same clients in both."""
    if not quiet.rows or not seconds:
        return
    first_ms, last_ms = quiet.rows[0].at_ms, quiet.rows[-1].at_ms
    count = (last_ms - first_ms + 1000) // (1000 * seconds)
    spans: list[list[Row]] = [[] for _ in range(count)]
    for row in quiet.rows:
        # Counted from the end, since the newest are nearest to the change.
        if (place := (last_ms - row.at_ms) // (1000 * seconds)) < count:
            spans[place].append(row)
    for later, earlier in pairwise(map(Span, spans)):
        pair = earlier, later
        if min(map(len, pair)) >= MIN_COVERAGE * seconds and is_same_clients(*pair):
            yield pair
