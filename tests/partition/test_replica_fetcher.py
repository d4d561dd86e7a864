"""Followers copy what their leaders have, and cut what those have not, whatever happens in between."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from tests.partition.replicating_brokers import ReplicatingBrokers, epochs_of
from trio_broker.runtime.simulated_clock import SimulatedClock

SOON = 2.0
"""Seconds after which followers have what there is: several fetches, and the pause after an error."""


@pytest.fixture(params=["page-cache", "fsync"])
async def brokers(request, nursery, autojump_clock):
    made = ReplicatingBrokers(SimulatedClock(autojump_clock), {"log_durability": request.param})
    await nursery.start(made.run)
    yield made
    nursery.cancel_scope.cancel()


async def test_records_arrive_with_their_epochs_and_the_high_watermark_follows(brokers):
    await brokers.decide(1, 5)
    await brokers[1].append(b"a", b"b")
    await brokers[1].append(b"c")
    await trio.sleep(SOON)
    leader, follower = brokers[1].partition(), brokers[2].partition()
    assert brokers[2].values() == [b"a", b"b", b"c"]
    assert epochs_of(follower) == epochs_of(leader) == [(5, 0)]
    assert leader.high_watermark == follower.high_watermark == 3
