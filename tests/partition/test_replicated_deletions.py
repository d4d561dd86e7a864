"""Records are deleted when no replica that is alive has them any more: the low watermark."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from tests.partition.real_logs import LONG_WAITS
from trio_broker.common.request_phase import RequestPhase

SOON = 2.0
ALL = (1, 2, 3)


@pytest.fixture(params=["page-cache", "fsync"])
async def brokers(request, start_brokers):
    return await start_brokers(log_durability=request.param, **LONG_WAITS)


@pytest.fixture
async def partition(brokers):
    """Broker 1 leads it, the others follow; each has the same four records, and knows that they are committed."""
    await brokers.decide(1, 5, isr=ALL, replicas=ALL)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        await brokers[1].append(value)
        await trio.sleep(SOON)
    return brokers[1].partition()


async def delete(brokers, partition, offset, **options):
    [outcome] = (await brokers[1].replicas.record_deletion.delete({partition: offset}, **options)).values()
    return outcome if isinstance(outcome, int) else outcome.code


async def test_the_answer_comes_when_all_replicas_have_deleted(brokers, partition, autojump_clock):
    async def be_late(request) -> None:
        await trio.sleep(SOON)

    brokers[1].before_answer = be_late
    assert await delete(brokers, partition, 2) == 2
    assert [brokers[each].partition().log_start_offset for each in ALL] == [2, 2, 2]
    assert not partition.delayed.deletions


async def test_a_replica_that_does_not_fetch_is_waited_for_until_the_time_is_over(brokers, partition, autojump_clock):
    brokers[3].fetchers.remove([partition.topic_partition])
    phases: list[RequestPhase] = []
    outcome = await delete(brokers, partition, 2, timeout_seconds=5, release_handler=phases.append)
    assert (outcome, [phase.name for phase in phases]) == (ErrorCode.REQUEST_TIMED_OUT, ["PURGATORY"])
    assert [brokers[each].partition().log_start_offset for each in ALL] == [2, 2, 0]
    assert not partition.delayed.deletions


async def test_a_replica_on_a_broker_that_is_not_alive_is_not_waited_for(brokers, partition, autojump_clock):
    brokers[3].fetchers.remove([partition.topic_partition])
    outcomes = []

    async def delete_soon() -> None:
        outcomes.append(await delete(brokers, partition, 2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_soon)
        await trio.sleep(SOON)
        assert not outcomes
        brokers.alive.fenced.add(3)
        # As the controller decides it with the fencing.
        await brokers.decide(1, 5, isr=(1, 2), replicas=ALL, on=(1,))
    assert outcomes == [2]


async def test_a_new_leader_waits_for_each_replica_to_say_where_its_log_begins(brokers, partition, autojump_clock):
    await delete(brokers, partition, 2)
    await brokers.decide(1, 6, isr=ALL, replicas=ALL, on=(1,))
    assert await delete(brokers, partition, 1, timeout_seconds=0.0) == 2, "its own followers have said so"
    await brokers.decide(2, 7, isr=ALL, replicas=ALL, on=(2,))
    assert brokers[2].partition().low_watermark == -1


async def test_a_leadership_that_is_lost_ends_the_wait(brokers, partition, autojump_clock):
    brokers[3].fetchers.remove([partition.topic_partition])
    outcomes = []

    async def delete_soon() -> None:
        outcomes.append(await delete(brokers, partition, 2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_soon)
        await trio.sleep(SOON)
        await brokers.decide(2, 6, isr=ALL, replicas=ALL)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
