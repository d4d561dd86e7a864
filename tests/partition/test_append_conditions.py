"""Leadership, its epoch and enough in-sync replicas are conditions of each append, asked at the moment of the write."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NODE_ID, add_topic, batch, followed, led
from trio_broker.common.request_phase import ignore_release
from trio_broker.concurrency.steps import run_steps
from trio_broker.partition.delayed_operations import DelayedFetch
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.partition import Partition
from trio_broker.partition.state import NO_EPOCH
from trio_broker.partition.transaction_end import TransactionEnd

END = TransactionEnd(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0)


@pytest.fixture
async def partition(replicas):
    [made] = await add_topic(replicas, leader_epoch=3)
    await append_to_leader(replicas, made, batch(b"first"))
    return made


def lose_replica(partition: Partition) -> None:
    """Two replicas must be in sync from now on, and this one is alone."""
    alone = led(partition.leader_epoch, isr=(NODE_ID,), replicas=(NODE_ID, 2), partition_epoch=99)
    partition.writer.lead_at_once(alone, 0.0)
    partition.writer.set_min_in_sync_replicas(2, 0.0)


async def refusal(append) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await append()
    return refused.value.code


async def test_what_is_not_led_here_takes_nothing_from_anybody(replicas, partition):
    partition.writer.make_follower(followed(4))

    async def internal():
        replicas.appends.append_internal(partition, batch(b"offsets"), leader_epoch=NO_EPOCH)

    async def marker():
        await run_steps(replicas.appends.append_marker_steps(partition, END))

    async def client():
        await append_to_leader(replicas, partition, batch(b"a"))

    for append in (client, internal, marker):
        assert await refusal(append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log_end_offset == 1


async def test_an_epoch_that_was_begun_and_lost_before_its_first_append_is_not_written_down(replicas):
    partitions = await add_topic(replicas, name="lost", partitions=2, leader_epoch=3)
    for each in partitions:
        each.writer.make_follower(followed(4))
    before = [each.log.epochs.unwritten for each in partitions]
    assert None not in before
    # A Produce for both, which was on its way.
    await run_steps(replicas.appends.ready_steps(partitions, ignore_release))
    assert [each.log.epochs.unwritten for each in partitions] == before


async def test_a_leadership_that_is_lost_while_an_append_waits_refuses_it(replicas, partition, autojump_clock):
    lose = trio.Event()

    async def follow_soon() -> None:
        await lose.wait()
        partition.writer.make_follower(followed(4))

    codes = []

    async def append() -> None:
        codes.append(await refusal(lambda: append_to_leader(replicas, partition, batch(b"a"))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partition.writer.execute, follow_soon)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(append)
        await trio.testing.wait_all_tasks_blocked()
        assert not codes
        lose.set()
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partition.log_end_offset == 1


@pytest.mark.parametrize("leader_epoch", [2, 4])
async def test_a_decision_of_another_epoch_is_not_appended(replicas, partition, leader_epoch):
    """A coordinator that has lost and regained its partition would append what it has decided on an older state."""

    async def append():
        replicas.appends.append_internal(partition, batch(b"offsets"), leader_epoch=leader_epoch)

    assert await refusal(append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.appends.append_internal(partition, batch(b"offsets"), leader_epoch=3)
    assert partition.log_end_offset == 2


async def test_what_forbids_a_batch_beside_leadership_is_not_asked_without_it(replicas, partition):
    """The producers of a partition that another broker leads would give the wrong, perhaps a final, error."""
    partition.writer.make_follower(followed(4))

    def guard() -> None:
        raise KafkaError("not in the transaction", code=ErrorCode.INVALID_TXN_STATE)

    async def append():
        await run_steps(replicas.appends.append_steps(partition, batch(b"a"), produce_version=9, guard=guard))

    assert await refusal(append) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_in_sync_replicas_that_become_too_few_while_an_append_waits_refuse_it(replicas, partition):
    wait = trio.Event()
    codes = []

    async def append() -> None:
        steps = replicas.appends.append_steps(partition, batch(b"a"), produce_version=9, acks_all=True)
        codes.append(await refusal(lambda: run_steps(steps)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partition.writer.execute, wait.wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(append)
        await trio.testing.wait_all_tasks_blocked()
        lose_replica(partition)
        wait.set()
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    await append_to_leader(replicas, partition, batch(b"acks=1"))
    assert partition.log_end_offset == 2


async def waited(replicas, required: RequiredOffset, codes: list[ErrorCode]) -> None:
    codes += await replicas.appends.wait_until_replicated(
        [required], timeout_seconds=30, release_handler=ignore_release
    )


async def test_a_lost_leadership_ends_what_waits(replicas, partition, autojump_clock):
    """Though it comes back in the same turn: what another leader did meanwhile is not known to the producer."""
    codes: list[ErrorCode] = []
    fetch = DelayedFetch(1)
    partition.delayed.add_fetch(fetch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waited, replicas, RequiredOffset(partition, 9), codes)
        await trio.testing.wait_all_tasks_blocked()
        partition.writer.make_follower(followed(4))
        await partition.writer.make_leader(led(5), 0.0)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert fetch.is_woken


async def test_a_later_epoch_of_the_same_leader_ends_no_wait(replicas, partition):
    required = RequiredOffset(partition, 1)
    await partition.writer.make_leader(led(4), 0.0)
    codes: list[ErrorCode] = []
    await waited(replicas, required, codes)
    assert codes == [ErrorCode.NONE]


async def test_in_sync_replicas_that_have_become_too_few_are_reported_after_the_append(replicas, partition):
    required = RequiredOffset(partition, 1)
    lose_replica(partition)
    codes: list[ErrorCode] = []
    await waited(replicas, required, codes)
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
