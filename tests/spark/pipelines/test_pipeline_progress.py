"""One line that tells how far a job is."""

from __future__ import annotations

import io

import pytest

from trio_broker.spark.pipelines.progress import Progress, short_bytes, short_count, short_duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def progress(clock: Clock, stream: io.StringIO, total: int | None = 1000) -> Progress:
    return Progress("export", total, stream=stream, clock=clock)


def test_nothing_is_shown_where_nobody_looks(clock: Clock):
    stream = io.StringIO()
    with progress(clock, stream) as shown:
        shown.advance(500)
    assert stream.getvalue() == ""


def test_a_line_tells_how_much_is_done_how_fast_and_how_long_it_takes(clock: Clock):
    with progress(clock, Terminal()) as shown:
        clock.now = 10.0
        shown.advance(250)
        assert shown.line() == "export  [######------------------]  25%  250 of 1,000  25 records/s  30 s left"


def test_what_is_running_counts_until_it_is_done(clock: Clock):
    with progress(clock, Terminal()) as shown:
        clock.now = 1.0
        shown.set_running(400)
        assert "400 of 1,000" in shown.line()
        shown.advance(500)
        assert "500 of 1,000" in shown.line()


def test_without_a_total_the_count_is_told(clock: Clock):
    with progress(clock, Terminal(), None) as shown:
        clock.now = 2.0
        shown.advance(5000)
        assert shown.line() == "export  5,000 records  2.5 k records/s"
        shown.grow(10_000)
        assert "5,000 of 10,000" in shown.line()


def test_lines_come_no_faster_than_an_eye_follows(clock: Clock):
    stream = Terminal()
    with progress(clock, stream) as shown:
        for count in range(1000):
            shown.set_running(count)
        clock.now = 1.0
        shown.set_running(1000)
    assert stream.getvalue().count("export") == 2
    assert stream.getvalue().endswith("\r\x1b[K")


def test_all_is_done_where_there_was_nothing_to_do(clock: Clock):
    assert "100%" in progress(clock, Terminal(), 0).line()


def test_numbers_are_told_as_people_say_them():
    assert [short_count(950), short_count(1_234_567)] == ["950", "1.2 M"]
    assert [short_bytes(10), short_bytes(3 << 29)] == ["10 B", "1.5 GiB"]
    assert [short_duration(42), short_duration(600), short_duration(10_000)] == ["42 s", "10 min", "2.8 h"]
