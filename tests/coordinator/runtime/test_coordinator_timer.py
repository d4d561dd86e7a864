"""Alarms ring in time, once, and cost nothing to put off."""

from __future__ import annotations

import trio

from trio_broker.concurrency import yield_budget
from trio_broker.coordinator.runtime.timer import MAX_STALE_ENTRIES, CoordinatorTimer


class Bell:
    """Notes who rang, and when."""

    def __init__(self):
        self.rung: list[tuple[object, float]] = []
        self.timers: CoordinatorTimer[object] = CoordinatorTimer(self.ring)

    def ring(self, key):
        self.rung.append((key, trio.current_time()))


async def test_alarms_ring_at_their_deadline_in_order(autojump_clock, nursery):
    bell = Bell()
    nursery.start_soon(bell.timers.run)
    bell.timers.schedule("later", 20.0)
    bell.timers.schedule("sooner", 10.0)
    await trio.sleep(30)
    assert bell.rung == [("sooner", 10.0), ("later", 20.0)]


async def test_an_alarm_rings_earlier_when_it_is_set_earlier(autojump_clock, nursery):
    bell = Bell()
    nursery.start_soon(bell.timers.run)
    bell.timers.schedule("group", 20.0)
    await trio.sleep(1)
    bell.timers.schedule("group", 5.0)
    await trio.sleep(30)
    assert bell.rung == [("group", 5.0)]


async def test_an_alarm_that_is_put_off_stays_where_it_is(autojump_clock, nursery):
    bell = Bell()
    nursery.start_soon(bell.timers.run)
    for deadline in range(10, 1000):
        bell.timers.schedule("group", float(deadline))
    assert len(bell.timers._heap) == 1
    await trio.sleep(2000)
    assert bell.rung == [("group", 10.0)]


async def test_an_alarm_that_is_taken_away_does_not_ring(autojump_clock, nursery):
    bell = Bell()
    nursery.start_soon(bell.timers.run)
    bell.timers.schedule("group", 10.0)
    bell.timers.schedule("group", None)
    await trio.sleep(30)
    assert bell.rung == []


async def test_who_is_rung_may_set_its_alarm_again(autojump_clock, nursery):
    timers: CoordinatorTimer[str] = CoordinatorTimer(lambda key: again(key))
    rung = []

    def again(key):
        rung.append(trio.current_time())
        timers.schedule(key, trio.current_time() + 10 if len(rung) < 3 else None)

    nursery.start_soon(timers.run)
    timers.schedule("group", 10.0)
    await trio.sleep(100)
    assert rung == [10.0, 20.0, 30.0]


async def test_others_have_the_loop_while_many_alarms_ring(autojump_clock, nursery, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    bell = Bell()
    seen = []

    async def other():
        while len(bell.rung) < 100:
            seen.append(len(bell.rung))
            await trio.lowlevel.checkpoint()

    for number in range(100):
        bell.timers.schedule(number, 0.0)
    nursery.start_soon(other)
    nursery.start_soon(bell.timers.run)
    await trio.sleep(1)
    assert len(set(seen)) >= 30


async def test_groups_that_come_and_go_leave_no_alarms_behind(autojump_clock, nursery):
    bell = Bell()
    nursery.start_soon(bell.timers.run)
    bell.timers.schedule("stays", 2000.0)
    for number in range(10 * MAX_STALE_ENTRIES):
        bell.timers.schedule(number, 1800.0)
        bell.timers.schedule(number, None)
    for deadline in range(5 * MAX_STALE_ENTRIES, 1000, -1):
        bell.timers.schedule("set earlier and earlier", float(deadline))
    assert len(bell.timers._heap) <= MAX_STALE_ENTRIES + 4
    await trio.sleep(3000)
    assert bell.rung == [("set earlier and earlier", 1001.0), ("stays", 2000.0)]
