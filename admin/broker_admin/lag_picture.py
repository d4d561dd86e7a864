"""The lag of a group over time as the page shows it: one chart of records, one of seconds, with the rebalances on both.

Pure functions. Places are in a box of ``WIDTH`` by ``HEIGHT``, which the browser stretches without a script; lines are
lifted where a reading is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from broker_admin.texts import number_text, short_duration_text
from broker_admin.timeline_picture import LONG_SPAN_MS, rebalance_entry
from trio_broker.coordinator.reporting.snapshot import GroupLagHistory, LagSample, Rebalance

WIDTH = 1000
HEIGHT = 100

MAX_POINTS = 240
"""Of one line: a point each four pixels of a wide screen. Of the readings between two points the largest is shown."""

MIN_SPAN_MS = 300_000
"""The chart shows at least five minutes, so that a line does not jump while it begins."""

GAP_INTERVALS = 3.5
"""Readings further apart are not joined: what was between them is not known."""


@attrs.frozen
class LagLine:
    """One chart: ``path`` and ``area`` are SVG paths, ``top`` is what its upper edge stands for, ``now`` the latest."""

    title: str
    tone: str
    path: str
    area: str
    top: str
    now: str


@attrs.frozen
class RebalanceMark:
    """A rebalance on the axis, in percent from the left."""

    left: float
    tone: str
    started_at_ms: int
    generation: int


@attrs.frozen
class LagPicture:
    """The charts from ``start_ms`` to ``end_ms``."""

    start_ms: int
    end_ms: int
    lines: tuple[LagLine, ...]
    marks: tuple[RebalanceMark, ...]

    @property
    def is_long(self) -> bool:
        """Whether the axis needs no seconds."""
        return self.end_ms - self.start_ms >= LONG_SPAN_MS

    @property
    def middle_ms(self) -> int:
        return (self.start_ms + self.end_ms) // 2


def lag_picture(history: GroupLagHistory, rebalances: Sequence[Rebalance], now_ms: int) -> LagPicture | None:
    """The charts of ``history`` up to now; None while there are less than two readings."""
    if len(history.samples) < 2:
        return None
    end_ms = max(now_ms, history.samples[-1].at_ms)
    start_ms = min(history.samples[0].at_ms, end_ms - MIN_SPAN_MS)
    samples = thinned(history.samples)
    gap_ms = GAP_INTERVALS * max(history.interval_ms, (end_ms - start_ms) / MAX_POINTS)
    return LagPicture(
        start_ms=start_ms,
        end_ms=end_ms,
        lines=(
            lag_line("records behind", "first", samples, lambda each: each.lag_records, records_text, start_ms, end_ms,
                     gap_ms),
            lag_line("seconds behind", "second", samples, lambda each: each.lag_seconds, short_duration_text, start_ms,
                     end_ms, gap_ms),
        ),
        marks=tuple(
            RebalanceMark(
                left=round(100 * (each.started_at_ms - start_ms) / (end_ms - start_ms), 2),
                tone=rebalance_entry(each).tone,
                started_at_ms=each.started_at_ms,
                generation=each.generation,
            )
            for each in rebalances
            if start_ms <= each.started_at_ms <= end_ms
        ),
    )  # fmt: skip


def records_text(count: float) -> str:
    return number_text(round(count))


def thinned(samples: Sequence[LagSample]) -> list[LagSample]:
    """At most ``MAX_POINTS`` of ``samples``: of those that fall together the one with the largest lag."""
    step = -(-len(samples) // MAX_POINTS)
    return [
        max(samples[start : start + step], key=lambda each: (each.lag_records or 0, each.lag_seconds or 0.0))
        for start in range(0, len(samples), step)
    ]


def lag_line(
    title: str,
    tone: str,
    samples: Sequence[LagSample],
    value_of: Callable[[LagSample], float | None],
    text_of: Callable[[float], str],
    start_ms: int,
    end_ms: int,
    gap_ms: float,
) -> LagLine:
    """The chart of one value of the samples."""
    values = [(each.at_ms, value) for each in samples if (value := value_of(each)) is not None]
    top = max((value for _, value in values), default=0.0) or 1.0
    parts: list[list[tuple[float, float]]] = []
    previous_ms = -gap_ms
    for at_ms, value in values:
        if at_ms - previous_ms > gap_ms or not parts:
            parts.append([])
        x = WIDTH * (at_ms - start_ms) / (end_ms - start_ms)
        parts[-1].append((round(x, 1), round(HEIGHT * (1 - value / top), 1)))
        previous_ms = at_ms
    latest = value_of(samples[-1])
    return LagLine(
        title=title,
        tone=tone,
        path="".join(line_path(part) for part in parts),
        area="".join(f"M{part[0][0]},{HEIGHT}L{line_path(part)[1:]}L{part[-1][0]},{HEIGHT}Z" for part in parts),
        top=text_of(top),
        now="unknown" if latest is None else text_of(latest),
    )


def line_path(points: Sequence[tuple[float, float]]) -> str:
    # A single reading is a line of no length, which the round ends of the stroke make a dot.
    joined = points if len(points) > 1 else [*points, *points]
    return "M" + "L".join(f"{x},{y}" for x, y in joined)
