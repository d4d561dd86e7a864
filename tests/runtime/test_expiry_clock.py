"""The time by which data expire follows the wall clock, but for jumps forward."""

from __future__ import annotations

import pytest

from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.expiry_clock import CLOCK_JUMP_HOLD_MS, MAX_CLOCK_STEP_MS, ExpiryClock

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def expiry_clock(clock: ManualClock) -> ExpiryClock:
    return ExpiryClock(clock)


def test_it_is_the_wall_clock_while_that_goes_as_fast_as_the_other_one(clock, expiry_clock):
    for seconds in (0, 1, 60, 8 * 86_400):
        clock.advance(seconds)
        assert expiry_clock.now_ms() == clock.now_ms()


def test_a_clock_that_is_slewed_is_followed(clock, expiry_clock):
    for _ in range(10):
        clock.time_ms += MAX_CLOCK_STEP_MS
        assert expiry_clock.now_ms() == clock.now_ms()


def test_a_jump_forward_is_followed_only_after_a_while_in_which_time_goes_on(clock, expiry_clock, caplog):
    before_ms = clock.now_ms()
    clock.time_ms += 8 * DAY_MS
    assert expiry_clock.now_ms() == before_ms
    clock.advance(CLOCK_JUMP_HOLD_MS / 1000 - 1)
    assert expiry_clock.now_ms() == before_ms + CLOCK_JUMP_HOLD_MS - 1000
    clock.advance(1)
    assert expiry_clock.now_ms() == clock.now_ms()
    assert caplog.messages == [
        "the clock was set forward by 691200 s: nothing expires by it for 600 s, unless it is set back"
    ]


def test_a_jump_that_nobody_saw_is_held_back_from_when_it_is_seen(clock, expiry_clock):
    clock.time_ms += 8 * DAY_MS
    clock.advance(86_400)
    assert expiry_clock.now_ms() == clock.now_ms() - 8 * DAY_MS


def test_a_clock_that_is_set_right_in_time_leaves_nothing_behind(clock, expiry_clock):
    clock.time_ms += 8 * DAY_MS
    expiry_clock.now_ms()
    clock.advance(300)
    clock.time_ms -= 8 * DAY_MS
    assert expiry_clock.now_ms() == clock.now_ms()
    clock.advance(CLOCK_JUMP_HOLD_MS / 1000)
    assert expiry_clock.now_ms() == clock.now_ms()


def test_a_second_jump_begins_the_wait_anew(clock, expiry_clock):
    clock.time_ms += DAY_MS
    expiry_clock.now_ms()
    clock.advance(500)
    clock.time_ms += 300 * DAY_MS
    expiry_clock.now_ms()
    clock.advance(500)
    assert expiry_clock.now_ms() == clock.now_ms() - 301 * DAY_MS
    clock.advance(100)
    assert expiry_clock.now_ms() == clock.now_ms()


def test_a_clock_that_is_set_back_is_followed_at_once(clock, expiry_clock):
    clock.time_ms -= 8 * DAY_MS
    assert expiry_clock.now_ms() == clock.now_ms()
