"""Many groups, and many members in one: nobody is forgotten, in the group or over a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.list_groups import ListGroupsRequest
from tests.compat.wire_members import WireMember, committed, connection_to, find_coordinator
from tests.running_broker import Connection
from tests.waits import fail_after
from trio_broker.testing.process import BrokerProcess

TOPIC = "crowded"

WAIT_SECONDS = 240.0
"""Far longer than the largest crowd takes on a machine that does other things."""

CONNECTIONS = 50
"""Shared by all groups, as an application with many groups would."""

SHORT_TIMES = {"log_durability": "page-cache", "group_initial_rebalance_delay_ms": "0"}


async def create_topic(connection: Connection, partitions: int) -> None:
    wanted = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    response = await connection.ask(CreateTopicsRequest(topics=[wanted]), 7)
    assert response.topics[0].error_code == 0, response


async def listed(connection: Connection) -> dict[str, str]:
    """The state of every group."""
    response = await connection.ask(ListGroupsRequest(), 5)
    assert response.error_code == 0, response
    return {group.group_id: group.group_state for group in response.groups}


# --- many members ---


async def settled(members: list[WireMember], partitions: int) -> None:
    """Return when the members are of one generation and have every partition once."""
    while True:
        owned = [index for member in members for index in member.owned]
        if len({member.generation_id for member in members}) == 1 and sorted(owned) == list(range(partitions)):
            return
        await trio.sleep(0.01)


@pytest.mark.parametrize("size", [20, pytest.param(200, marks=pytest.mark.soak)])
async def test_a_large_group_shares_as_members_come_and_go(
    start_broker: Callable[..., BrokerProcess], size: int
) -> None:
    broker = await trio.to_thread.run_sync(lambda: start_broker(**SHORT_TIMES))
    partitions = size + 7
    members: list[WireMember] = []
    scopes: dict[WireMember, trio.CancelScope] = {}

    async def member_lives(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with connection_to(broker.bootstrap_servers) as connection:
            member = WireMember(connection, "large", TOPIC, partitions)
            members.append(member)
            task_status.started()
            with trio.CancelScope() as scopes[member]:
                await member.join()
                await member.live()
        # It was cancelled in the middle of a request, so the goodbye takes another connection.
        async with connection_to(broker.bootstrap_servers) as member.connection:
            await member.leave()

    with fail_after(WAIT_SECONDS):
        async with connection_to(broker.bootstrap_servers) as connection, trio.open_nursery() as nursery:
            await create_topic(connection, partitions)
            await find_coordinator(connection, "large")
            for _ in range(size):
                await nursery.start(member_lives)
            await settled(members, partitions)
            assert await listed(connection) == {"large": "Stable"}
            assert {len(member.owned) for member in members} == {1, 2}

            leavers = [members.pop() for _ in range(size // 4)]
            for leaver in leavers:
                scopes[leaver].cancel()
            await settled(members, partitions)
            for _ in leavers:
                await nursery.start(member_lives)
            await settled(members, partitions)
            nursery.cancel_scope.cancel()


# --- many groups ---


async def in_turn(servers: str, group_ids: list[str], work: Callable[[Connection, str], object]) -> None:
    """Do ``work`` for each group, over ``CONNECTIONS`` connections side by side."""

    async def some(mine: list[str]) -> None:
        async with connection_to(servers) as connection:
            for group_id in mine:
                await work(connection, group_id)  # type: ignore[misc]

    async with trio.open_nursery() as nursery:
        for at in range(CONNECTIONS):
            nursery.start_soon(some, group_ids[at::CONNECTIONS])


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.soak)])
async def test_many_groups_live_beside_each_other_and_survive_kill_9(
    start_broker: Callable[..., BrokerProcess], count: int
) -> None:
    broker = await trio.to_thread.run_sync(lambda: start_broker(**SHORT_TIMES))
    group_ids = [f"group-{number}" for number in range(count)]
    offsets = {group_id: number for number, group_id in enumerate(group_ids)}
    members: dict[str, WireMember] = {}

    async def join_and_commit(connection: Connection, group_id: str) -> None:
        member = members[group_id] = WireMember(connection, group_id, TOPIC, 3)
        await member.join()
        assert member.owned == {0, 1, 2}
        await member.commit(offsets[group_id])

    async def still_there(connection: Connection, group_id: str) -> None:
        """The generation of before the kill is still good for heartbeats and commits."""
        members[group_id].connection = connection
        assert await members[group_id].heartbeat() == ErrorCode.NONE
        await members[group_id].commit(offsets[group_id] + 1)
        await members[group_id].leave()

    with fail_after(WAIT_SECONDS):
        async with connection_to(broker.bootstrap_servers) as connection:
            await create_topic(connection, 3)
            await find_coordinator(connection, group_ids[0])
            await in_turn(broker.bootstrap_servers, group_ids, join_and_commit)
            assert await listed(connection) == dict.fromkeys(group_ids, "Stable")
        await trio.to_thread.run_sync(broker.kill)
        await trio.to_thread.run_sync(broker.start)
        async with connection_to(broker.bootstrap_servers) as connection:
            found = await committed(connection, *group_ids)
            assert found == {group_id: dict.fromkeys(range(3), offset) for group_id, offset in offsets.items()}
            await in_turn(broker.bootstrap_servers, group_ids, still_there)
            assert await listed(connection) == dict.fromkeys(group_ids, "Empty")

            response = await connection.ask(DeleteGroupsRequest(groups_names=group_ids), 2)
            assert {result.error_code for result in response.results} == {0}
            assert await listed(connection) == {}
            assert set(map(len, (await committed(connection, *group_ids)).values())) == {0}
