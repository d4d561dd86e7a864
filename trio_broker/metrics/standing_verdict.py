"""What limits the broker, over time: a verdict stands until another one holds clearly, and for some seconds.

Readings that cross a threshold in turns would else make a verdict of each crossing, and the reader would follow none of
them. "Nothing" and "the clients" say that nothing of the broker is short, so that whatever is short replaces them at
once.

Source: docs/metrics.md.
"""

from __future__ import annotations

from collections import deque

import attrs

from trio_broker.metrics.bottleneck import (
    READINGS_SECONDS,
    RULES,
    Bottleneck,
    BottleneckReadings,
    Rule,
    bottleneck,
    clients,
    first_that_holds,
    nothing,
    readings_of,
    verdict_by,
)
from trio_broker.metrics.history import HistorySample

CHANGE_SECONDS = 8
"""How long another verdict has to hold. With the seconds that the means take, a change shows within about 20 s."""

CLEARLY_BELOW = 0.8
"""The share of its thresholds below which a verdict that stands no longer holds: further than means of ten seconds go
up and down under a steady load."""

CLEARLY_ABOVE = 1.1
"""The share of its thresholds that a verdict further up has to reach while the one that stands still holds."""

NOTHING_IS_SHORT = (nothing, clients)


@attrs.define
class StandingVerdict:
    """The verdict as of the latest sample; ``add`` takes them one by one, one a second."""

    verdict: Bottleneck = attrs.field(factory=lambda: bottleneck(BottleneckReadings()))
    _rule: Rule = nothing
    _challenged_seconds: int = 0
    _samples: deque[HistorySample] = attrs.field(factory=lambda: deque(maxlen=READINGS_SECONDS))

    def add(self, sample: HistorySample) -> None:
        """Let the verdict follow ``sample``."""
        self._samples.append(sample)
        readings = readings_of(tuple(self._samples))
        standing = verdict_by(self._rule, readings, CLEARLY_BELOW)
        challenger = self._challenger(readings, holds=standing is not None)
        self._challenged_seconds = 0 if challenger is None else self._challenged_seconds + 1
        if challenger and (self._rule in NOTHING_IS_SHORT or self._challenged_seconds >= CHANGE_SECONDS):
            self._rule, self.verdict = challenger
            self._challenged_seconds = 0
        elif standing is not None:
            self.verdict = standing

    def _challenger(self, readings: BottleneckReadings, *, holds: bool) -> tuple[Rule, Bottleneck] | None:
        """The rule that should replace the one that stands, with its verdict; None while that is the right one."""
        found = first_that_holds(RULES, readings)
        if holds and (self._rule not in NOTHING_IS_SHORT or found is None or found[0] in NOTHING_IS_SHORT):
            found = first_that_holds(RULES[: RULES.index(self._rule)], readings, CLEARLY_ABOVE)
        return None if found is None or found[0] is self._rule else found
