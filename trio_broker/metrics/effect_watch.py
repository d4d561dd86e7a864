"""Measures the effect of each change of settings, and puts it into the change log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import attrs

from trio_broker.changes.change import Change, ChangedResource, ChangeEffect, EffectVerdict, Trial, TrialOutcome
from trio_broker.changes.change_log import ChangeLog
from trio_broker.config.client_metrics_config import CLIENT_METRICS_KEYS
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from trio_broker.metrics.effect import effect, effect_of_pairs
from trio_broker.metrics.history import HistorySample
from trio_broker.metrics.noise import MIN_COVERAGE, noise_of
from trio_broker.metrics.series import SECONDS_KEPT, Row
from trio_broker.metrics.span import Span

WINDOW_SECONDS = 60
"""Before and after: long enough for a p99 of a few requests a second, short enough to wait for."""

SAMPLE_MS = 1000
"""A sample is about the second that it ends."""

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

    def __init__(self, changes: ChangeLog, seconds: Callable[[], Sequence[Row]]) -> None:
        self._changes = changes
        self._seconds = seconds
        self._window: OpenWindow | None = None
        self._last = max((change.number for change in changes.changes), default=0)
        self._changed_at_ms: deque[int] = deque(maxlen=SECONDS_KEPT)
        changes.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        if (trial := change.trial) is not None and trial.pairs and trial.outcome is not TrialOutcome.RUNNING:
            self._measure_comparison(change, trial)
        if change.number <= self._last or not change.is_of_settings:
            return
        self._last = change.number
        if not acts_on_rates(change):
            self._changes.update(attrs.evolve(change, effect=no_rate(change)))
            return
        self._close(change.changed_at_ms)
        from_ms = self._changed_at_ms[-1] if self._changed_at_ms else 0
        self._window = None if change.is_comparison else OpenWindow(change, from_ms)
        self._changed_at_ms.append(change.changed_at_ms)

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
        rows = self._seconds()
        # The second in which something was changed is neither before nor after.
        before = between(rows, from_ms + SAMPLE_MS, at_ms)
        after = between(rows, at_ms + SAMPLE_MS, until_ms)
        noise = noise_of(self._quiet(rows, at_ms), min(len(before), len(after)))
        latest = self._changes.change(window.change.number)
        if latest is not None:
            self._changes.update(attrs.evolve(latest, effect=effect(before, after, noise)))

    def _measure_comparison(self, change: Change, trial: Trial) -> None:
        if change.effect is not None:
            return
        ends_at_ms = trial.ended_at_ms or change.changed_at_ms
        times = [change.changed_at_ms, *trial.switches_at_ms, ends_at_ms]
        rows = self._seconds()
        spans = [between(rows, start + SAMPLE_MS, end) for start, end in pairwise(times)]
        pairs = list(zip(spans[::2], spans[1::2], strict=False))
        quiet = self._quiet(rows, change.changed_at_ms)
        self._changed_at_ms.extend(times[1:])
        whole = [pair for pair in pairs if min(map(len, pair)) >= MIN_COVERAGE * (trial.seconds - 1)]
        if len(whole) < trial.pairs:
            text = f"cannot tell: the comparison was ended after {len(whole)} of {trial.pairs} pairs"
            self._changes.update(attrs.evolve(change, effect=ChangeEffect(EffectVerdict.TOO_SHORT, text, 0, 0)))
            return
        equal = [pair for same in (spans[::2], spans[1::2]) for pair in pairwise(same)]
        noise = noise_of(quiet, trial.seconds, equal)
        self._changes.update(attrs.evolve(change, effect=effect_of_pairs(pairs, noise)))

    def _quiet(self, rows: Sequence[Row], until_ms: int) -> list[Span]:
        """The times of ``rows`` up to ``until_ms`` in which nothing was changed."""
        changed_at_ms = [0, *(each for each in self._changed_at_ms if each < until_ms), until_ms]
        return [between(rows, start + SAMPLE_MS, end) for start, end in pairwise(changed_at_ms)]


def between(rows: Sequence[Row], from_ms: int, to_ms: int) -> Span:
    """The rows from one time to another, both inclusive; rows are in the order of time."""
    start = bisect_left(rows, from_ms, key=lambda row: row.at_ms)
    end = bisect_right(rows, to_ms, key=lambda row: row.at_ms)
    return Span(rows[start:end])
