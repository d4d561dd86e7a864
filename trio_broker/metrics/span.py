"""Spans of seconds of the last hour, what is read off them, and the step of a reading from one span to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import isnan, log
from statistics import fmean, median

import attrs

from trio_broker.changes.change import ReadingUnit
from trio_broker.metrics.history import SERIES
from trio_broker.metrics.series import Row

SAME_CLIENTS = 0.2
"""Connections that differ by less are the same clients: tools and new members open some."""

SAME_MIX = 0.2
"""And the share of what is read in all bytes, in points."""

PLACES = {name: place for place, name in enumerate(SERIES)}


@attrs.frozen(slots=False)
class Span:
    """Seconds, as ``SeriesHistory`` keeps them."""

    rows: Sequence[Row]
    _readings: dict[str, float | None] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, name: str) -> list[float]:
        """The series ``name``, without what was not measured."""
        place = PLACES[name]
        return [value for row in self.rows if not isnan(value := row.values[place])]

    def mean(self, name: str) -> float:
        """0 for nothing measured."""
        return fmean(values) if (values := self.values(name)) else 0.0

    def read(self, source: ReadingSource) -> float | None:
        """The reading of ``source``, taken once: a span is compared with the one before it and the one after it."""
        if source.name not in self._readings:
            self._readings[source.name] = source.of(self)
        return self._readings[source.name]

    @cached_property
    def connections(self) -> float:
        return self.mean("connections")

    @cached_property
    def share_read(self) -> float:
        """What part of all bytes went out."""
        out = self.mean("bytes_out_per_second")
        both = out + self.mean("bytes_in_per_second")
        return out / both if both else 0.0

    @property
    def busiest(self) -> float:
        """The busy ratio of what was busiest: event loop, syncs, cold sends, handlers, request queue."""
        queue, capacity = self.mean("queue_depth"), self.mean("queue_capacity")
        busy = (self.mean(name) for name in ("event_loop_busy_ratio", "sync_busy_ratio", "cold_send_busy_ratio"))
        return max(*busy, 1 - self.mean("io_idle_ratio"), queue / capacity if capacity else 0.0)

    @property
    def in_flight(self) -> float:
        """How many requests were under way, by Little's law."""
        latency = typical_seconds("produce_p50_ms")(self) or typical_seconds("fetch_p50_ms")(self)
        return self.mean("requests_per_second") * (latency or 0.0)

    def in_flight_step(self, earlier: Span) -> float | None:
        before, after = earlier.in_flight, self.in_flight
        return log(after / before) if before > 0 and after > 0 else None

    def has_connections_of(self, other: Span) -> bool:
        """Whether as many connections were open, but for one or a fifth."""
        one, another = self.connections, other.connections
        return abs(one - another) <= max(SAME_CLIENTS * max(one, another), 1)


def joined(spans: Sequence[Span]) -> Span:
    return Span([row for span in spans for row in span.rows])


def is_same_clients(one: Span, other: Span) -> bool:
    """Whether the clients and their mix of reads and writes were the same, whatever their rate."""
    return one.has_connections_of(other) and abs(one.share_read - other.share_read) <= SAME_MIX


@attrs.frozen
class ReadingSource:
    """How one reading is taken of a span; ``of`` returns None for nothing to measure."""

    name: str
    unit: ReadingUnit
    of: Callable[[Span], float | None]


def mean_of(*names: str) -> Callable[[Span], float | None]:
    """The mean of a series, or of the sum of some."""
    return lambda span: sum(map(span.mean, names)) if any(map(span.values, names)) else None


def typical_seconds(name: str) -> Callable[[Span], float | None]:
    """The median over the seconds that had such a request: one second of a stall does not stand for the minute."""

    def take(span: Span) -> float | None:
        measured = [value for value in span.values(name) if value > 0]
        return median(measured) / 1000 if measured else None

    return take


REQUESTS, RECORDS, BYTES = "requests", "records written", "bytes in and out"
PRODUCE_P50, PRODUCE_P99 = "Produce p50", "Produce p99"
FETCH_P50, FETCH_P99 = "Fetch p50", "Fetch p99"
LATENCIES = (PRODUCE_P50, PRODUCE_P99, FETCH_P50, FETCH_P99)
LOOP_BUSY, SYNCS_BUSY, CPU_PRESSURE = "event loop busy", "syncs busy", "CPU pressure"

READINGS = (
    ReadingSource(REQUESTS, ReadingUnit.PER_SECOND, mean_of("requests_per_second")),
    ReadingSource(RECORDS, ReadingUnit.RECORDS_PER_SECOND, mean_of("records_in_per_second")),
    ReadingSource(BYTES, ReadingUnit.BYTES_PER_SECOND, mean_of("bytes_in_per_second", "bytes_out_per_second")),
    ReadingSource(PRODUCE_P50, ReadingUnit.SECONDS, typical_seconds("produce_p50_ms")),
    ReadingSource(PRODUCE_P99, ReadingUnit.SECONDS, typical_seconds("produce_p99_ms")),
    ReadingSource(FETCH_P50, ReadingUnit.SECONDS, typical_seconds("fetch_p50_ms")),
    ReadingSource(FETCH_P99, ReadingUnit.SECONDS, typical_seconds("fetch_p99_ms")),
    ReadingSource(LOOP_BUSY, ReadingUnit.RATIO, mean_of("event_loop_busy_ratio")),
    ReadingSource(SYNCS_BUSY, ReadingUnit.RATIO, mean_of("sync_busy_ratio")),
    ReadingSource("syncs waiting", ReadingUnit.COUNT, mean_of("syncs_waiting")),
    ReadingSource("request queue", ReadingUnit.COUNT, mean_of("queue_depth")),
    ReadingSource(CPU_PRESSURE, ReadingUnit.RATIO, mean_of("cpu_pressure_ratio")),
)


def step(source: ReadingSource, before: Span, after: Span) -> float | None:
    """From ``before`` to ``after``: the logarithm of their ratio, of ratios the difference; None if one has neither.

    By logarithms twice as much and half as much are as far away.
    """
    old, new = before.read(source), after.read(source)
    if old is None or new is None:
        return None
    if source.unit is ReadingUnit.RATIO:
        return new - old
    return log(new / old) if old > 0 and new > 0 else None
