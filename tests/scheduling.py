"""The order in which Trio runs the tasks that are ready, and races that are played in each of several.

A wait looks at something, registers for its change, and waits. What comes between the look and the registration wakes
nobody. A test of a wait has what ends it happen in each pass of the event loop before and after the wait begins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import attrs
import trio

from trio_broker.concurrency.steps import Steps, run_steps

T = TypeVar("T")

PASSES = 6
"""Of the event loop, by which the event of a race comes before the wait or after its beginning: more than any wait here
takes to begin, and than any event takes to have its effect."""

ORDERS = 3
"""Seeds of the order of tasks that are ready in one pass: Trio has two, which it chooses anew in each."""

RACES = ORDERS * 2 * PASSES
"""How many ``outcomes`` plays."""

STUCK_SECONDS = 1000.0
"""Of a clock that jumps: longer than every wait here. What has no end of its own is stuck then."""


@attrs.frozen
class Race(Generic[T]):
    """``wait`` waits for what ``event`` does."""

    wait: Callable[[], Awaitable[T]]
    event: Callable[[], object]


async def outcomes(new_race: Callable[[], Awaitable[Race[T]]], shortest_missed: float = 0.0) -> list[T]:
    """Play races in each order; what the waits returned, all of them at once when their event had happened.

    For a clock that jumps: a wait that has missed its event ends at the end of its time, or is stuck. Where what
    follows from the event takes time as well, ``shortest_missed`` is that of a wait that has missed it, in seconds.
    """
    found: list[T] = []
    for order in range(ORDERS):
        for passes in range(-PASSES, PASSES):
            with deterministic_scheduling(order), trio.fail_after(STUCK_SECONDS):
                race = await new_race()
                began = trio.current_time()
                found.append(await play(race, passes))
                late = trio.current_time() - began
            assert not late or late < shortest_missed, (
                f"after {passes} passes in order {order} it was missed: the wait ended {late} s later"
            )
    return found


def begun(steps: Steps[T]) -> Callable[[], Awaitable[T]]:
    """Do the first of ``steps`` now, as the turn of a Processor does; what goes on with them, in a task."""
    return partial(run_steps, steps, next(steps))


async def play(race: Race[T], passes: int) -> T:
    """The outcome of a race whose event happens so many passes after the beginning of its wait."""
    found: list[T] = []

    async def wait() -> None:
        found.append(await race.wait())

    async with trio.open_nursery() as nursery:
        if passes < 0:
            race.event()
        else:
            nursery.start_soon(wait)
        for _ in range(abs(passes)):
            await trio.lowlevel.checkpoint()
        if passes < 0:
            nursery.start_soon(wait)
        else:
            race.event()
    [outcome] = found
    return outcome


@contextmanager
def deterministic_scheduling(seed: int) -> Iterator[None]:
    """Let Trio choose among tasks that are ready by a seed of its own random numbers, and not by their addresses."""
    run: Any = trio._core._run
    before, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before
        run._r.setstate(state)
