"""The turns of long work, with tasks that note in which pass of the event loop they had theirs."""

from __future__ import annotations

from collections import Counter

import trio

from trio_broker.concurrency.turns import turns_of_loop


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_of_all_long_work_one_piece_has_a_turn_in_a_pass_and_the_first_comes_first():
    passes, turns = Passes(), []

    async def work(name: int) -> None:
        for _ in range(5):
            await turns_of_loop().wait()
            turns.append((passes.count, name))

    trio.lowlevel.add_instrument(passes)
    async with trio.open_nursery() as nursery:
        for name in range(4):
            nursery.start_soon(work, name)
    assert set(Counter(number for number, _ in turns).values()) == {1}
    order = [name for _, name in turns]
    assert order == order[:4] * 5
    assert not turns_of_loop().is_busy


async def test_what_is_cancelled_before_its_turn_leaves_it_to_the_next():
    done = []

    async def work(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await turns_of_loop().wait()
            done.append(name)

    for cancelled in range(3):
        done.clear()
        scopes = [trio.CancelScope() for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(work, str(number), scope)
                await trio.lowlevel.checkpoint()
            scopes[cancelled].cancel()
        assert len(done) >= 2
        assert not turns_of_loop().is_busy


async def test_small_work_that_has_come_by_then_goes_before_a_turn():
    """Whichever way Trio orders the tasks of a pass."""
    for _ in range(50):
        order: list[str] = []

        async def small(order: list[str] = order) -> None:
            order.append("small")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(small)
            await turns_of_loop().wait()
            order.append("turn")
        assert order == ["small", "turn"]
