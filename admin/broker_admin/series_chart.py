"""Readings over time as pictures: charts above each other on one axis, which the reader chooses the length of.

Pure functions. Places are in a box of ``WIDTH`` by ``HEIGHT``, which the browser stretches without a script; lines are
lifted where a reading is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import urlencode

import attrs
from starlette.datastructures import QueryParams

from broker_admin.schemas import bounded
from broker_admin.texts import bytes_text, number_text, short_duration_text
from broker_admin.time_axis import TimeAxis
from broker_admin.timeline_chart import rebalance_entry
from broker_admin.topic_texts import rate_text
from broker_admin.views.node.readings import SeriesReport
from trio_broker.coordinator.reporting.snapshot import Rebalance

WIDTH = 1000
HEIGHT = 100

GAP_STEPS = 3.5
"""Readings further apart are not joined: what was between them is not known."""

NICE_FACTORS = (1, 2, 3, 4, 6, 8, 10)
"""Times a power of ten: where an axis may end."""


@attrs.frozen
class TimeRange:
    """A length of the axis, with a point every ``step_ms``: one each four pixels of a wide screen.

    ``longest_step_ms`` is how far apart readings may be that were taken one after the other.
    """

    title: str
    span_ms: int
    step_ms: int
    longest_step_ms: int


RANGES: Mapping[str, TimeRange] = {
    "5m": TimeRange("5 min", 300_000, 1_000, 10_000),
    "1h": TimeRange("1 h", 3_600_000, 15_000, 60_000),
    "6h": TimeRange("6 h", 6 * 3_600_000, 120_000, 120_000),
    "24h": TimeRange("24 h", 24 * 3_600_000, 360_000, 360_000),
    "7d": TimeRange("7 d", 7 * 86_400_000, 42 * 60_000, 42 * 60_000),
}
"""By their word in an address."""


@attrs.frozen
class RangeQuery:
    """The time that a page's charts show."""

    range: str = bounded("1h", enum=list(RANGES))


@attrs.frozen
class RangeLink:
    """One of the ranges, and where the page is with it."""

    title: str
    address: str
    is_chosen: bool


def range_links(path: str, parameters: QueryParams, chosen: str, fragment: str) -> tuple[RangeLink, ...]:
    """The links of the page at ``path``, whose query stays as it is otherwise."""
    kept = [(name, value) for name, value in parameters.multi_items() if name != "range"]
    return tuple(
        RangeLink(each.title, f"{path}?{urlencode([*kept, ('range', name)])}#{fragment}", name == chosen)
        for name, each in RANGES.items()
    )


@attrs.frozen
class ChartLines:
    """What a chart shows: the series with their names on the chart, and how their values are written.

    The upper edge is a round number in units of ``base``, or ``top``.
    """

    title: str
    lines: tuple[tuple[str, str], ...]
    text_of: Callable[[float], str]
    base: int = 1000
    top: float | None = None


def count_text(count: float) -> str:
    return number_text(round(count))


def percent_text(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


GROUP_CHARTS = (
    ChartLines("Records behind", (("lag_records", ""),), count_text),
    ChartLines("Time behind", (("lag_seconds", ""),), short_duration_text),
    ChartLines("Records consumed per second", (("consumed_per_second", ""),), rate_text),
)

TOPIC_CHARTS = (
    ChartLines("Records per second", (("records_in_per_second", "in"), ("records_out_per_second", "out")), rate_text),
    ChartLines("Bytes per second", (("bytes_in_per_second", "in"), ("bytes_out_per_second", "out")), bytes_text, 1024),
)

BROKER_CHARTS = (
    ChartLines("Bytes per second", (("bytes_in_per_second", "in"), ("bytes_out_per_second", "out")), bytes_text, 1024),
    ChartLines("Records per second in", (("records_in_per_second", ""),), rate_text),
    ChartLines("Requests per second", (("requests_per_second", ""),), rate_text),
    ChartLines(
        "Slowest 1 % of requests",
        (("produce_p99_ms", "Produce"), ("fetch_p99_ms", "Fetch")),
        lambda milliseconds: short_duration_text(milliseconds / 1000),
    ),
    ChartLines(
        "Event loop", (("event_loop_busy_ratio", "busy"), ("event_loop_cpu_ratio", "on a CPU")), percent_text, top=1.0
    ),
    ChartLines(
        "Time in which tasks of the machine wait for a CPU", (("cpu_pressure_ratio", ""),), percent_text, top=1.0
    ),
    ChartLines("Sent by clients and not read", (("unread_bytes", ""),), bytes_text, 1024),
)


@attrs.frozen
class ChartLine:
    """One series: ``path`` and ``area`` are SVG paths, ``now`` is the latest value in words."""

    name: str
    tone: str
    path: str
    area: str
    now: str


@attrs.frozen
class SeriesChart:
    """One chart; ``ticks`` are what its upper edge, its middle and its lower edge stand for, in words."""

    title: str
    ticks: tuple[str, str, str]
    lines: tuple[ChartLine, ...]


@attrs.frozen
class ChartMark:
    """Something that happened, as an upright line in percent from the left."""

    left: float
    severity: str
    text: str
    at_ms: int


@attrs.frozen
class SeriesCharts:
    """Charts over one axis, with the same marks on each."""

    axis: TimeAxis
    charts: tuple[SeriesChart, ...]
    marks: tuple[ChartMark, ...]


def series_charts(
    report: SeriesReport, shown: Sequence[ChartLines], chosen: TimeRange, now_ms: int, marks: Iterable[ChartMark] = ()
) -> SeriesCharts | None:
    """The charts of ``report`` over the whole time that is chosen, up to now; None while there are less than two
    readings."""
    if len(report.times_ms) < 2:
        return None
    end_ms = max(now_ms, report.times_ms[-1])
    start_ms = end_ms - chosen.span_ms
    axis = TimeAxis(start_ms, end_ms)
    gap_ms = GAP_STEPS * chosen.longest_step_ms
    return SeriesCharts(
        axis=axis,
        charts=tuple(series_chart(report, each, axis, gap_ms) for each in shown),
        marks=tuple(
            attrs.evolve(mark, left=round(axis.percent(mark.at_ms), 2))
            for mark in marks
            if start_ms <= mark.at_ms <= end_ms
        ),
    )


def rebalance_marks(rebalances: Iterable[Rebalance]) -> list[ChartMark]:
    """The rebalances of a group; a charts says where they are."""
    return [
        ChartMark(0.0, rebalance_entry(each).severity, f"rebalance to generation {each.generation}", each.started_at_ms)
        for each in rebalances
    ]


def series_chart(report: SeriesReport, shown: ChartLines, axis: TimeAxis, gap_ms: float) -> SeriesChart:
    columns = [report.series.get(series, ()) for series, _ in shown.lines]
    largest = max((value for column in columns for value in column if value is not None), default=0.0)
    top = nice_top(largest, shown.base) if shown.top is None else shown.top

    def line(name: str, tone: str, column: Sequence[float | None]) -> ChartLine:
        parts: list[list[tuple[float, float]]] = []
        previous_ms = None
        for at_ms, value in zip(report.times_ms, column, strict=False):
            if value is None or at_ms < axis.start_ms:
                continue
            if previous_ms is None or at_ms - previous_ms > gap_ms:
                parts.append([])
            x, y = WIDTH * axis.percent(at_ms) / 100, HEIGHT * (1 - min(value, top) / top)
            parts[-1].append((round(x, 1), round(y, 1)))
            previous_ms = at_ms
        latest = column[-1] if column else None
        return ChartLine(
            name=name,
            tone=tone,
            path="".join(line_path(part) for part in parts),
            area="".join(f"M{part[0][0]},{HEIGHT}L{line_path(part)[1:]}L{part[-1][0]},{HEIGHT}Z" for part in parts),
            now="unknown" if latest is None else shown.text_of(latest),
        )

    tones = ("first", "second")
    names = [name for _, name in shown.lines]
    return SeriesChart(
        title=shown.title,
        ticks=(shown.text_of(top), shown.text_of(top / 2), shown.text_of(0)),
        lines=tuple(line(name, tone, column) for name, tone, column in zip(names, tones, columns, strict=False)),
    )


def line_path(points: Sequence[tuple[float, float]]) -> str:
    # A single reading is a line of no length, which the round ends of the stroke make a dot.
    joined = points if len(points) > 1 else [*points, *points]
    return "M" + "L".join(f"{x},{y}" for x, y in joined)


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
