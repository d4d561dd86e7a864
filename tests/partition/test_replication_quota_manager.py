"""Throttled replicas are copied at the rate that is allowed, and no slower; others are not held up."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from tests.partition.real_logs import make_log, make_partition
from tests.partition.replicating_brokers import ReplicatingBrokers
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope
from trio_broker.partition.replication_quota_manager import leader_quota
from trio_broker.runtime.clock import ManualClock

RATE = 2_000
BATCHES = 40
VALUE = b"v" * 1000


@pytest.fixture
async def brokers(start_brokers):
    return await start_brokers(log_durability="page-cache", replica_fetch_max_bytes="1000")


def set_rates(brokers: ReplicatingBrokers, rate: int) -> None:
    values = {f"{side}.replication.throttled.rate": str(rate) for side in ("leader", "follower")}
    for each in brokers.brokers.values():
        each.replicas.config.set_dynamic(ConfigScope.BROKER, values)


async def lag_behind(brokers: ReplicatingBrokers, **options: Any) -> None:
    """Broker 1 has so many batches in each of two partitions, and broker 2 begins to follow."""
    await brokers.decide(1, 5, on=(1,), partitions=2, **options)
    for index in (0, 1):
        for _ in range(BATCHES):
            await brokers[1].append(VALUE, index=index)
    await brokers.decide(1, 5, on=(2,), partitions=2, **options)


async def seconds_to_copy(brokers: ReplicatingBrokers, index: int) -> float:
    began, follower = trio.current_time(), brokers[2].partition(index)
    for _ in range(1000):
        if follower.log_end_offset == BATCHES:
            break
        await trio.sleep(0.1)
    return trio.current_time() - began


@pytest.mark.parametrize(
    ("side", "replicas"), [("leader", "0:1"), ("leader", "*"), ("follower", "0:2"), ("follower", "0:2,1:2")]
)
async def test_what_is_throttled_is_copied_at_the_rate_that_is_allowed(brokers, autojump_clock, side, replicas):
    set_rates(brokers, RATE)
    await lag_behind(brokers, isr=(1,), **{f"{side}_replication_throttled_replicas": replicas})
    partitions = 2 if replicas in ("*", "0:2,1:2") else 1
    size = brokers[1].partition().log.size_bytes * partitions
    seconds = max([await seconds_to_copy(brokers, index) for index in range(partitions)])
    assert 0.8 * size / RATE < seconds < 1.2 * size / RATE


async def test_a_replica_that_is_not_throttled_is_copied_meanwhile(brokers, autojump_clock):
    set_rates(brokers, RATE)
    await lag_behind(brokers, isr=(1,), follower_replication_throttled_replicas="0:2")
    assert await seconds_to_copy(brokers, 1) < 5
    assert brokers[2].partition(0).log_end_offset < BATCHES // 2


async def test_a_leader_throttles_none_that_is_in_sync(brokers, autojump_clock):
    set_rates(brokers, RATE)
    await lag_behind(brokers, isr=(1, 2), leader_replication_throttled_replicas="*")
    assert await seconds_to_copy(brokers, 0) < 5


async def test_a_quota_that_is_taken_away_counts_no_more(brokers, autojump_clock):
    set_rates(brokers, 1)
    await lag_behind(brokers, isr=(1,), leader_replication_throttled_replicas="*")
    await trio.sleep(60)
    assert brokers[2].partition().log_end_offset < BATCHES
    set_rates(brokers, 10**9)
    assert await seconds_to_copy(brokers, 0) < 5


def test_the_rate_is_that_of_the_last_windows(tmp_path):
    clock, config = ManualClock(), BrokerConfig({"node.id": "1", "replication.quota.window.num": "3"})
    quota, partition = leader_quota(clock, config), make_partition(make_log(tmp_path))
    quota.record(partition, 1000)
    assert quota.rate.per_second == 0, "it is not throttled"
    partition.log.config = attrs.evolve(config.log, leader_replication_throttled_replicas=("*",))
    quota.record(partition, 1000)
    assert quota.rate.per_second == 1000
    clock.advance(2)
    quota.record(partition, 500)
    assert quota.rate.per_second == 750
    clock.advance(1)
    assert quota.rate.per_second == 500
    clock.advance(2)
    assert quota.rate.per_second == 0
