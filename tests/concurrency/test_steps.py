"""Work that is begun in one task and finished in another."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from trio_broker.concurrency.steps import Steps, run_steps


async def doubled(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number


async def refused() -> int:
    await trio.lowlevel.checkpoint()
    raise ValueError("no")


def sum_of_doubles(*numbers: int) -> Steps[int]:
    total = 0
    for number in numbers:
        total += yield partial(doubled, number)
    return total


async def test_steps_are_given_what_they_waited_for():
    assert await run_steps(sum_of_doubles(1, 2, 3)) == 12


async def test_steps_that_never_wait_are_done_at_once():
    steps = sum_of_doubles()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == 0
    assert await run_steps(sum_of_doubles()) == 0


async def test_steps_that_were_begun_go_on_with_their_wait():
    steps = sum_of_doubles(1, 2)
    assert await run_steps(steps, next(steps)) == 6


async def test_what_a_wait_raises_is_raised_where_the_steps_wait():
    def lenient() -> Steps[str]:
        try:
            yield refused
        except ValueError as error:
            return str(error)
        return "nothing was refused"

    assert await run_steps(lenient()) == "no"

    def strict() -> Steps[int]:
        result: int = yield refused
        return result

    with pytest.raises(ValueError, match="no"):
        await run_steps(strict())


async def test_cancelled_steps_clean_up():
    cleaned = []

    def waiting() -> Steps[None]:
        try:
            yield trio.sleep_forever
        finally:
            cleaned.append(True)

    with trio.CancelScope() as scope:
        scope.cancel()
        await run_steps(waiting())
    assert cleaned == [True]
