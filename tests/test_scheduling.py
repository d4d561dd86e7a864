"""Races find a wait that registers too late, and no other."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio

from tests.scheduling import PASSES, Race, outcomes


@attrs.define(eq=False)
class Door:
    """Wakes those who are registered."""

    is_open: bool = False
    _opened: trio.Event = attrs.field(factory=trio.Event)

    def open(self) -> None:
        self.is_open = True
        self._opened.set()

    async def wait(self, *, passes: int) -> None:
        """Look; wait for the next opening, with so many passes of the event loop in between."""
        if not self.is_open:
            for _ in range(passes):
                await trio.lowlevel.checkpoint()
            self._opened = trio.Event()
            with trio.move_on_after(60):
                await self._opened.wait()


async def race(*, passes: int) -> Race[None]:
    door = Door()
    return Race(partial(door.wait, passes=passes), door.open)


async def test_a_wait_that_registers_in_the_turn_in_which_it_looks_misses_nothing(autojump_clock):
    await outcomes(partial(race, passes=0))


@pytest.mark.parametrize("passes", [1, PASSES // 2])
async def test_a_wait_that_registers_later_is_found(autojump_clock, passes):
    with pytest.raises(AssertionError, match="it was missed"):
        await outcomes(partial(race, passes=passes))


async def test_a_wait_without_an_end_is_found(autojump_clock):
    with pytest.raises(trio.TooSlowError):
        await outcomes(lambda: never_ending())


async def never_ending() -> Race[None]:
    return Race(trio.sleep_forever, lambda: None)
