"""A timer that is scheduled at any moment runs when it is due."""

from __future__ import annotations

import trio

from tests.scheduling import Race, outcomes
from trio_broker.coordinator.runtime.timer import CoordinatorTimer


async def test_what_is_scheduled_at_any_moment_of_the_wait_for_the_earliest_runs_when_it_is_due(autojump_clock):
    async def new_race() -> Race[None]:
        rung = trio.Event()
        timers: CoordinatorTimer[str] = CoordinatorTimer(lambda key: rung.set())
        timers.schedule("later", trio.current_time() + 100)

        async def wait() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(timers.run)
                await rung.wait()
                nursery.cancel_scope.cancel()

        return Race(wait, lambda: timers.schedule("now", trio.current_time()))

    await outcomes(new_race)
