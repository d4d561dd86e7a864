"""A follower reads up to the end of its leader's log, and by what it asks for says how far it is."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NODE_ID, FakeBrokers, add_topic, batch, followed, led, make_replicas
from trio_broker.common.request_phase import ignore_release
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.replication_config import RACK_AWARE_REPLICA_SELECTOR
from trio_broker.partition.fetch_operation import FetchedPartition, FetchingReplica, FetchLimits, FetchTarget
from trio_broker.partition.in_sync_replicas import PendingExpandIsr, PendingShrinkIsr
from trio_broker.storage.leader_epochs import EpochEndOffset

BROKER_EPOCH = 20


@pytest.fixture
async def partition(replicas):
    """It is led here in epoch 1, with broker 2 in sync, and has two records of epoch 0 and three of epoch 1."""
    replicas.brokers.epochs[2] = BROKER_EPOCH
    [made] = await add_topic(replicas)
    for _ in range(2):
        await append_to_leader(replicas, made, batch(b"a"))
    made.writer.lead_at_once(led(1, 2), replicas.clock.monotonic())
    for _ in range(3):
        await append_to_leader(replicas, made, batch(b"b"))
    return made


@pytest.fixture
def asked(replicas):
    """What the controller has been asked for."""
    asked = []
    replicas.alter_partition = lambda partition, wanted: asked.append(wanted)
    return asked


async def fetch(
    replicas, partition, offset, *, last_epoch=-1, wait=0.0, epoch=1, replica=2, broker_epoch=BROKER_EPOCH, start=0
) -> FetchedPartition:
    target = FetchTarget(0, offset, 1 << 20, partition, epoch, last_epoch, start)
    limits = FetchLimits(wait, 1, 1 << 20, replica=FetchingReplica(replica, broker_epoch))
    results = await run_steps(replicas.fetch_steps([target], limits, release_handler=ignore_release))
    result: FetchedPartition = results[0]
    return result


async def test_it_reads_up_to_the_end_and_moves_the_high_watermark_by_its_next_fetch(replicas, partition):
    assert partition.high_watermark == 2
    result = await fetch(replicas, partition, 2)
    assert (result.record_count, result.high_watermark, partition.high_watermark) == (3, 2, 2)
    result = await fetch(replicas, partition, 5, last_epoch=1)
    assert (result.record_count, result.high_watermark, partition.high_watermark) == (0, 5, 5)


async def test_it_waits_for_what_is_appended_and_not_for_what_becomes_visible(replicas, partition, autojump_clock):
    results = []

    async def poll() -> None:
        results.append(await fetch(replicas, partition, 5, wait=60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        assert not results
        await append_to_leader(replicas, partition, batch(b"c"))
    assert results[0].record_count == 1
    assert not partition.delayed.replica_fetches


async def test_where_the_logs_part_it_gets_the_end_of_its_epoch_and_has_no_progress(replicas, partition):
    result = await fetch(replicas, partition, 4, last_epoch=0)
    assert result.diverging_epoch == EpochEndOffset(0, 2)
    assert (result.record_count, partition.high_watermark) == (0, 2)
    assert partition.writer.state.remote.replicas[2].log_end_offset == -1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica": 3, "epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"offset": 6}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"last_epoch": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"broker_epoch": BROKER_EPOCH - 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_what_a_leader_refuses(replicas, partition, fields, code):
    fields = {"offset": 5, **fields}
    assert (await fetch(replicas, partition, fields.pop("offset"), **fields)).error_code is code
    assert partition.high_watermark == 2


async def test_offsets_before_the_start_are_out_of_range_whatever_the_epoch(replicas, partition):
    await replicas.record_deletion.delete({partition: 2}, timeout_seconds=0)
    assert (await fetch(replicas, partition, 0, last_epoch=0)).error_code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_follower_that_has_caught_up_is_asked_for_and_counts_at_once(replicas, partition, asked):
    partition.writer.lead_at_once(led(2, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    assert partition.high_watermark == 5
    await fetch(replicas, partition, 4, epoch=2)
    assert asked == []
    await fetch(replicas, partition, 5, epoch=2)
    [wanted] = asked
    assert isinstance(wanted, PendingExpandIsr)
    await append_to_leader(replicas, partition, batch(b"c"))
    assert partition.high_watermark == 5


async def test_a_follower_that_fetches_no_more_leaves_after_a_while(replicas, partition, asked):
    await fetch(replicas, partition, 2)
    replicas.clock.advance(29)
    await replicas.check_lag()
    assert asked == []
    replicas.clock.advance(2)
    await replicas.check_lag()
    [wanted] = asked
    assert isinstance(wanted, PendingShrinkIsr)
    assert wanted.out_of_sync_replicas == {2}
    await replicas.check_lag()
    assert len(asked) == 1, "one change is in flight"


async def test_it_learns_at_once_where_the_log_begins_now_if_its_own_goes_that_far(replicas, partition, autojump_clock):
    await fetch(replicas, partition, 5, last_epoch=1)
    await replicas.record_deletion.delete({partition: 4}, timeout_seconds=0)
    before = trio.current_time()
    for offset, start in ((5, 0), (4, 3)):
        assert (await fetch(replicas, partition, offset, start=start, wait=60)).log_start_offset == 4
    assert trio.current_time() == before
    await fetch(replicas, partition, 5, start=4, wait=60)
    assert trio.current_time() == before + 60, "it knows"


async def test_with_a_selector_it_learns_of_a_high_watermark_that_another_one_has_moved(tmp_path, autojump_clock):
    replicas = make_replicas(
        tmp_path / "data",
        brokers=FakeBrokers({2: BROKER_EPOCH, 3: BROKER_EPOCH}),
        log_durability="page-cache",
        replica_selector_class=RACK_AWARE_REPLICA_SELECTOR,
    )
    [partition] = await add_topic(replicas)
    partition.writer.lead_at_once(led(1, 2, 3), 0.0)
    await append_to_leader(replicas, partition, batch(b"a"))
    known: list[int] = []

    async def poll() -> None:
        while len(known) < 2:
            result = await fetch(replicas, partition, 1, wait=60)
            known.append(result.high_watermark)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        assert known == [0], "it has not been sent that before"
        await fetch(replicas, partition, 1, replica=3)
        await trio.testing.wait_all_tasks_blocked()
        assert known == [0, 1]
    replicas.log_manager.close(clean=False)


def read_from(partition, *offsets: int, brokers=(2, 3)) -> list[int | None]:
    return [partition.preferred_read_replica(brokers, offset) for offset in offsets]


async def test_a_consumer_is_sent_to_a_replica_that_is_in_sync_and_has_what_it_asks_for(replicas, partition):
    replicas.brokers.epochs[3] = BROKER_EPOCH
    partition.writer.lead_at_once(led(2, 2, 3), 0.0)
    assert read_from(partition, 0) == [None], "nobody has said how far it is"
    await fetch(replicas, partition, 5, epoch=2, start=1)
    assert read_from(partition, 0, 1, 5, 6) == [None, 2, 2, None]
    assert read_from(partition, 5, brokers=[3]) == [None]
    await fetch(replicas, partition, 4, epoch=2, replica=3)
    assert read_from(partition, 0, 4, 5) == [3, 2, 2], "the one that is furthest"
    partition.writer.lead_at_once(led(2, 3, replicas=(NODE_ID, 2, 3), partition_epoch=3), 0.0)
    assert read_from(partition, 4, 5) == [3, None]
    partition.writer.make_follower(followed(3))
    assert read_from(partition, 4) == [None]


class Idle:
    async def run(self) -> None:
        await trio.sleep_forever()


@pytest.mark.parametrize("fetchers", [None, Idle()])
async def test_only_one_of_several_brokers_looks_for_followers_that_lag(
    replicas, fetchers, monkeypatch, nursery, autojump_clock
):
    looks = []

    async def look() -> None:
        looks.append(trio.current_time())

    monkeypatch.setattr(replicas, "check_lag", look)
    replicas.fetchers = fetchers
    await nursery.start(replicas.run)
    await trio.sleep(31)
    assert len(looks) == (2 if fetchers else 0)


async def test_a_fetch_that_waits_ends_when_the_leadership_is_lost(replicas, partition, autojump_clock):
    results = []

    async def poll() -> None:
        results.append(await fetch(replicas, partition, 5, wait=60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        partition.writer.make_follower(followed(2))
    assert results[0].error_code is ErrorCode.FENCED_LEADER_EPOCH
