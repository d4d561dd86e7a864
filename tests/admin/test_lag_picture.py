"""The charts of a group's lag: where the lines and the marks of rebalances are."""

from __future__ import annotations

from broker_admin.lag_picture import MAX_POINTS, MIN_SPAN_MS, LagPicture, lag_picture
from tests.admin.fake_groups import fake_member, fake_rebalance
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.reporting.snapshot import GroupLagHistory, LagSample

NOW_MS = 1_700_000_000_000


def drawn(*samples: LagSample, rebalances=()) -> LagPicture | None:
    history = GroupLagHistory(interval_ms=5000, samples=samples, rates=None)
    return lag_picture(history, rebalances, NOW_MS)


def sample(seconds_ago: float, records: int | None, seconds: float | None = 1.0) -> LagSample:
    return LagSample(NOW_MS - round(1000 * seconds_ago), records, seconds)


def test_there_is_no_picture_of_one_reading():
    assert drawn() is None
    assert drawn(sample(5, 1)) is None


def test_a_line_reaches_from_its_first_reading_to_now():
    picture = drawn(sample(10, 0), sample(5, 50), sample(0, 100))
    assert picture is not None
    assert (picture.start_ms, picture.end_ms) == (NOW_MS - MIN_SPAN_MS, NOW_MS)
    records, seconds = picture.lines
    assert records.path == "M966.7,100.0L983.3,50.0L1000.0,0.0"
    assert records.area == "M966.7,100L966.7,100.0L983.3,50.0L1000.0,0.0L1000.0,100Z"
    assert (records.top, records.now) == ("100", "100")
    assert (seconds.top, seconds.now) == ("1.0 s", "1.0 s")


def test_readings_that_are_missing_or_unknown_leave_a_gap():
    picture = drawn(sample(200, 10), sample(195, 10), sample(15, None), sample(10, 5), sample(5, 5))
    assert picture is not None
    assert picture.lines[0].path.count("M") == 2


def test_a_lag_that_is_not_known_now_is_said_to_be_unknown():
    picture = drawn(sample(5, 10, None), sample(0, 5, None))
    assert picture is not None
    assert (picture.lines[1].path, picture.lines[1].now) == ("", "unknown")


def test_an_hour_has_no_more_points_than_can_be_seen_and_keeps_its_peaks():
    samples = [sample(5 * each, 1_000 if each == 333 else 10) for each in range(719, -1, -1)]
    picture = drawn(*samples)
    assert picture is not None
    assert picture.lines[0].path.count("L") < MAX_POINTS
    assert picture.lines[0].path.count("M") == 1
    assert picture.lines[0].top == "1\u202f000"


def test_rebalances_are_marks_on_the_same_axis():
    member = fake_member("till", 1, {})
    rebalances = [
        fake_rebalance(NOW_MS - MIN_SPAN_MS - 1, 10, 1, 1, (GroupEventKind.MEMBER_JOINED, member, "")),
        fake_rebalance(NOW_MS - MIN_SPAN_MS // 2, 10, 2, 1, (GroupEventKind.MEMBER_TIMED_OUT, member, "")),
    ]
    picture = drawn(sample(10, 0), sample(5, 1), rebalances=rebalances)
    assert picture is not None
    assert [(mark.left, mark.tone, mark.generation) for mark in picture.marks] == [(50.0, "bad", 2)]
