"""The last hour of a topic's rates as a picture: two lines over time, in and out.

Places are percentages, so that the browser stretches the picture without a script, and the letters in it stay as they
are. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from broker_admin.views.topics import TopicRatePoint, TopicRates

SPAN_MS = 3_600_000
"""What a chart shows: all that is kept."""

GAP_FACTOR = 2.5
"""Points further apart than so many intervals are not joined: what was between them is not known."""

NICE_FACTORS = (1, 2, 3, 4, 6, 8, 10)
"""Times a power of ten: where an axis may end."""


@attrs.frozen
class RateChart:
    """One chart. ``incoming`` and ``outgoing`` are paths in a square of 100 by 100; ``top`` is the value at its top."""

    title: str
    top: float
    start_ms: int
    middle_ms: int
    end_ms: int
    incoming: str
    outgoing: str


def rate_charts(rates: TopicRates) -> tuple[RateChart, RateChart] | None:
    """The chart of records and that of bytes; None before there are two points to join."""
    if len(rates.points) < 2:
        return None
    records = rate_chart(
        "Records", rates, lambda point: point.records_in_per_second, lambda point: point.records_out_per_second
    )
    size = rate_chart(
        "Bytes", rates, lambda point: point.bytes_in_per_second, lambda point: point.bytes_out_per_second, base=1024
    )
    return records, size


def rate_chart(
    title: str,
    rates: TopicRates,
    incoming: Callable[[TopicRatePoint], float],
    outgoing: Callable[[TopicRatePoint], float],
    base: int = 1000,
) -> RateChart:
    end_ms = rates.points[-1].at_ms
    span_ms = min(SPAN_MS, max(end_ms - rates.points[0].at_ms, 1))
    top = nice_top(max(max(incoming(point), outgoing(point)) for point in rates.points), base)
    gap_ms = rates.interval_ms * GAP_FACTOR

    def path(pick: Callable[[TopicRatePoint], float]) -> str:
        return path_of(rates.points, pick, start_ms=end_ms - span_ms, span_ms=span_ms, top=top, gap_ms=gap_ms)

    return RateChart(
        title=title,
        top=top,
        start_ms=end_ms - span_ms,
        middle_ms=end_ms - span_ms // 2,
        end_ms=end_ms,
        incoming=path(incoming),
        outgoing=path(outgoing),
    )


def path_of(
    points: Sequence[TopicRatePoint],
    pick: Callable[[TopicRatePoint], float],
    *,
    start_ms: int,
    span_ms: int,
    top: float,
    gap_ms: float,
) -> str:
    """The line through ``points``, lifted where some are missing."""
    parts = []
    previous_ms = None
    for point in points:
        if point.at_ms < start_ms:
            continue
        joins = previous_ms is not None and point.at_ms - previous_ms <= gap_ms
        x, y = 100 * (point.at_ms - start_ms) / span_ms, 100 - 100 * pick(point) / top
        parts.append(f"{'L' if joins else 'M'}{x:.2f},{y:.2f}")
        previous_ms = point.at_ms
    return "".join(parts)


def nice_top(value: float, base: int = 1000) -> float:
    """The smallest of 1, 2, 3, 4, 6, 8 times a power of ten, in the unit of ``value``, that is not below it.

    Units are powers of ``base``: 1000, or 1024 for bytes.
    """
    unit = 1.0
    while unit * base <= value:
        unit *= base
    power = unit
    while power * NICE_FACTORS[-1] < value:
        power *= 10
    return next(factor * power for factor in NICE_FACTORS if factor * power >= value)
