"""An amount a second, over the last windows.

Source: Kafka's SimpleRate, Rate and SampledStat.
"""

from __future__ import annotations

from collections import deque

import attrs

from trio_broker.runtime.clock import Clock


@attrs.define
class Sample:
    """What was recorded in one window."""

    began: float
    amount: float = 0.0


class Rate:
    """The mean of the last ``max_samples`` windows, with the one that is under way.

    A mean of fewer windows is that of ``min_windows`` all the same: what has just begun is no flood.
    """

    def __init__(self, clock: Clock, window_seconds: float, max_samples: int, min_windows: int = 1) -> None:
        self._clock = clock
        self._window_seconds = window_seconds
        self._max_samples = max_samples
        self._min_seconds = min_windows * window_seconds
        self._samples: deque[Sample] = deque()

    def record(self, amount: float) -> None:
        now = self._clock.monotonic()
        if not self._samples or now - self._samples[-1].began >= self._window_seconds:
            self._samples.append(Sample(now))
        self._samples[-1].amount += amount

    @property
    def per_second(self) -> float:
        return self.measured()[0]

    def measured(self) -> tuple[float, float]:
        """The mean, and the seconds that it is over."""
        now, samples = self._clock.monotonic(), self._samples
        while samples and now - samples[0].began >= self._max_samples * self._window_seconds:
            samples.popleft()
        seconds = max(now - samples[0].began, self._min_seconds) if samples else self._min_seconds
        return sum(each.amount for each in samples) / seconds, seconds

    def seconds_above(self, bound: float) -> float:
        """How long nothing may be recorded until the mean is ``bound`` again; 0 where it is not above."""
        mean, seconds = self.measured()
        return (mean - bound) / bound * seconds if mean > bound else 0.0
