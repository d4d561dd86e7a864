"""How busy something is: the share of time it spent working.

``BusyTime`` counts nanoseconds of work and never decreases; a ``Utilization`` keeps the count of its last sample and
divides the difference by the time that passed. Any number of readers may sample at any rate without affecting each
other. A ratio lies between 0 and 1 by construction: overlapping stretches of work count once, and a stretch still
under way counts up to the moment of the sample. Kafka's idle percentages, which count per request as
it ends, have shown figures above 1 (KAFKA-7354) and wrong averages (KIP-1207).
"""

from __future__ import annotations

from trio_broker.runtime.measurement import perf_counter_ns


class BusyTime:
    """Counts the nanoseconds during which at least one stretch of work was under way."""

    __slots__ = ("busy_ns", "depth", "since_ns")

    def __init__(self) -> None:
        self.busy_ns = 0
        self.depth = 0
        self.since_ns = 0

    def enter(self) -> None:
        """A stretch of work begins; stretches may overlap (a worker thread beside the event loop)."""
        if self.depth == 0:
            self.since_ns = perf_counter_ns()
        self.depth += 1

    def exit(self) -> None:
        """A stretch of work ends."""
        self.depth -= 1
        if self.depth == 0:
            self.busy_ns += perf_counter_ns() - self.since_ns

    def enter_at(self, now_ns: int) -> None:
        """As ``enter``, for a caller that has just read the clock."""
        if self.depth == 0:
            self.since_ns = now_ns
        self.depth += 1

    def exit_at(self, now_ns: int) -> None:
        """As ``exit``, for a caller that has just read the clock."""
        self.depth -= 1
        if self.depth == 0:
            self.busy_ns += now_ns - self.since_ns

    def busy_until(self, now_ns: int) -> int:
        """Nanoseconds of work up to ``now_ns`` (of ``time.perf_counter_ns``)."""
        return self.busy_ns + (max(0, now_ns - self.since_ns) if self.depth else 0)


class Utilization:
    """The busy ratio of one ``BusyTime`` between two samples of one reader."""

    __slots__ = ("busy_time", "ratio", "seen_at_ns", "seen_busy_ns")

    def __init__(self, meter: BusyTime, now_ns: int | None = None) -> None:
        self.busy_time = meter
        self.seen_at_ns = perf_counter_ns() if now_ns is None else now_ns
        self.seen_busy_ns = meter.busy_until(self.seen_at_ns)
        self.ratio = 0.0

    def sample(self, now_ns: int) -> float:
        """The share of time spent working since the last call, 0 to 1; kept in ``ratio`` until the next."""
        busy_ns = self.busy_time.busy_until(now_ns)
        elapsed_ns = now_ns - self.seen_at_ns
        if elapsed_ns > 0:
            # Work that began before the last sample was counted up to it, so the difference cannot exceed the time.
            self.ratio = (busy_ns - self.seen_busy_ns) / elapsed_ns
            self.seen_at_ns, self.seen_busy_ns = now_ns, busy_ns
        return self.ratio
