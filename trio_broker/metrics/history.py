"""Samples of the broker, one a second, and the ring that keeps the last minutes of them.

A sample is made when the socket server closes an interval of its ratios: levels and ratios are those of its
``statistics()``, rates are the differences of two of them. When the loop was too busy to be on time the interval is
longer, and the rates are still right, since they are divided by the time that really passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import attrs

from trio_broker.network.statistics import SocketServerStatistics

HISTORY_SAMPLES = 300
"""Five minutes, which is what the page draws; some 200 KB."""

MIN_INTERVAL_SECONDS = 1e-3
"""Two readings closer than this are not divided by their distance: the clock's own grain would be the result."""


@attrs.frozen(kw_only=True)
class HistorySample:
    """One second of the broker's life: rates over that second, levels at its end.

    An idle ratio is one minus the busy share of the interval, from 0 to 1; a pool's is the mean over its workers.
    ``queue_depth`` is the deepest that the queue was. ``parked_requests`` wait for something other than a handler.
    """

    sampled_at_ms: int
    bytes_in_per_second: float
    bytes_out_per_second: float
    requests_per_second: float
    network_idle_ratio: float
    network_idle_ratios: tuple[float, ...]
    io_idle_ratio: float
    io_idle_ratios: tuple[float, ...]
    queue_depth: int
    queue_capacity: int
    parked_requests: int
    connections: int
    event_loop_busy_ratio: float


def sample_between(earlier: SocketServerStatistics, later: SocketServerStatistics, sampled_at_ms: int) -> HistorySample:
    """What happened from ``earlier`` to ``later``."""
    seconds = max((later.measured_ns - earlier.measured_ns) / 1e9, MIN_INTERVAL_SECONDS)
    return HistorySample(
        sampled_at_ms=sampled_at_ms,
        bytes_in_per_second=(later.bytes_in - earlier.bytes_in) / seconds,
        bytes_out_per_second=(later.bytes_out - earlier.bytes_out) / seconds,
        requests_per_second=(later.requests - earlier.requests) / seconds,
        network_idle_ratio=later.network_idle_ratio,
        network_idle_ratios=tuple(processor.idle_ratio for processor in later.processors),
        io_idle_ratio=later.handler_idle_ratio,
        io_idle_ratios=tuple(slot.idle_ratio for slot in later.handlers.slots),
        queue_depth=later.channel.recent_peak_depth,
        queue_capacity=later.channel.capacity,
        parked_requests=later.handlers.parked,
        connections=later.connections,
        event_loop_busy_ratio=later.loop_busy_ratio,
    )


class History:
    """The last minutes of samples, and the listeners to new ones."""

    def __init__(
        self, first: SocketServerStatistics, now_ms: Callable[[], int], *, capacity: int = HISTORY_SAMPLES
    ) -> None:
        self._latest = first
        self._now_ms = now_ms
        self._samples: deque[HistorySample] = deque(maxlen=capacity)
        self._listeners: list[Callable[[HistorySample], None]] = []

    @property
    def samples(self) -> Sequence[HistorySample]:
        """The samples kept, oldest first; a copy."""
        return tuple(self._samples)

    def add(self, statistics: SocketServerStatistics) -> None:
        """Keep a sample of what happened since the last one, and pass it to the listeners."""
        sample = sample_between(self._latest, statistics, self._now_ms())
        self._latest = statistics
        self._samples.append(sample)
        for listener in tuple(self._listeners):
            listener(sample)

    def subscribe(self, listener: Callable[[HistorySample], None]) -> None:
        """Call ``listener`` with every new sample. Listeners do not raise."""
        self._listeners.append(listener)
