"""What a coordinator's requests wait for may happen at any moment of their wait, and ends it; so does the coordinator's
own end.

A request is decided in one turn of the event loop, and its wait is awaited in a later one.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.coordinator_harness import CoordinatorHarness, no_park, running_coordinator
from tests.scheduling import Race, begun, outcomes
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.coordinator.runtime.result import RequestContext

GROUPS: Iterator[str] = (f"g{number}" for number in itertools.count())


@pytest.fixture
async def broker(memory_path):
    async with running_coordinator(memory_path, log_durability="page-cache") as broker:
        await broker.groups.find("g")
        yield broker


def steps_of(broker: CoordinatorHarness, request: JoinGroupRequest | SyncGroupRequest, version: int) -> Steps[Any]:
    context = RequestContext("client", "/127.0.0.1", version)
    steps: Steps[Any] = broker.groups.call_steps(request.group_id, request, context, no_park)
    return steps


def join_request(group_id: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"subscription")],
    )


def decide(steps: Steps[Any]) -> None:
    """Let a request have its effect."""
    next(steps, None)
    steps.close()


@attrs.frozen
class Rebalance:
    """A group whose second member waits for the first one to join again."""

    broker: CoordinatorHarness
    group_id: str
    first: str
    second: str

    @classmethod
    async def begin(cls, broker: CoordinatorHarness) -> Rebalance:
        group_id = next(GROUPS)
        first = await broker.settle(group_id)
        second = await broker.join(group_id)
        return cls(broker, group_id, first.member_id, second.member_id)

    def join(self, member_id: str) -> Steps[Any]:
        return steps_of(self.broker, join_request(self.group_id, member_id), 9)

    def sync(self, member_id: str, generation_id: int, **assignments: bytes) -> Steps[Any]:
        given = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()]
        request = SyncGroupRequest(
            group_id=self.group_id, generation_id=generation_id, member_id=member_id, assignments=given
        )
        return steps_of(self.broker, request, 5)


async def test_a_join_ends_with_the_join_of_the_last_member(broker, autojump_clock):
    async def new_race() -> Race[Any]:
        group = await Rebalance.begin(broker)
        return Race(begun(group.join(group.second)), partial(decide, group.join(group.first)))

    assert {response.error_code for response in await outcomes(new_race)} == {ErrorCode.NONE}


async def test_a_sync_ends_with_the_assignment_of_the_leader(broker, autojump_clock):
    async def new_race() -> Race[Any]:
        group = await Rebalance.begin(broker)
        waiting = begun(group.join(group.second))
        leader = await run_steps(group.join(group.first))
        joined = await waiting()
        assert leader.leader == group.first
        assignment = group.sync(group.first, leader.generation_id, **{group.first: b"1", group.second: b"2"})
        return Race(begun(group.sync(group.second, joined.generation_id)), partial(decide, assignment))

    assert {response.assignment for response in await outcomes(new_race)} == {b"2"}


async def test_a_join_ends_with_its_coordinator(broker, autojump_clock):
    runtime = broker.groups.runtime

    async def new_race() -> Race[Any]:
        for shard in list(runtime.shards.values()):
            shard.close(ErrorCode.NOT_COORDINATOR)
        runtime.shards.clear()
        runtime.load_led_partitions()
        await runtime.wait_until_loaded()
        group = await Rebalance.begin(broker)
        return Race(begun(group.join(group.second)), runtime.close)

    assert {response.error_code for response in await outcomes(new_race)} == {ErrorCode.NOT_COORDINATOR}


async def refusal(wait: Callable[[], Awaitable[Any]]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await wait()
    return raised.value.code


async def test_a_response_that_waits_for_the_disk_ends_with_the_partition(memory_path, autojump_clock):
    """Each time in another group's partition, of a broker whose flusher does not run: nothing becomes durable."""
    async with running_coordinator(memory_path, offsets_topic_num_partitions="50") as broker:
        await broker.groups.find("g")
        shards = iter(broker.groups.runtime.shards.values())

        async def new_race() -> Race[ErrorCode]:
            shard = next(shards)
            partition = shard.log.partition
            end_offset = partition.log_end_offset + 1
            wait = partial(broker.groups.runtime.until_durable, shard, end_offset, no_park)
            gone = KafkaError("deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return Race(partial(refusal, wait), partial(partition.fail, gone))

        assert set(await outcomes(new_race)) == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("end", ["loaded", "closed"])
async def test_who_waits_until_all_is_loaded_goes_on_when_the_last_shard_is(broker, autojump_clock, end):
    """Active or closed, which ends its loading as well."""
    runtime = broker.groups.runtime

    async def new_race() -> Race[None]:
        shard = runtime.shards[0]
        runtime.shards[0] = attrs.evolve(shard)
        new = runtime.shards[0]
        event = partial(new._begin, new.machine) if end == "loaded" else partial(new.close, ErrorCode.NOT_COORDINATOR)
        return Race(runtime.wait_until_loaded, event)

    await outcomes(new_race)


async def test_a_group_that_is_asked_for_while_its_topic_is_created_is_found_by_all(memory_path, autojump_clock):
    async with running_coordinator(memory_path, log_durability="page-cache") as broker:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(broker.groups.find, f"g{number}")
        assert broker.groups.runtime.is_complete
