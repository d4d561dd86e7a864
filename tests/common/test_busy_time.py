"""Busy ratios are shares of time, however often they are read."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_broker.common import busy_time
from trio_broker.common.busy_time import BusyTime, Utilization
from trio_broker.network.loop_monitor import LoopMonitor


class Counter:
    """A performance counter that is set by hand."""

    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def counter(monkeypatch: Any) -> Counter:
    counter = Counter()
    monkeypatch.setattr(busy_time, "perf_counter_ns", counter)
    return counter


def test_a_ratio_is_the_share_of_time_since_the_reader_last_looked(counter):
    meter = BusyTime()
    reader = Utilization(meter)
    meter.enter()
    counter.now = 30
    meter.exit()
    assert reader.sample(100) == 0.3
    assert reader.sample(200) == 0.0


def test_a_time_that_the_caller_has_read_counts_like_one_that_is_read_here(counter):
    meter = BusyTime()
    meter.enter_at(10)
    meter.enter_at(20)
    meter.exit_at(35)
    assert meter.busy_until(40) == 30
    meter.exit_at(50)
    assert meter.busy_until(90) == 40


def test_work_still_under_way_counts_up_to_now_and_never_twice(counter):
    meter = BusyTime()
    reader = Utilization(meter)
    meter.enter()
    assert reader.sample(50) == 1.0
    counter.now = 75
    meter.exit()
    assert reader.sample(100) == 0.5


def test_stretches_that_overlap_count_once(counter):
    meter = BusyTime()
    reader = Utilization(meter)
    meter.enter()
    counter.now = 10
    meter.enter()
    counter.now = 30
    meter.exit()
    counter.now = 40
    meter.exit()
    assert reader.sample(80) == 0.5


def test_readers_do_not_disturb_each_other(counter):
    meter = BusyTime()
    often, seldom = Utilization(meter), Utilization(meter)
    meter.enter()
    counter.now = 100
    meter.exit()
    assert [often.sample(now) for now in (100, 200)] == [1.0, 0.0]
    assert seldom.sample(200) == 0.5


def test_no_time_at_all_repeats_the_last_ratio(counter):
    reader = Utilization(BusyTime())
    assert reader.sample(0) == 0.0
    reader.ratio = 0.25
    assert reader.sample(0) == 0.25


async def test_the_loop_monitor_sees_that_the_loop_works():
    monitor = LoopMonitor()
    with monitor.installed():
        reader = Utilization(monitor.busy_time)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        now = reader.seen_at_ns + 10**9
        assert monitor.passes >= 100
        assert 0 < reader.sample(now) <= 1
    passes = monitor.passes
    await trio.lowlevel.checkpoint()
    assert monitor.passes == passes
