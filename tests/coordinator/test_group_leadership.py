"""What clients see of a group whose coordinator goes to another broker and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.coordinator.coordinator_harness import CoordinatorHarness, running_coordinator
from tests.fakes.followed_metadata import elected, follow, registered
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.coordinator.runtime.log import CoordinatorLog

HERE, ELSEWHERE = 1, 2


@pytest.fixture
async def broker(memory_path: Path) -> AsyncIterator[CoordinatorHarness]:
    """One of two brokers, which leads all partitions at first."""
    async with running_coordinator(memory_path, offsets_topic_num_partitions="2") as harness:
        await harness.create_topic("t")
        await harness.groups.find("g")
        await follow(harness.services, registered(ELSEWHERE, 9093))
        yield harness


async def lead(broker: CoordinatorHarness, leader: int, group_id: str = "g") -> None:
    index = broker.groups.runtime.partition_of(group_id).partition
    await follow(broker.services, elected(broker.services, CONSUMER_OFFSETS_TOPIC, leader, index))


async def refusal(asking: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await asking
    return raised.value.code


async def test_a_group_is_what_it_was_when_its_coordinator_has_come_back(broker, monkeypatch):
    member = await broker.settle("g")
    assert await broker.commit("g", 42, member=member) == 0
    await lead(broker, ELSEWHERE)
    assert await broker.groups.find("g") == ELSEWHERE
    assert await refusal(broker.heartbeat(member, "g")) == ErrorCode.NOT_COORDINATOR
    assert await refusal(broker.commit("g", 43, member=member)) == ErrorCode.NOT_COORDINATOR
    assert await refusal(broker.committed("g")) == ErrorCode.NOT_COORDINATOR
    may_load, slices = trio.Event(), CoordinatorLog.slices

    async def wait_first(log: CoordinatorLog) -> Any:
        await may_load.wait()
        async for part in slices(log):
            yield part

    monkeypatch.setattr(CoordinatorLog, "slices", wait_first)
    await lead(broker, HERE)
    assert await broker.groups.find("g") == HERE
    assert await refusal(broker.heartbeat(member, "g")) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    may_load.set()
    await broker.groups.runtime.wait_until_loaded()
    assert await broker.heartbeat(member, "g") == 0
    assert await broker.committed("g") == {"t": {0: 42}}
    assert await broker.commit("g", 43, member=member) == 0


async def test_members_that_wait_for_others_look_for_their_coordinator_anew(broker, nursery):
    first = await broker.settle("g")
    codes = []

    async def join() -> None:
        codes.append((await broker.enter("g")).error_code)

    nursery.start_soon(join)
    await trio.testing.wait_all_tasks_blocked()
    await lead(broker, ELSEWHERE)
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [ErrorCode.NOT_COORDINATOR]
    await lead(broker, HERE)
    await broker.groups.runtime.wait_until_loaded()
    assert await broker.heartbeat(first, "g") == 0


async def test_the_session_of_a_member_is_timed_by_the_broker_that_leads_alone(broker):
    """It has a whole session timeout again where the group is loaded."""
    member, timers = await broker.settle("g"), broker.groups.runtime.timer._due
    first_deadline = timers["g"]
    await lead(broker, ELSEWHERE)
    await trio.testing.wait_all_tasks_blocked()
    assert "g" not in timers
    await lead(broker, HERE)
    await broker.groups.runtime.wait_until_loaded()
    assert timers["g"] > first_deadline
    assert await broker.heartbeat(member, "g") == 0


async def test_the_groups_of_other_partitions_go_on(broker):
    [here, gone] = [
        next(f"g{n}" for n in range(100) if broker.groups.runtime.partition_of(f"g{n}").partition == index)
        for index in range(2)
    ]
    member = await broker.settle(here)
    await broker.settle(gone)
    shard = broker.groups.shard(here)
    await lead(broker, ELSEWHERE, gone)
    assert await broker.heartbeat(member, here) == 0
    assert broker.groups.shard(here) is shard
    assert [group.group_id for group in broker.groups.list_groups(set(), set())] == [here]


async def test_the_list_of_groups_has_those_alone_that_are_coordinated_here(broker):
    await broker.settle("g")
    partition = broker.groups.shard("g").log.partition
    assert len(list(broker.groups.list_groups(set(), set()))) == 1
    # As the partition is before the coordinator follows.
    partition.writer.state.is_leader = False
    assert list(broker.groups.list_groups(set(), set())) == []
