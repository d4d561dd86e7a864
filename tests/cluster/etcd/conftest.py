"""A modelled etcd in virtual time, and brokers on it. The tests ask for ``autojump_clock`` themselves."""

from __future__ import annotations

import pytest
import trio

from tests.cluster.etcd.etcd_world import World


@pytest.fixture
async def world():
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        nursery.start_soon(end_what_hangs)
        await nursery.start(world.etcd.run)
        yield world
        nursery.cancel_scope.cancel()


async def end_what_hangs() -> None:
    """By a clock that jumps, what waits for ever would never end."""
    await trio.sleep(1000)
    raise AssertionError("it hangs")
