"""Parked requests wake once, for the right reason, or when their time is over."""

from __future__ import annotations

import trio

from trio_broker.replication.delayed_operations import DelayedFetch, DelayedOperation, DelayedProduce


async def test_waiting_ends_when_the_time_is_over(autojump_clock):
    begin = trio.current_time()
    assert not await DelayedOperation().wait(1.5)
    assert trio.current_time() - begin == 1.5


async def test_a_wake_before_the_wait_counts(autojump_clock):
    parked = DelayedOperation()
    parked.wake()
    begin = trio.current_time()
    assert await parked.wait(10)
    assert trio.current_time() == begin


async def test_a_produce_wakes_when_the_last_of_its_partitions_is_done(autojump_clock):
    parked = DelayedProduce()
    parked.partitions_pending = 2
    parked.partition_completed()
    assert not await parked.wait(1)
    parked.partition_completed()
    assert await parked.wait(1)


async def test_a_fetch_wakes_when_enough_bytes_have_come(autojump_clock):
    parked = DelayedFetch(bytes_missing=100)
    parked.bytes_arrived(60)
    assert not await parked.wait(1)
    parked.bytes_arrived(60)
    assert await parked.wait(1)


async def test_a_time_below_zero_is_no_time(autojump_clock):
    assert not await DelayedOperation().wait(-1)
