"""A lock that is free most of the time."""

from __future__ import annotations

import trio
import trio.testing

from trio_broker.concurrency.free_lock import FreeLock


async def test_one_holds_it_at_a_time_in_the_order_in_which_they_asked():
    lock, order = FreeLock(), []

    async def take(name):
        async with lock:
            order.append(name)
            await trio.lowlevel.checkpoint()
            order.append(name)

    async with trio.open_nursery() as nursery, lock:
        for name in "abc":
            nursery.start_soon(take, name)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []
    assert order == list("aabbcc")


async def test_one_that_is_cancelled_while_it_waits_leaves_it_to_the_next():
    lock, order = FreeLock(), []

    async def take(name, scope):
        with scope:
            async with lock:
                order.append(name)

    async with trio.open_nursery() as nursery, lock:
        gone, kept = trio.CancelScope(), trio.CancelScope()
        nursery.start_soon(take, "gone", gone)
        nursery.start_soon(take, "kept", kept)
        await trio.testing.wait_all_tasks_blocked()
        gone.cancel()
        await trio.testing.wait_all_tasks_blocked()
    assert order == ["kept"]


async def test_to_take_it_when_it_is_free_is_no_checkpoint():
    lock = FreeLock()
    with trio.testing.assert_no_checkpoints():
        async with lock:
            pass
