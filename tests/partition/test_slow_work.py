"""Work that is slow while other work waits is found, however early it came."""

from __future__ import annotations

import trio

from trio_broker.partition.slow_work import SLOW_SECONDS, SlowWork


async def test_what_came_before_the_watch_began_is_found_as_well(nursery, autojump_clock):
    found: list[str] = []
    threads: list[int] = []
    work = SlowWork[str](1, set_threads=threads.append, found=found.append)
    work.add("slow")
    work.add("waits")
    nursery.start_soon(work.run)
    await trio.sleep(1.5 * SLOW_SECONDS)
    assert (found, threads[-1]) == (["slow"], 2)
    nursery.cancel_scope.cancel()
