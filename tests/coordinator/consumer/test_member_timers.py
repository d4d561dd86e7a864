"""The deadlines of members of a consumer group."""

from __future__ import annotations

from trio_broker.coordinator.consumer.member_timers import MAX_DUE_AT_ONCE, DueMember, MemberTimer, MemberTimers


def test_nobody_is_due_before_the_deadline_and_once_at_it():
    timers = MemberTimers()
    timers.start(MemberTimer.SESSION, "a", 10.0)
    assert timers.pop_due(9.9) == []
    assert timers.pop_due(10.0) == [DueMember("a", MemberTimer.SESSION)]
    assert timers.pop_due(10.0) == []
    assert timers.next_deadline() is None


def test_a_deadline_that_is_put_off_may_be_looked_at_early_but_never_late():
    timers = MemberTimers()
    timers.start(MemberTimer.SESSION, "a", 10.0)
    timers.start(MemberTimer.SESSION, "a", 20.0)
    assert timers.next_deadline() == 10.0
    assert timers.pop_due(10.0) == []
    assert timers.next_deadline() == 20.0
    timers.start(MemberTimer.JOIN, "b", 15.0)
    assert timers.next_deadline() == 15.0


def test_a_member_that_is_late_with_two_things_is_named_once():
    timers = MemberTimers()
    timers.start(MemberTimer.REVOCATION, "a", 5.0)
    timers.start(MemberTimer.SESSION, "a", 5.0)
    timers.start(MemberTimer.SYNC, "b", 6.0)
    assert timers.pop_due(6.0) == [DueMember("a", MemberTimer.SESSION), DueMember("b", MemberTimer.SYNC)]


def test_when_many_are_due_together_they_are_named_in_parts_and_the_next_deadline_stays():
    timers = MemberTimers()
    for number in range(MAX_DUE_AT_ONCE + 1):
        timers.start(MemberTimer.SESSION, f"m-{number}", 5.0)
        timers.start(MemberTimer.SYNC, f"m-{number}", 5.0)
    first = timers.pop_due(6.0)
    assert timers.next_deadline() == 5.0
    others = []
    while timers.next_deadline() is not None:
        others.append(timers.pop_due(6.0))
    assert len(first) == MAX_DUE_AT_ONCE
    assert {due.member_id for due in first} | {due.member_id for part in others for due in part} == {
        f"m-{number}" for number in range(MAX_DUE_AT_ONCE + 1)
    }


def test_what_is_cancelled_is_not_due():
    timers = MemberTimers()
    for timer in MemberTimer:
        timers.start(timer, "a", 5.0)
        timers.start(timer, "b", 5.0)
    timers.cancel(MemberTimer.SESSION, "a")
    timers.cancel_all("b")
    assert timers.pop_due(5.0) == [DueMember("a", MemberTimer.REVOCATION)]


def test_a_deadline_that_runs_is_left_alone():
    timers = MemberTimers()
    timers.start_if_absent(MemberTimer.JOIN, "a", 5.0)
    timers.start_if_absent(MemberTimer.JOIN, "a", 3.0)
    assert timers.pop_due(4.0) == []
    assert timers.pop_due(5.0) == [DueMember("a", MemberTimer.JOIN)]
