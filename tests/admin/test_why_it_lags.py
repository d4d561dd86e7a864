"""Why a group lags, as the broker finds it for real groups with real commits: each cause is named, and on the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.admin.lagging_group import (
    GROUP_ID,
    PARTITIONS,
    RECORDS,
    TOPIC,
    Consumer,
    make_group,
    make_lag,
    produce_to_all,
)
from tests.admin.live_admin import LiveAdmin, open_live_admin
from trio_broker.runtime.clock import ManualClock


@attrs.frozen
class Watched:
    """The group of two members, the broker it is on, and the clock of both."""

    live: LiveAdmin
    clock: ManualClock
    members: list[Consumer]

    async def findings(self) -> dict[str, Any]:
        """What is found, by cause."""
        answer = await self.live.get(f"/api/v1/groups/{GROUP_ID}/diagnosis")
        page = (await self.live.http.get(f"/groups/{GROUP_ID}")).text
        for finding in answer["findings"]:
            assert f'data-cause="{finding["cause"]}"' in page
        return {finding["cause"]: finding for finding in answer["findings"]}

    async def commit(self, offset: int) -> None:
        for member in self.members:
            await member.commit(offset)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    clock = ManualClock()
    settings = {"offsets_topic_num_partitions": "1", "group_consumer_assignment_interval_ms": "0"}
    async with open_live_admin(tmp_path, clock=clock, **settings) as live:
        yield Watched(live, clock, await make_group(live))


async def test_a_slow_member_is_named_when_it_has_most_of_the_lag(watched: Watched) -> None:
    await make_lag(watched.live, watched.clock, watched.members)
    finding = (await watched.findings())["slow member"]
    assert finding["member_id"] == watched.members[1].member_id
    assert "Member till-b is slow" in finding["summary"]


async def test_a_partition_that_gets_most_records_is_named(watched: Watched) -> None:
    await produce_to_all(watched.live)
    for _ in range(4):
        await produce_to_all(watched.live, partitions=[1])
    watched.clock.advance(30)
    await watched.commit(RECORDS)
    finding = (await watched.findings())["skewed partition"]
    assert (finding["topic"], finding["partition"]) == (TOPIC, 1)
    assert "100\u00a0% of the lag" in finding["summary"]


async def test_a_group_that_nobody_reads_for_has_no_members(watched: Watched) -> None:
    await produce_to_all(watched.live)
    await watched.commit(1)
    for member in watched.members:
        await member.heartbeat(-1)
    watched.clock.advance(30)
    finding = (await watched.findings())["no members"]
    assert f"{PARTITIONS * (RECORDS - 1)} records wait" in finding["evidence"]
    assert "the last commit was 30 s ago" in finding["evidence"]


async def test_members_that_do_not_commit_any_more_have_stopped_committing(watched: Watched) -> None:
    await produce_to_all(watched.live)
    await watched.commit(1)
    watched.clock.advance(59)
    assert "stopped committing" not in await watched.findings()
    watched.clock.advance(2)
    finding = (await watched.findings())["stopped committing"]
    assert finding["evidence"] == ["the last commit was 1 min 1 s ago"]


async def test_a_member_that_comes_and_goes_makes_the_group_rebalance_too_often(watched: Watched) -> None:
    await produce_to_all(watched.live)
    await watched.commit(1)
    steady, restless = watched.members
    for _ in range(3):
        await restless.heartbeat(-1)
        for _ in range(3):
            await steady.heartbeat()
        restless.epoch, restless.assigned = 0, []
        for _ in range(4):
            await restless.heartbeat()
            await steady.heartbeat()
    watched.clock.advance(30)
    finding = (await watched.findings())["rebalancing too often"]
    assert "times in the last 10 min" in finding["summary"]
    assert any("member left" in line for line in finding["evidence"])


async def test_what_a_member_never_committed_is_unknown_and_not_in_the_sum(watched: Watched) -> None:
    await produce_to_all(watched.live)
    await watched.members[0].commit(1)
    watched.clock.advance(30)
    finding = (await watched.findings())["missing commits"]
    assert "Nothing is committed in 2 of 4 partitions" in finding["summary"]
    offsets = await watched.live.get(f"/api/v1/groups/{GROUP_ID}/offsets")
    assert (offsets["partitions_without_lag"], offsets["lag_records"]) == (2, 2 * (RECORDS - 1))


async def test_a_group_that_keeps_up_says_so(watched: Watched) -> None:
    await produce_to_all(watched.live)
    await watched.commit(RECORDS)
    assert list(await watched.findings()) == ["keeps up"]
