"""Consumers read from followers, up to the high watermark that those know (KIP-392)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.isolation_level import IsolationLevel
from tests.leader_append import append_to_leader
from tests.partition.real_logs import LONG_WAITS, batch
from tests.partition.replicating_brokers import ReplicatingBrokers
from trio_broker.common.request_phase import ignore_release
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.replication_config import RACK_AWARE_REPLICA_SELECTOR
from trio_broker.partition.fetch_operation import FetchedPartition, FetchLimits, FetchTarget
from trio_broker.partition.transaction_end import TransactionEnd

SOON = 2.0


@pytest.fixture
def open_brokers(start_brokers):
    async def open_some(**settings: str) -> ReplicatingBrokers:
        made: ReplicatingBrokers = await start_brokers(**{"log_durability": "page-cache", **settings})
        await made.decide(1, 5)
        await trio.sleep(SOON)
        return made

    return open_some


@pytest.fixture
async def brokers(open_brokers):
    """Broker 1 leads and 2 follows; nobody may be sent to it."""
    return await open_brokers()


async def fetch(
    brokers, offset, *, epoch=5, wait=0.0, may=True, isolation_level=IsolationLevel.READ_UNCOMMITTED
) -> FetchedPartition:
    """As a consumer, from the follower."""
    target = FetchTarget(0, offset, 1 << 20, brokers[2].partition(), epoch)
    limits = FetchLimits(wait, 1, 1 << 20, isolation_level, reads_followers=may)
    results = await run_steps(brokers[2].replicas.fetch_steps([target], limits, release_handler=ignore_release))
    result: FetchedPartition = results[0]
    return result


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
async def test_with_a_selector_a_high_watermark_is_sent_at_once(open_brokers, durability, autojump_clock):
    """Otherwise a consumer of a follower would be as late as an empty Fetch of it takes."""
    brokers = await open_brokers(
        log_durability=durability, **LONG_WAITS, replica_selector_class=RACK_AWARE_REPLICA_SELECTOR
    )
    for end_offset in (1, 2):
        await brokers[1].append(b"a")
        await trio.sleep(SOON)
        assert brokers[2].partition().high_watermark == end_offset
    asked = len(brokers[1].seen)
    await trio.sleep(SOON)
    assert len(brokers[1].seen) == asked, "it waits for news"


async def test_without_a_selector_it_is_sent_with_the_next_records(open_brokers, autojump_clock):
    brokers = await open_brokers(**LONG_WAITS)
    for end_offset in (0, 1):
        await brokers[1].append(b"a")
        await trio.sleep(SOON)
        assert brokers[2].partition().high_watermark == end_offset


async def test_what_is_behind_the_high_watermark_of_the_follower_is_not_read(open_brokers, autojump_clock):
    brokers = await open_brokers(**LONG_WAITS)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    assert brokers[2].partition().log_end_offset == 1
    result = await fetch(brokers, 0)
    assert (result.error_code, result.record_count, result.high_watermark) == (ErrorCode.NONE, 0, 0)


async def test_a_consumer_waits_at_a_follower_for_its_high_watermark(brokers, autojump_clock):
    results = []

    async def poll() -> None:
        results.append(await fetch(brokers, 0, wait=60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.sleep(SOON)
        assert not results
        await brokers[1].append(b"a", b"b")
        await trio.sleep(SOON)
        assert [result.record_count for result in results] == [2]


@pytest.mark.parametrize(
    ("offset", "options", "code"),
    [
        (5, {}, ErrorCode.OFFSET_NOT_AVAILABLE),
        (0, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, {"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        (2, {"epoch": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, {"may": False}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, {}, ErrorCode.NONE),
    ],
    ids=["it is behind", "deleted", "another leads by now", "it has yet to read of it", "of an older version", "here"],
)
async def test_a_follower_refuses_what_it_has_not_so_that_the_consumer_asks_the_leader(
    brokers, offset, options, code, autojump_clock
):
    for _ in range(4):
        await brokers[1].append(b"a")
    await trio.sleep(SOON)
    await brokers[1].partition().writer.delete_before(1)
    await trio.sleep(SOON)
    assert (await fetch(brokers, offset, **options)).error_code is code


async def test_a_consumer_that_waits_at_a_follower_learns_of_a_new_leader(brokers, autojump_clock):
    results = []

    async def poll() -> None:
        results.append(await fetch(brokers, 0, wait=60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        await brokers.decide(3, 6, replicas=(1, 2, 3), on=(2,))
        await trio.testing.wait_all_tasks_blocked()
        assert [result.error_code for result in results] == [ErrorCode.FENCED_LEADER_EPOCH]


async def test_a_follower_knows_which_transactions_are_open_and_which_were_aborted(brokers, autojump_clock):
    leader = brokers[1].partition()
    data = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    await append_to_leader(brokers[1].replicas, leader, data)
    await trio.sleep(SOON)
    committed = await fetch(brokers, 0, isolation_level=IsolationLevel.READ_COMMITTED)
    assert (committed.record_count, committed.high_watermark, committed.last_stable_offset) == (0, 1, 0)
    end = TransactionEnd(9, 0, committed=False, coordinator_epoch=0)
    await run_steps(brokers[1].replicas.appends.append_marker_steps(leader, end))
    await trio.sleep(SOON)
    committed = await fetch(brokers, 0, isolation_level=IsolationLevel.READ_COMMITTED)
    assert (committed.record_count, committed.last_stable_offset) == (2, 2)
    assert [(each.producer_id, each.first_offset) for each in committed.aborted_transactions] == [(9, 0)]
