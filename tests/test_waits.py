"""Waits for what is real go on where the machine was short of CPU, and end all the same."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from scripts.pressure import EXTENDED, EXTENDED_WAITS, IN_VAIN
from tests import waits as module
from tests.waits import (
    MOST_TIMES,
    TimeLeft,
    communicate,
    fail_after,
    killed_after,
    run_program,
    scaled,
    within,
)


@attrs.define
class Machine:
    """A machine whose time passes when somebody sleeps, and which is as slow as a test likes."""

    now: float = 100.0
    stalled: float | None = 0.0
    slowdown: float = 1.0
    loops: int = 0

    def sleep(self, seconds: float, *, pressure: float = 0.0) -> None:
        self.now += seconds
        if self.stalled is not None:
            self.stalled += seconds * pressure

    def timed_loop(self) -> float:
        self.loops += 1
        return self.slowdown

    def time_left(self, seconds: float) -> TimeLeft:
        return TimeLeft(seconds, lambda: self.now, lambda: self.stalled, self.timed_loop)


@pytest.fixture(autouse=True)
def _notes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits of these tests are none of the run's."""
    monkeypatch.delenv(EXTENDED_WAITS, raising=False)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def starved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is short of CPU for ever."""
    monkeypatch.setattr(module, "slowdown", lambda: 1000.0)
    monkeypatch.setattr(TimeLeft, "_times", lambda self: 1000.0)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeLeft, "_times", lambda self: 1.0)


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file for waits that were extended."""
    monkeypatch.setenv(EXTENDED_WAITS, str(tmp_path / "waits"))
    return tmp_path / "waits"


# ---- how long a wait may take


def test_on_a_quiet_machine_a_wait_takes_the_seconds_of_the_test(machine):
    time_left = machine.time_left(60)
    machine.sleep(59, pressure=0.1)
    assert time_left.left_seconds == 1
    assert machine.loops == 0, "nothing is timed before the wait is over"
    machine.sleep(1)
    assert time_left.is_over
    assert not time_left.is_extended


def test_a_wait_during_which_others_had_the_cpu_goes_on_for_as_long_as_they_had_it(machine):
    time_left = machine.time_left(60)
    machine.sleep(60, pressure=0.8)
    assert time_left.left_seconds == pytest.approx(48)
    machine.sleep(48)
    assert time_left.is_over


def test_a_wait_goes_on_by_as_much_as_the_machine_is_slower(machine):
    time_left = machine.time_left(60)
    machine.slowdown = 4
    machine.sleep(60, pressure=1)
    assert time_left.left_seconds == 180
    machine.slowdown = 6
    machine.sleep(180, pressure=1)
    assert time_left.left_seconds == 120


def test_no_wait_takes_more_than_the_most(machine):
    time_left = machine.time_left(60)
    machine.slowdown = 1000
    machine.sleep(60, pressure=1)
    machine.sleep(time_left.left_seconds, pressure=1)
    assert time_left.is_over
    assert machine.now == 100 + MOST_TIMES * 60


def test_what_was_granted_is_not_taken_back(machine):
    time_left = machine.time_left(60)
    machine.slowdown = 4
    machine.sleep(60, pressure=1)
    assert not time_left.is_over
    machine.slowdown = 1
    assert time_left.left_seconds == 180


def test_where_nobody_counts_the_pressure_the_loop_alone_is_asked(machine):
    machine.stalled = None
    machine.slowdown = 3
    time_left = machine.time_left(60)
    machine.sleep(60)
    assert time_left.left_seconds == 120


def test_who_keeps_the_time_itself_gets_it_by_the_speed_of_now(monkeypatch):
    monkeypatch.setattr(module, "_latest", module._Latest())
    monkeypatch.setattr(module, "slowdown", lambda: 3.0)
    assert scaled(20) == 60
    monkeypatch.setattr(module, "slowdown", lambda: 1.0)
    assert scaled(20) == 60, "the loop is not timed for each of many connections"
    monkeypatch.setattr(module, "_latest", module._Latest(slowdown=0))
    monkeypatch.setattr(module, "slowdown", lambda: 1000.0)
    assert scaled(20) == 20 * MOST_TIMES


# ---- what waits


def test_a_wait_that_is_extended_is_noted_once(starved, waits):
    assert within(lambda seconds: seconds > 0.01 or pass_in_vain(seconds), 0.01)
    assert waits.read_text() == f"{EXTENDED}\n"


def test_a_wait_that_was_extended_in_vain_is_noted_as_well(starved, waits):
    assert not within(pass_in_vain, 0.01)
    assert waits.read_text() == f"{EXTENDED}\n{IN_VAIN}\n"


def test_a_wait_that_is_not_extended_leaves_no_note(idle, waits):
    assert not within(pass_in_vain, 0.01)
    assert not waits.exists()


def test_a_call_that_returned_nothing_in_its_time_is_called_again(starved):
    answers: queue.Queue[int] = queue.Queue()
    calls: list[float] = []

    def get(seconds: float) -> int:
        if calls:
            answers.put(7)
        calls.append(seconds)
        return answers.get(timeout=seconds)

    assert within(get, 0.02) == 7
    assert len(calls) == 2


def test_a_call_that_failed_before_its_time_is_not_called_again(starved):
    calls = []

    def fail(seconds: float) -> int:
        calls.append(seconds)
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        within(fail, 20)
    assert len(calls) == 1


@pytest.mark.parametrize("nothing", [None, False, []])
def test_a_call_that_is_always_in_vain_returns_what_it_returned(idle, nothing):
    def wait(seconds: float) -> Any:
        pass_in_vain(seconds)
        return nothing

    assert within(wait, 0.01) == nothing


def pass_in_vain(seconds: float) -> bool:
    return threading.Event().wait(seconds)


def test_a_program_that_is_late_loses_neither_its_input_nor_its_output(starved):
    late = "import sys, time; print(sys.stdin.read(), flush=True); time.sleep(0.3); print('end'); sys.exit(3)"
    completed = run_program([sys.executable, "-c", late], 0.2, input="given", capture_output=True, text=True)
    assert (completed.stdout, completed.returncode) == ("given\nend\n", 3)


def test_a_program_that_hangs_is_killed(idle):
    with pytest.raises(subprocess.TimeoutExpired):
        run_program([sys.executable, "-c", "import time; time.sleep(1000)"], 0.1)


def test_a_program_that_must_succeed_raises(idle):
    with pytest.raises(subprocess.CalledProcessError):
        run_program([sys.executable, "-c", "raise SystemExit(1)"], 60, check=True)


def test_a_process_is_killed_when_the_block_takes_too_long(idle):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        with killed_after(process, 0.1):
            process.wait(60)
        assert process.returncode < 0


def test_a_process_is_left_alone_when_the_block_ends_in_time(idle):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with killed_after(process, 60):
            pass
        communicate(process, 60, b"\n")
        assert process.returncode == 0


async def test_a_block_that_takes_too_long_fails(idle):
    with pytest.raises(trio.TooSlowError), fail_after(0.01):
        await trio.sleep_forever()


async def test_a_block_that_is_late_on_a_slow_machine_is_waited_for(starved):
    with fail_after(0.1):
        await trio.sleep(0.3)


async def test_a_block_that_hangs_on_a_slow_machine_fails(starved, waits):
    late = r"instead of 0\.01 s, since the machine was short of CPU"
    with pytest.raises(trio.TooSlowError, match=late), fail_after(0.01):
        await trio.sleep_forever()
    assert waits.read_text() == f"{EXTENDED}\n{IN_VAIN}\n"


async def test_the_error_of_a_block_is_its_own(idle):
    with pytest.raises(ZeroDivisionError), fail_after(60):
        raise ZeroDivisionError


async def test_a_virtual_clock_extends_nothing(autojump_clock):
    with pytest.raises(trio.TooSlowError), fail_after(1000):
        await trio.sleep_forever()
    assert trio.current_time() < 1001


def test_the_loop_says_that_a_machine_is_slow_or_is_not():
    assert module.slowdown() >= 1


def test_a_wait_says_how_long_it_was(machine):
    time_left = machine.time_left(60)
    machine.sleep(30)
    assert str(time_left) == "30 s"
    machine.slowdown = 2
    machine.sleep(70, pressure=1)
    assert not time_left.is_over
    assert str(time_left) == "100 s instead of 60 s, since the machine was short of CPU"
