"""A lag report shows every group with its lag, whatever there are, and yields to the event loop meanwhile."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import trio

from tests.compat.group_requests import assignment, first_beat
from tests.coordinator.coordinator_harness import no_park, running_coordinator
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch
from tests.waits import fail_after
from trio_broker.coordinator.reporting import lag, lag_collector
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.partition.record_deletion import HIGH_WATERMARK


@pytest.fixture
async def broker(tmp_path):
    async with running_coordinator(tmp_path, log_durability="page-cache") as opened:
        await opened.create_topic("t")
        await opened.groups.find("g")
        yield opened


async def append(broker, *values: bytes, timestamp: int | None = None) -> None:
    """Append a batch to the topic, now."""
    partition = broker.services.replicas.topic("t").partitions[0]
    records = batch(*values, timestamp=broker.clock.now_ms() if timestamp is None else timestamp)
    await append_to_leader(broker.services.replicas, partition, records)


async def loaded(broker) -> None:
    """Wait until the groups have been read back."""
    with fail_after(10):
        while broker.groups.statistics().loading:
            await trio.lowlevel.checkpoint()


async def lines(broker) -> dict[str, tuple[int | None, float | None]]:
    """The lag of each group."""
    lag_report = await broker.groups.lag_report()
    return {group.group.group_id: (group.lag_records, group.lag_seconds) for group in lag_report.groups}


async def test_each_group_is_reported_with_its_lag(broker):
    await append(broker, b"a", b"b")
    broker.advance(40)
    await append(broker, b"c")
    broker.advance(20)
    for group_id, offset in (("behind", 1), ("nearly", 2), ("caught up", 3), ("ahead", 7)):
        await broker.commit(group_id, offset)
    assert await lines(broker) == {
        "ahead": (0, 0.0),
        "behind": (2, 60.0),
        "caught up": (0, 0.0),
        "nearly": (1, 20.0),
    }


async def test_what_was_deleted_before_a_group_has_read_it_is_nothing_to_wait_for(broker):
    await append(broker, b"a", b"b")
    await broker.commit("behind", 1)
    await broker.services.replicas.record_deletion.delete(
        {broker.services.replicas.topic("t").partition(0): HIGH_WATERMARK}
    )
    broker.advance(60)
    assert (await lines(broker))["behind"][1] == 0.0


async def test_every_report_has_the_lag_of_each_group_by_topic(broker):
    await append(broker, b"a", b"b")
    broker.advance(40)
    await broker.commit("reader", 1)
    await broker.commit("reader", 5, topic="gone")
    lag_report = await broker.groups.lag_report()
    [group] = lag_report.groups
    topics = {each.topic: each for each in lag_report.topics}
    assert all(each.group is group for each in lag_report.topics)
    assert (topics["t"].lag_records, topics["t"].lag_seconds, topics["t"].partition_count) == (1, 40.0, 1)
    assert (topics["gone"].lag_records, topics["gone"].partitions_without_lag) == (None, 1)
    assert (group.lag_records, group.partition_count, group.partitions_without_lag) == (1, 2, 1)


async def test_a_group_is_reported_with_what_it_is(broker):
    joined = await broker.settle("workers")
    await broker.commit("workers", 0, member=joined)
    lag_report = await broker.groups.lag_report()
    [lag] = lag_report.groups
    group = lag.group
    assert (group.group_id, group.type.value, group.state, group.protocol_type, group.protocol) == (
        "workers",
        "classic",
        "Stable",
        "consumer",
        "range",
    )
    assert (group.generation, group.member_count, lag.partition_count) == (1, 1, 1)
    assert lag.last_rebalance_at_ms is not None
    assert lag_report.is_complete


async def test_a_group_without_commits_has_no_lag(broker):
    await broker.settle("workers")
    assert await lines(broker) == {"workers": (None, None)}


async def test_partitions_of_a_classic_member_without_a_commit_are_counted_as_unknown(broker):
    joined = await broker.enter("workers")
    await broker.sync(joined, "workers", **{joined.member_id: assignment(t=[0], wide=[0, 1, 2])})
    await broker.commit("workers", 0, member=joined)
    [group] = (await broker.groups.lag_report()).groups
    assert (group.partition_count, group.partitions_without_lag, group.lag_records) == (4, 3, 0)


async def test_partitions_of_a_consumer_group_s_member_without_a_commit_are_counted_as_unknown(broker):
    await broker.create_topic("wide", 3)
    request = first_beat("workers", "a", ["t", "wide"])
    joined = await broker.groups.call(request.group_id, request, RequestContext("c", "/127.0.0.1", 1), no_park)
    assert joined.error_code == 0
    member = SimpleNamespace(member_id="a", generation_id=joined.member_epoch)
    await broker.commit("workers", 0, member=member)
    [group] = (await broker.groups.lag_report()).groups
    assert (group.partition_count, group.partitions_without_lag, group.lag_records) == (4, 3, 0)


async def test_an_assignment_that_is_not_a_consumer_s_counts_nothing(broker):
    joined = await broker.enter("workers", protocol_type="connect")
    await broker.sync(joined, "workers", **{joined.member_id: assignment(t=[0])})
    [group] = (await broker.groups.lag_report()).groups
    assert (group.partition_count, group.partitions_without_lag) == (0, 0)


async def test_commits_in_a_topic_that_is_gone_are_counted_without_lag(broker):
    await broker.commit("g", 3, topic="elsewhere")
    lag_report = await broker.groups.lag_report(with_partitions=True)
    assert (lag_report.groups[0].partition_count, lag_report.groups[0].lag_records) == (1, None)
    assert lag_report.partitions[0].lag.log_end_offset is None


async def test_partitions_are_reported_only_where_they_are_asked_for(broker):
    await append(broker, b"a")
    await broker.commit("g", 0)
    assert (await broker.groups.lag_report()).partitions == ()
    [partition] = (await broker.groups.lag_report(with_partitions=True)).partitions
    assert (partition.group_id, partition.lag.topic, partition.lag.partition, partition.lag.lag_records) == (
        "g",
        "t",
        0,
        1,
    )


async def test_while_groups_are_loaded_the_report_says_that_it_is_not_complete(broker):
    await broker.commit("g", 0)
    shards = broker.groups.runtime.shards.values()
    loading = next(shard for shard in shards if "g" in shard.machine.groups)
    loading.state = type(loading.state).LOADING
    lag_report = await broker.groups.lag_report()
    assert (lag_report.is_complete, lag_report.groups) == (False, ())


async def test_after_a_restart_the_log_is_asked_for_times_a_few_at_a_time_and_never_twice(tmp_path, monkeypatch):
    asked = []
    lookup = lag.batch_timestamps

    def counting(records):
        asked.append(len(records))
        return lookup(records)

    monkeypatch.setattr(lag_collector, "batch_timestamps", counting)
    monkeypatch.setattr(lag_collector, "MAX_TIMESTAMP_LOOKUPS", 2)
    async with running_coordinator(tmp_path, log_durability="page-cache") as broker:
        await broker.create_topic("t")
        await broker.groups.find("g")
        for number in range(5):
            await append(broker, b"a")
            await broker.commit(f"g{number}", number)
            await broker.commit(f"h{number}", number)
        await append(broker, b"a")
    async with running_coordinator(tmp_path, clock=broker.clock, log_durability="page-cache") as broker:
        await loaded(broker)
        broker.advance(60)
        known = []
        for _ in range(4):
            found = await lines(broker)
            known.append(sum(seconds is not None for _, seconds in found.values()))
        assert known == [4, 8, 10, 10]
        assert asked == [2, 2, 1]
        assert {seconds for _, seconds in found.values()} == {60.0}


async def test_times_that_nobody_waits_for_any_more_are_forgotten(tmp_path):
    async with running_coordinator(tmp_path, log_durability="page-cache") as broker:
        await broker.create_topic("t")
        await broker.groups.find("g")
        await append(broker, b"a", b"b")
        await broker.commit("g", 0)
    async with running_coordinator(tmp_path, clock=broker.clock, log_durability="page-cache") as broker:
        await loaded(broker)
        collector = broker.groups._lag_collector
        await broker.groups.lag_report()
        assert len(collector._times_ms) == 1
        await broker.commit("g", 2)
        await broker.groups.lag_report()
        assert collector._times_ms == {}


async def test_collecting_many_partitions_yields(broker, monkeypatch):
    monkeypatch.setattr(lag_collector, "COLLECTION_YIELD_SECONDS", -1.0)
    for number in range(40):
        await broker.commit(f"g{number}", 0)
    turns = itertools.count()
    async with trio.open_nursery() as nursery:

        async def other() -> None:
            while True:
                next(turns)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(other)
        await broker.groups.lag_report()
        nursery.cancel_scope.cancel()
    assert next(turns) >= 40


async def test_groups_that_are_deleted_during_a_collection_do_not_harm_it(broker, monkeypatch):
    monkeypatch.setattr(lag_collector, "COLLECTION_YIELD_SECONDS", -1.0)
    for number in range(20):
        await broker.commit(f"g{number}", 0)
    async with trio.open_nursery() as nursery:

        async def delete() -> None:
            await broker.groups.delete_groups([f"g{number}" for number in range(20)], no_park)

        nursery.start_soon(delete)
        lag_report = await broker.groups.lag_report()
    assert len(lag_report.groups) <= 20
    assert await lines(broker) == {}


async def test_a_listener_receives_finished_rebalances(broker):
    heard: list[str] = []
    broker.groups.subscribe(heard.append)
    joined = await broker.settle("g")
    assert heard == ["g"]
    await broker.heartbeat(joined, "g")
    assert heard == ["g"]
