"""Delayed requests wake once, for the right reason, or when their time is over."""

from __future__ import annotations

from functools import partial

import trio
import trio.testing

from trio_broker.partition.delayed_operations import (
    PRUNED_ABOVE,
    DelayedFetch,
    DelayedOperations,
    DelayedProduce,
    ExpirationReaper,
)
from trio_broker.partition.state import Advance


async def test_waiting_ends_when_the_time_is_over(autojump_clock):
    begin = trio.current_time()
    assert not await DelayedFetch(1).wait(1.5)
    assert trio.current_time() - begin == 1.5


async def test_a_wake_before_the_wait_counts(autojump_clock):
    delayed = DelayedFetch(1)
    delayed.wake()
    begin = trio.current_time()
    assert await delayed.wait(10)
    assert trio.current_time() == begin


async def test_a_produce_wakes_when_the_last_of_its_partitions_is_done(autojump_clock):
    delayed = DelayedProduce(1, ExpirationReaper())
    delayed.partitions_pending = 2
    delayed.partition_completed()
    begin = trio.current_time()
    await delayed.wait()
    assert trio.current_time() - begin == 1, "its time was over"
    delayed.partition_completed()
    await delayed.wait()
    assert trio.current_time() - begin == 1


async def test_what_waits_without_a_task_is_called_once_by_the_last_partition(autojump_clock, nursery):
    reaper = ExpirationReaper()
    nursery.start_soon(reaper.run)
    calls: list[float] = []
    delayed = DelayedProduce(10, reaper)
    delayed.partitions_pending = 2
    delayed.when_complete(lambda: calls.append(trio.current_time()))
    delayed.partition_completed()
    assert not calls
    begin = trio.current_time()
    delayed.partition_completed()
    assert calls == [begin]
    await trio.sleep(20)
    assert calls == [begin]


async def test_operations_without_a_task_end_in_the_order_of_their_deadlines(autojump_clock, nursery):
    reaper = ExpirationReaper()
    nursery.start_soon(reaper.run)
    begin = trio.current_time()
    ended: list[tuple[float, float]] = []
    for seconds in (5.0, 2.0, 7.0, 0.0, 2.0, -1.0):
        delayed = DelayedProduce(seconds, reaper)
        delayed.partitions_pending = 1
        delayed.when_complete(partial(lambda seconds: ended.append((seconds, trio.current_time() - begin)), seconds))
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(10)
    assert ended == [(0.0, 0.0), (-1.0, 0.0), (2.0, 2.0), (2.0, 2.0), (5.0, 5.0), (7.0, 7.0)]


async def test_deadlines_of_completed_operations_do_not_pile_up(autojump_clock):
    reaper = ExpirationReaper()
    for number in range(20 * PRUNED_ABOVE):
        delayed = DelayedProduce(30, reaper)
        delayed.partitions_pending = 1
        delayed.when_complete(lambda: None)
        if number % 100:
            delayed.partition_completed()
    assert len(reaper._heap) <= PRUNED_ABOVE


async def test_a_fetch_wakes_when_enough_bytes_have_come(autojump_clock):
    delayed = DelayedFetch(min_bytes=100)
    delayed.advanced(Advance.DECIDED, 60)
    assert not await delayed.wait(1)
    delayed.advanced(Advance.UNDECIDED, 60)
    assert await delayed.wait(1)


async def test_a_fetch_of_committed_records_does_not_wake_for_those_of_an_open_transaction(autojump_clock):
    delayed = DelayedFetch(min_bytes=100, reads_committed=True)
    delayed.advanced(Advance.UNDECIDED, 1000)
    assert not await delayed.wait(1)
    delayed.advanced(Advance.RELEASED, 1)
    assert await delayed.wait(1)


async def test_a_time_below_zero_is_no_time(autojump_clock):
    assert not await DelayedFetch(1).wait(-1)


def test_fetches_are_woken_in_the_order_in_which_they_came():
    """What a broker does next must not follow from where its objects lie in memory."""
    woken: list[int] = []

    class NumberedFetch(DelayedFetch):
        def __init__(self, number: int) -> None:
            super().__init__(1)
            self.number = number

        def wake(self) -> None:
            woken.append(self.number)

    delayed = DelayedOperations()
    fetches = [NumberedFetch(number) for number in range(200)]
    for fetch in fetches:
        delayed.add_fetch(fetch)
    delayed.remove_fetch(fetches[7])
    delayed.wake_fetches()
    assert woken == [number for number in range(200) if number != 7]
