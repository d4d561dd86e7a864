"""Rates of the last minute, and an hour of points for the topics that carry most."""

from __future__ import annotations

import pytest

from tests.handlers.loop_rounds import counted_rounds
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch, delete_topics, make_replicas
from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.steps import run_steps
from trio_broker.partition import broker_topic_stats
from trio_broker.partition.broker_topic_stats import BrokerTopicStats, TrafficPoint, TrafficRates
from trio_broker.partition.fetch_operation import FetchLimits, FetchTarget
from trio_broker.runtime.clock import ManualClock

OTHER_ID = bytes(range(16, 32))


@pytest.fixture
async def replicas(tmp_path):
    return make_replicas(tmp_path, log_durability="page-cache")


@pytest.fixture
def clock(replicas) -> ManualClock:
    clock: ManualClock = replicas.clock
    return clock


@pytest.fixture
def stats(replicas) -> BrokerTopicStats:
    stats: BrokerTopicStats = replicas.topic_stats
    return stats


async def append(replicas, partition, *values: bytes) -> int:
    """Append one batch; returns its size."""
    info = await append_to_leader(replicas, partition, batch(*values))
    size: int = info.appended_bytes
    return size


async def fetch(replicas, partition, offset: int) -> None:
    target = FetchTarget(0, offset, 1 << 20, partition)
    limits = FetchLimits(max_wait_seconds=0, min_bytes=1, max_bytes=1 << 20)
    await run_steps(replicas.fetch_steps([target], limits, release_handler=lambda: None))


async def snapshot(replicas, clock, seconds: float = 10) -> None:
    clock.advance(seconds)
    await replicas.topic_stats.take_snapshot(replicas.topics.values())


async def test_a_partition_counts_what_is_appended_and_what_is_fetched(replicas):
    [partition] = await add_topic(replicas)
    size = await append(replicas, partition, b"a", b"b", b"c")
    await fetch(replicas, partition, 0)
    assert (partition.appended_records, partition.appended_bytes) == (3, size)
    assert (partition.fetched_records, partition.fetched_bytes) == (3, size)


async def test_a_fetch_from_the_middle_of_a_batch_counts_the_records_from_there_on(replicas):
    [partition] = await add_topic(replicas)
    size = await append(replicas, partition, b"a", b"b", b"c")
    await fetch(replicas, partition, 2)
    assert (partition.fetched_records, partition.fetched_bytes) == (1, size)


async def test_a_repeated_batch_is_not_counted(replicas):
    [partition] = await add_topic(replicas)
    records = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for _ in range(2):
        await append_to_leader(replicas, partition, batch(b"a", **records))
    assert partition.appended_records == 1


async def test_rates_are_current_before_the_first_snapshot(replicas, clock, stats):
    [partition] = await add_topic(replicas)
    size = await append(replicas, partition, b"a", b"b")
    clock.advance(4)
    assert stats.rates([partition]) == TrafficRates(records_in=0.5, bytes_in=size / 4)


async def test_what_was_more_than_a_minute_ago_counts_no_more(replicas, clock, stats):
    [partition] = await add_topic(replicas)
    size = await append(replicas, partition, b"a")
    for _ in range(6):
        await snapshot(replicas, clock)
    assert stats.rates([partition]).bytes_in == pytest.approx(size / 60)
    await snapshot(replicas, clock)
    assert stats.rates([partition]) == TrafficRates()


async def test_a_topic_s_points_are_its_rates_between_snapshots(replicas, clock, stats):
    partitions = await add_topic(replicas, partitions=2)
    sizes = [await append(replicas, partition, b"a") for partition in partitions]
    await snapshot(replicas, clock)
    await snapshot(replicas, clock)
    assert stats.history(partitions[0].topic_id) == [
        TrafficPoint(NOW_MS + 10_000, TrafficRates(records_in=0.2, bytes_in=sum(sizes) / 10)),
        TrafficPoint(NOW_MS + 20_000, TrafficRates()),
    ]


async def test_a_topic_without_traffic_has_no_points(replicas, clock, stats):
    [partition] = await add_topic(replicas)
    await snapshot(replicas, clock)
    assert stats.history(partition.topic_id) == ()


async def test_points_are_kept_for_an_hour(replicas, clock, stats):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a")
    for _ in range(broker_topic_stats.HISTORY_POINTS + 1):
        await snapshot(replicas, clock)
    points = stats.history(partition.topic_id)
    assert len(points) == broker_topic_stats.HISTORY_POINTS
    assert points[0].at_ms == NOW_MS + 20_000


async def test_points_are_kept_for_the_topics_that_carry_most(replicas, clock, stats, monkeypatch):
    monkeypatch.setattr(broker_topic_stats, "MAX_TOPICS_WITH_HISTORY", 1)
    [small] = await add_topic(replicas, "small")
    [large] = await add_topic(replicas, "large", topic_id=OTHER_ID)
    await append(replicas, small, b"a")
    await append(replicas, large, b"a" * 1000)
    await snapshot(replicas, clock)
    assert (len(stats.history(small.topic_id)), len(stats.history(large.topic_id))) == (0, 1)


async def test_a_deleted_topic_is_forgotten(replicas, clock, stats):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a")
    await snapshot(replicas, clock)
    await delete_topics(replicas, "orders")
    await snapshot(replicas, clock)
    assert stats.history(partition.topic_id) == ()


async def test_other_tasks_run_while_the_partitions_of_one_topic_are_counted(replicas, clock, stats, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    partitions = await add_topic(replicas, partitions=20)
    for partition in partitions:
        await append(replicas, partition, b"a")
    async with counted_rounds() as rounds:
        await snapshot(replicas, clock)
    assert rounds.count >= len(partitions)
