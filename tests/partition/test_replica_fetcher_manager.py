"""Which fetcher fetches which partitions, as leaders, replicas and the number of fetchers change."""

from __future__ import annotations

import pytest
import trio

from tests.partition.replicating_brokers import ReplicatingBroker, ReplicatingBrokers
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.leader_and_isr import LocalReplicaChanges

SOON = 2.0


@pytest.fixture
async def brokers(start_brokers):
    return await start_brokers(log_durability="page-cache")


def fetched_by(broker: ReplicatingBroker) -> dict[tuple[int, int], set[int]]:
    """The partitions by leader and fetcher, of those that have been answered."""
    fetchers = broker.fetchers.statistics().fetchers
    return {(each.leader_id, each.fetcher_id): {key.partition for key in each.lags} for each in fetchers}


async def append_to_each(brokers: ReplicatingBrokers, leader: int, value: bytes, partitions: int = 6) -> None:
    for index in range(partitions):
        await brokers[leader].append(value, index=index)


async def test_partitions_are_spread_over_the_fetchers_of_their_leader_live(brokers, autojump_clock):
    await brokers.decide(1, 5, partitions=6)
    await append_to_each(brokers, 1, b"a")
    await trio.sleep(SOON)
    assert fetched_by(brokers[2]) == {(1, 0): set(range(6))}
    for count in (2, 3, 1):
        brokers[2].fetchers.reconfigure(BrokerConfig({"num.replica.fetchers": str(count)}))
        await append_to_each(brokers, 1, b"%d" % count)
        await trio.sleep(SOON)
        spread = fetched_by(brokers[2])
        assert len(spread) == count
        assert sorted(each for fetched in spread.values() for each in fetched) == list(range(6))
        assert all(len(fetched) == 6 // count for fetched in spread.values())
    for index in range(6):
        assert brokers[2].values(index) == [b"a", b"2", b"3", b"1"]
        assert brokers[2].partition(index).high_watermark == 4


async def test_a_fetcher_ends_with_its_last_partition(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await trio.sleep(SOON)
    await brokers.decide(2, 6)
    await trio.sleep(SOON)
    assert fetched_by(brokers[2]) == {}
    assert list(fetched_by(brokers[1])) == [(2, 0)]
    await brokers.decide(-1, 7)
    assert fetched_by(brokers[1]) == fetched_by(brokers[2]) == {}
    brokers[1].seen.clear()
    await trio.sleep(SOON)
    assert brokers[1].seen == []


async def test_partitions_follow_their_leader_to_another_broker(brokers, autojump_clock):
    await brokers.decide(1, 5, replicas=(1, 2, 3), isr=(1, 2, 3))
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    await brokers.decide(3, 6, replicas=(1, 2, 3), isr=(1, 2, 3))
    await brokers[3].append(b"b")
    await trio.sleep(SOON)
    assert [brokers[each].values() for each in (1, 2, 3)] == [[b"a", b"b"]] * 3
    assert [list(fetched_by(brokers[each])) for each in (1, 2, 3)] == [[(3, 0)], [(3, 0)], []]


async def test_a_topic_that_is_deleted_is_fetched_no_more_and_may_come_again(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    deletion = LocalReplicaChanges(deleted_topics=["orders"])
    for each in (brokers[1], brokers[2]):
        await each.replicas.apply_local_changes(deletion)
    assert fetched_by(brokers[2]) == {}
    await brokers.decide(1, 0, topic_id=bytes(15) + b"2")
    await brokers[1].append(b"new")
    await trio.sleep(SOON)
    assert brokers[2].values() == [b"new"]


async def test_a_partition_whose_log_opens_late_is_fetched_then(brokers, autojump_clock, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(brokers[2].replicas, "find", lambda name: None)
        await brokers.decide(1, 5)
        await brokers[1].append(b"a")
        await trio.sleep(SOON)
        assert brokers[2].values() == []
    await trio.sleep(SOON)
    assert brokers[2].values() == [b"a"]


async def test_lags_and_rates_are_counted(brokers, autojump_clock):
    await brokers.decide(1, 5, partitions=2)
    await append_to_each(brokers, 1, b"a", partitions=2)
    await trio.sleep(30)
    statistics = brokers[2].fetchers.statistics()
    assert (statistics.max_lag, statistics.failed_partitions) == (0, 0)
    # Nothing is new, so each Fetch is held back for half a second.
    assert 1.5 <= statistics.min_fetch_rate <= 2.5
    [fetcher] = statistics.fetchers
    assert (fetcher.leader_id, fetcher.fetcher_id) == (1, 0)
    assert fetcher.fetched_bytes == sum(brokers[1].partition(index).appended_bytes for index in range(2)) > 0
    assert fetcher.requests >= 50
