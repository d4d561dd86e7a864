"""The groups of a running broker, as the admin app sees them."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import httpx
import pytest
import trio

from broker_admin.app import create_app
from broker_admin.views.cluster.groups import GroupsRebalanced
from tests.coordinator.coordinator_harness import CoordinatorHarness, running_coordinator
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch
from tests.running_broker import running, view_of
from trio_broker.broker_view.cluster.groups import MAX_GROUP_IDS, REPORT_SECONDS, LiveGroupsView
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.reporting.lag_history import SAMPLE_INTERVAL_MS
from trio_broker.coordinator.reporting.snapshot import GroupType, LagTrend


@pytest.fixture
async def broker(tmp_path):
    async with running_coordinator(tmp_path, log_durability="page-cache") as opened:
        await opened.create_topic("t", 2)
        await opened.groups.find("g")
        yield opened


@pytest.fixture
def view(broker) -> LiveGroupsView:
    return LiveGroupsView(broker.groups, broker.clock)


async def append(broker, *records: bytes) -> None:
    partition = broker.services.replicas.topic("t").partitions[0]
    await append_to_leader(
        broker.services.replicas, partition, batch(*records, timestamp=broker.clock.now_ms()), produce_version=9
    )


# --- one group ---


async def test_a_group_is_shown_with_its_members(broker, view):
    joined = await broker.settle("g")
    group = view.get("g")
    assert (group.group_id, group.type, group.state, group.protocol_type, group.protocol, group.generation) == (
        "g",
        GroupType.CLASSIC,
        "Stable",
        "consumer",
        "range",
        1,
    )
    [member] = group.members
    assert group.member_count == 1
    assert member.member_id == group.leader == joined.member_id
    assert (member.client_id, member.client_host, member.epoch) == ("client", "/127.0.0.1", None)


async def test_offsets_are_shown_with_lag_in_records_and_seconds(broker, view):
    await append(broker, b"a", b"b", b"c")
    broker.advance(90)
    await broker.commit("g", 1)
    offsets = await view.offsets("g")
    assert (offsets.lag_records, offsets.lag_seconds, offsets.partition_count) == (2, 90.0, 1)
    [lag] = offsets.partitions
    assert (lag.topic, lag.partition, lag.member_id, lag.committed_offset, lag.log_end_offset) == ("t", 0, None, 1, 3)
    assert (lag.lag_records, lag.lag_seconds) == (2, 90.0)


async def test_a_group_that_has_committed_nothing_has_no_lag(broker, view):
    await broker.settle("g")
    offsets = await view.offsets("g")
    assert (offsets.lag_records, offsets.lag_seconds, offsets.partitions) == (None, None, ())


async def test_the_timeline_shows_who_came_and_who_went(broker, view):
    joined = await broker.settle("g")
    broker.advance(60)
    await broker.leave(joined, "g")
    timeline = view.timeline("g")
    kinds = [[cause.kind for cause in rebalance.causes] for rebalance in timeline]
    assert kinds == [[GroupEventKind.MEMBER_JOINED], [GroupEventKind.MEMBER_LEFT]]
    cause = timeline[1].causes[0]
    assert (cause.member_id, cause.client_id, cause.client_host) == (joined.member_id, "client", "/127.0.0.1")
    assert cause.at_ms == broker.clock.now_ms()
    assert all(rebalance.duration_ms is not None and rebalance.duration_ms >= 0 for rebalance in timeline)


async def test_a_group_that_is_not_there_is_none(broker, view):
    assert view.get("nobody") is None
    assert await view.offsets("nobody") is None
    assert view.timeline("nobody") is None


# --- all groups ---


async def test_all_groups_are_shown_by_id_with_their_lag(broker, view):
    await append(broker, b"a", b"b")
    broker.advance(10)
    await broker.commit("behind", 0)
    await broker.settle("without offsets")
    report = await view.report()
    assert report.is_complete
    shown = [(lag.group.group_id, lag.group.member_count, lag.lag_records, lag.lag_seconds) for lag in report.groups]
    assert shown == [("behind", 0, 2, 10.0), ("without offsets", 1, None, None)]


async def test_a_report_is_good_for_a_while(broker, view):
    await broker.commit("first", 0)
    before = await view.report()
    await broker.commit("second", 0)
    assert await view.report() is before
    broker.advance(REPORT_SECONDS)
    assert [lag.group.group_id for lag in (await view.report()).groups] == ["first", "second"]


async def test_lag_by_partition_is_measured_where_it_is_asked_for(broker, view):
    await append(broker, b"a", b"b")
    broker.advance(10)
    await broker.commit("g", 0)
    [each] = (await view.new_lag_report()).partitions
    assert (each.group_id, each.lag.topic, each.lag.partition, each.lag.lag_records, each.lag.lag_seconds) == (
        "g",
        "t",
        0,
        2,
        10.0,
    )


# --- events ---


async def test_groups_that_rebalanced_are_shown_once_and_not_more_than_fit(broker, view):
    assert view.pop_rebalanced() is None
    for _ in range(2):
        await broker.leave(await broker.settle("g"), "g")
    reported = view.pop_rebalanced()
    assert (reported.group_ids, reported.further_groups, reported.at_ms) == (("g",), 0, broker.clock.now_ms())
    assert view.pop_rebalanced() is None
    for number in range(MAX_GROUP_IDS + 3):
        await broker.settle(f"g{number}")
    reported = view.pop_rebalanced()
    assert (len(reported.group_ids), reported.further_groups) == (MAX_GROUP_IDS, 3)


# --- the whole way ---


async def test_a_running_brokers_groups_are_served_over_http(tmp_path):
    async with running(tmp_path, group_initial_rebalance_delay_ms="0") as broker:
        view = view_of(broker)
        before = view.node.events.newest
        await broker.services.groups.find("a/b")
        clock: Any = broker.clock  # the harness lets no time pass here
        await CoordinatorHarness(broker.services, clock).settle("a/b")
        broker.server.sample(perf_counter_ns())
        rebalanced = [event for event in view.node.events.after(before) if isinstance(event, GroupsRebalanced)]
        assert [event.group_ids for event in rebalanced] == [("a/b",)]
        transport = httpx.ASGITransport(create_app(view))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/api/v1/groups")).json()["items"][0]["group_id"] == "a/b"
            assert (await client.get("/api/v1/groups/a%2Fb")).json()["member_count"] == 1
            assert (await client.get("/api/v1/groups/a%2Fb/offsets")).json()["partitions"] == []
            assert len((await client.get("/api/v1/groups/a%2Fb/timeline")).json()["rebalances"]) == 1
            page = (await client.get("/groups/-?id=a%2Fb")).text
            assert "member joined" in page
            assert 'trio_broker_groups{state="Stable",type="classic"} 1.0' in (await client.get("/metrics")).text


# --- history ---


async def test_what_a_group_consumes_is_seen_from_its_commits(broker, view, mock_clock):
    await append(broker, b"a", b"b", b"c")
    await broker.commit("g", 0)
    await broker.groups.sample_lag()
    assert view.lag_history("g").rates is None
    broker.advance(10)
    await append(broker, *[b"x"] * 37)
    await broker.commit("g", 20)
    await broker.groups.sample_lag()
    history = view.lag_history("g")
    assert [sample.lag_records for sample in history.samples] == [3, 20]
    assert (history.rates.consumed_per_second, history.rates.produced_per_second) == (2.0, 3.7)
    assert history.rates.trend is LagTrend.GROWING
    [group] = (await view.report()).groups
    assert group.rates == history.rates
    assert view.lag_history("nobody") is None


async def test_readings_are_taken_while_the_coordinator_runs(broker, view, autojump_clock):
    await broker.commit("g", 0)
    await trio.sleep(3.5 * SAMPLE_INTERVAL_MS / 1000)
    # The clock may jump once more while a thread brings the commit to the disk.
    assert len(view.lag_history("g").samples) in {3, 4}
