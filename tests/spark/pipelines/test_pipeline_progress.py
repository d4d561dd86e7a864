"""The line that tells what a job does, how far it is and how fast."""

from __future__ import annotations

import io

import pytest

from trio_broker.spark.pipelines.progress import (
    CLEAR_LINE,
    COMMITTING,
    READING,
    SECONDS_BETWEEN_PLAIN_LINES,
    Progress,
)

WIDE = 200


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
    return Progress("export", total, stream=stream, clock=clock, tick_seconds=None)


def test_the_line_tells_how_much_is_done_how_fast_and_how_long_it_takes(clock: Clock):
    with progress(clock, Terminal()) as shown:
        shown.phase(READING)
        clock.now = 10.0
        shown.advance(250)
        assert shown.line(WIDE) == (
            "export: reading  [######------------------]  25%  250 of 1,000  25 records/s  30 s left"
        )


def test_a_phase_without_records_yet_tells_how_long_it_has_lasted(clock: Clock):
    with progress(clock, Terminal()) as shown:
        assert shown.line(WIDE) == "export: planning  0 s"
        clock.now = 1.0
        shown.phase("starting Spark", is_counting=False)
        clock.now = 7.0
        assert shown.line(WIDE) == "export: starting Spark  6 s"
        shown.phase(READING)
        clock.now = 10.0
        assert shown.line(WIDE) == "export: reading  1,000 records  3 s"


def test_the_start_of_spark_and_what_was_done_before_are_not_in_the_rate(clock: Clock):
    with progress(clock, Terminal()) as shown:
        shown.advance(400)
        shown.phase("starting Spark", is_counting=False)
        clock.now = 60.0
        shown.phase(READING)
        clock.now = 62.0
        shown.set_running(100)
        assert shown.line(WIDE).endswith("50%  500 of 1,000  50 records/s  10 s left")


def test_the_rate_is_that_of_the_last_seconds(clock: Clock):
    with progress(clock, Terminal(), 100_000) as shown:
        shown.phase(READING)
        for _ in range(30):
            clock.now += 1.0
            shown.advance(1000)
        for _ in range(30):
            clock.now += 1.0
            shown.advance(10)
        assert "10 records/s" in shown.line(WIDE)


def test_a_task_that_takes_longer_than_the_last_seconds_does_not_make_the_rate_zero(clock: Clock):
    with progress(clock, Terminal()) as shown:
        shown.phase(READING)
        clock.now = 20.0
        shown.set_running(200)
        clock.now = 40.0
        shown.set_running(400)
        assert "10 records/s" in shown.line(WIDE)
        clock.now = 60.0
        assert "5 records/s" in shown.line(WIDE)


def test_a_phase_is_named_while_the_rest_stays(clock: Clock):
    with progress(clock, Terminal()) as shown:
        shown.phase(READING)
        clock.now = 1.0
        shown.set_running(400)
        assert "400 of 1,000" in shown.line(WIDE)
        shown.phase(COMMITTING)
        assert shown.line(WIDE).startswith("export: committing  [")
        shown.advance(500)
        assert "500 of 1,000" in shown.line(WIDE)


def test_without_a_total_the_count_is_reported(clock: Clock):
    with progress(clock, Terminal(), None) as shown:
        shown.phase(READING)
        clock.now = 2.0
        shown.advance(5000)
        assert shown.line(WIDE) == "export: reading  5,000 records  2.5 k records/s"
        shown.grow(10_000)
        assert "5,000 of 10,000" in shown.line(WIDE)


def test_the_line_is_never_longer_than_the_terminal(clock: Clock):
    with progress(clock, Terminal(), 12_345_678_901) as shown:
        shown.phase(COMMITTING)
        clock.now = 3.0
        shown.advance(1_234_567_890)
        lines = {width: shown.line(width) for width in range(1, 140)}
    assert all(len(line) <= width for width, line in lines.items())
    assert "[" in lines[100]
    assert "[" not in lines[80]


def test_the_line_is_rewritten_no_faster_than_an_eye_follows(clock: Clock):
    stream = Terminal()
    with progress(clock, stream) as shown:
        for count in range(1000):
            shown.set_running(count)
        clock.now = 1.0
        shown.set_running(1000)
    assert stream.getvalue().count("export") == 2
    assert stream.getvalue().endswith(CLEAR_LINE)


def test_lines_of_others_stand_above(clock: Clock):
    stream = Terminal()
    with progress(clock, stream) as shown:
        shown.print_above("ERROR Executor: it failed")
    assert stream.getvalue() == (
        f"{CLEAR_LINE}export: planning  0 s{CLEAR_LINE}ERROR Executor: it failed\nexport: planning  0 s{CLEAR_LINE}"
    )


def test_lines_of_others_are_still_printed_after_the_end(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with progress(clock, Terminal()) as shown:
        pass
    shown.print_above("ERROR Executor: it failed")
    assert capsys.readouterr().err == "ERROR Executor: it failed\n"


def test_without_a_terminal_a_short_job_is_silent_and_a_long_one_prints_plain_lines(clock: Clock):
    stream = io.StringIO()
    with progress(clock, stream) as shown:
        shown.phase(READING)
        for _ in range(4):
            clock.now += SECONDS_BETWEEN_PLAIN_LINES / 2
            shown.advance(100)
            shown.phase(COMMITTING)
            shown.phase(READING)
    assert stream.getvalue().splitlines() == [
        "export: reading   20%  200 of 1,000  7 records/s  2 min 0 s left",
        "export: reading   40%  400 of 1,000  7 records/s  1 min 30 s left",
    ]


def test_all_is_done_where_there_was_nothing_to_do(clock: Clock):
    with progress(clock, Terminal(), 1) as shown:
        shown.phase(READING)
        shown.advance(1)
        assert "100%" in shown.line(WIDE)
