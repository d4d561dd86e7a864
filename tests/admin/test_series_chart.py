"""Charts over hours and days: where the lines, the gaps and the marks are, and where the links of the ranges lead."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from broker_admin.series_chart import (
    BROKER_CHARTS,
    GROUP_CHARTS,
    RANGES,
    TOPIC_CHARTS,
    SeriesCharts,
    nice_top,
    range_links,
    rebalance_marks,
    series_charts,
)
from broker_admin.time_axis import TimeAxis
from broker_admin.views.node.readings import SeriesReport
from tests.admin.fake_groups import fake_member, fake_rebalance
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.metrics.history import SERIES
from trio_broker.metrics.series import GROUP_SERIES, TOPIC_SERIES

NOW_MS = 1_700_000_000_000


def drawn(*lags: tuple[float, float | None], chosen: str = "1h", marks=()) -> SeriesCharts | None:
    """The charts of a group with these lags, each so many seconds ago."""
    report = SeriesReport(
        step_ms=15_000,
        times_ms=tuple(NOW_MS - round(1000 * seconds_ago) for seconds_ago, _ in lags),
        series={
            "lag_records": tuple(lag for _, lag in lags),
            "lag_seconds": (1.5,) * len(lags),
            "consumed_per_second": (None,) * len(lags),
        },
    )
    return series_charts(report, GROUP_CHARTS, RANGES[chosen], NOW_MS, marks)


def test_every_chart_is_of_series_that_there_are():
    for charts, series in ((GROUP_CHARTS, GROUP_SERIES), (TOPIC_CHARTS, TOPIC_SERIES), (BROKER_CHARTS, SERIES)):
        assert {name for chart in charts for name, _ in chart.lines} <= set(series)


def test_there_is_no_picture_of_one_reading():
    assert drawn() is None
    assert drawn((5, 1)) is None


def test_a_line_reaches_from_its_first_reading_to_now():
    charts = drawn((10, 0), (5, 50), (0, 100), chosen="5m")
    assert charts is not None
    assert charts.axis == TimeAxis(NOW_MS - 300_000, NOW_MS)
    records, seconds, consumed = charts.charts
    assert records.lines[0].path == "M966.7,100.0L983.3,50.0L1000.0,0.0"
    assert records.lines[0].area == "M966.7,100L966.7,100.0L983.3,50.0L1000.0,0.0L1000.0,100Z"
    assert (records.ticks, records.lines[0].now) == (("100", "50", "0"), "100")
    assert (seconds.ticks, seconds.lines[0].now) == (("2.0 s", "1.0 s", "0 s"), "1.5 s")
    assert (consumed.lines[0].path, consumed.lines[0].now) == ("", "unknown")


def test_an_axis_has_its_whole_length_even_if_nothing_was_read_at_their_beginning():
    charts = drawn((3600, 1), (0, 1), chosen="7d")
    assert charts is not None
    assert charts.axis.start_ms == NOW_MS - 7 * 86_400_000
    assert charts.axis.has_dates
    hour = drawn((3600, 1), (0, 1))
    assert hour is not None
    assert not hour.axis.has_dates
    young = drawn((10, 1), (0, 1))
    assert young is not None
    assert young.axis.start_ms == NOW_MS - 3_600_000


def test_readings_that_are_missing_or_unknown_leave_a_gap():
    charts = drawn((1000, 10), (995, 10), (500, None), (10, 5), (5, 5))
    assert charts is not None
    assert charts.charts[0].lines[0].path.count("M") == 2


def test_minutes_from_the_disk_and_seconds_from_memory_are_one_line():
    charts = drawn((240, 10), (180, 10), (120, 10), (5, 10), (0, 10))
    assert charts is not None
    assert charts.charts[0].lines[0].path.count("M") == 1


def test_rebalances_are_marks_on_the_same_axis():
    member = fake_member("till", 1, {})
    rebalances = [
        fake_rebalance(NOW_MS - 300_001, 10, 1, 1, (GroupEventKind.MEMBER_JOINED, member, "")),
        fake_rebalance(NOW_MS - 150_000, 10, 2, 1, (GroupEventKind.MEMBER_TIMED_OUT, member, "")),
    ]
    charts = drawn((10, 0), (5, 1), chosen="5m", marks=rebalance_marks(rebalances))
    assert charts is not None
    assert [(mark.left, mark.severity, mark.text) for mark in charts.marks] == [
        (50.0, "bad", "rebalance to generation 2")
    ]


def test_the_links_of_the_ranges_keep_the_rest_of_the_address():
    links = range_links("/groups/-", QueryParams("id=..&range=6h"), "6h", "history-title")
    assert [link.title for link in links] == ["5 min", "1 h", "6 h", "24 h", "7 d"]
    assert [link.title for link in links if link.is_chosen] == ["6 h"]
    assert links[-1].address == "/groups/-?id=..&range=7d#history-title"


def test_the_scale_of_a_chart_ends_at_a_round_number_of_its_unit() -> None:
    assert [nice_top(value) for value in (0, 1, 1.5, 7, 95, 2500)] == [1, 1, 2, 8, 100, 3000]
    assert [nice_top(value, 1024) for value in (500, 1500, 30 * 1024)] == [600, 2048, 30 * 1024]
