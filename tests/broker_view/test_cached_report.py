"""Claims about ``CachedReport``: for how long a report is kept, and what ends that."""

from __future__ import annotations

import attrs
import trio

from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.runtime.clock import ManualClock


@attrs.define
class Maker:
    """Makes numbers, each of which takes ``seconds``."""

    clock: ManualClock = attrs.field(factory=ManualClock)
    seconds: float = 0.0
    made: int = 0

    async def make(self) -> int:
        self.made += 1
        number = self.made
        await trio.lowlevel.checkpoint()
        self.clock.advance(self.seconds)
        return number


async def test_a_report_is_made_once_for_all_that_ask_within_its_seconds() -> None:
    maker = Maker()
    report = CachedReport(maker.make, maker.clock, seconds=2.0)
    seen: list[int] = []

    async def ask() -> None:
        seen.append(await report.get())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    maker.clock.advance(1.9)
    await ask()
    maker.clock.advance(0.1)
    await ask()
    assert seen == [1, 1, 1, 1, 2]


async def test_a_report_that_takes_long_is_kept_for_longer() -> None:
    maker = Maker(seconds=1.0)
    report = CachedReport(maker.make, maker.clock, seconds=2.0, pause_factor=9)
    await report.get()
    maker.clock.advance(8.9)
    assert await report.get() == 1
    maker.clock.advance(0.1)
    assert await report.get() == 2


async def test_a_change_ends_a_report_even_one_that_is_being_made() -> None:
    maker = Maker()

    async def make() -> int:
        if not maker.made:
            report.expire()
        return await maker.make()

    report = CachedReport(make, maker.clock, seconds=2.0)
    assert [await report.get(), await report.get(), await report.get()] == [1, 2, 2]
    report.expire()
    assert await report.get() == 3


async def test_a_report_that_is_made_otherwise_takes_the_place_of_the_one_that_is_kept() -> None:
    maker = Maker()
    report = CachedReport(maker.make, maker.clock, seconds=2.0)
    await report.get()

    async def other() -> int:
        return 70

    assert await report.replaced(other) == 70
    assert await report.get() == 70
