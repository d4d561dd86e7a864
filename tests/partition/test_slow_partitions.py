"""Partitions whose reads or syncs are slow beside others: a client waits for its own disk, not for that of others."""

from __future__ import annotations

import errno

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch
from tests.partition.slow_disk import DATA, FOUND_SECONDS, OTHER_DATA, QUICK_SECONDS, SLOW_SECONDS, open_slow_disk
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import run_steps
from trio_broker.partition.fetch_operation import FetchLimits, FetchTarget
from trio_broker.partition.partition import Partition
from trio_broker.storage.log_reader import ReadableLog


@pytest.fixture(params=["reads", "syncs"])
async def slow_disk(request, nursery):
    return await open_slow_disk(nursery, request.param)


async def test_slow_partitions_leave_threads_for_the_others_from_the_first_slow_wait_on(
    slow_disk, nursery, autojump_clock
):
    good, *slow = await slow_disk.partitions_in(DATA, 5)
    slow_disk.slow_down(*slow)
    for partition in slow:
        nursery.start_soon(slow_disk.seconds, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert await slow_disk.seconds(good) <= FOUND_SECONDS + QUICK_SECONDS
    assert await slow_disk.slowest(good, 50) <= QUICK_SECONDS
    nursery.cancel_scope.cancel()


async def test_any_number_of_partitions_known_to_be_slow_leaves_the_others_alone(slow_disk, nursery, autojump_clock):
    good, *slow = await slow_disk.partitions_in(DATA, 41)
    slow_disk.slow_down(*slow)
    for partition in slow:
        nursery.start_soon(slow_disk.keep_on, partition)
    await trio.sleep(100 * SLOW_SECONDS if slow_disk.kind == "reads" else 20 * SLOW_SECONDS)
    assert slow_disk.kind == "reads" or all(partition.log_end_offset > 1 for partition in slow)
    assert await slow_disk.slowest(good, 1000) <= QUICK_SECONDS
    assert not slow_disk.is_slow(good)
    nursery.cancel_scope.cancel()


async def test_a_partition_is_slow_until_a_wait_for_it_was_not(slow_disk, nursery, autojump_clock):
    good, *slow = await slow_disk.partitions_in(DATA, 9)
    slow_disk.slow_down(*slow)
    for partition in (*slow, good):
        nursery.start_soon(slow_disk.seconds, partition)
    await trio.sleep(20 * SLOW_SECONDS)
    assert all(slow_disk.is_slow(partition) for partition in slow)
    assert not slow_disk.is_slow(good)
    slow_disk.mend()
    for partition in slow:
        for _ in range(100):  # a thread may be late by chance
            await slow_disk.seconds(partition)
    assert not any(slow_disk.is_slow(partition) for partition in slow)


# ---- reads


@pytest.mark.parametrize("slow_disk", ["reads"], indirect=True)
async def test_eight_partitions_on_a_disk_that_hangs_leave_produce_and_fetch_in_another_directory_alone(
    slow_disk, nursery, autojump_clock, monkeypatch
):
    """Each request holds its handler's slot until it says that it waits."""
    [good] = await slow_disk.partitions_in(OTHER_DATA, 1)
    hanging = await slow_disk.partitions_in(DATA, 8)
    slow_disk.slow_down(*hanging)
    slots = trio.CapacityLimiter(4)
    limits = FetchLimits(max_wait_seconds=0.0, min_bytes=1, max_bytes=1000)
    answered: list[Partition] = []

    async def fetch(partition: Partition) -> None:
        await slots.acquire()

        def release(phase: RequestPhase) -> None:
            assert phase is RequestPhase.DISK
            slots.release()

        targets = [FetchTarget(0, 0, 1000, partition)]
        [result] = await run_steps(slow_disk.replicas.fetch_steps(targets, limits, release_handler=release))
        assert result.error_code == ErrorCode.NONE
        assert result.record_count > 0
        answered.append(partition)

    read = ReadableLog.read

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if nowait:
            raise BlockingIOError(errno.EAGAIN, "not in the cache")
        fetched = read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)
        assert not isinstance(fetched.records, bytes)
        fetched.records.read()
        return fetched

    monkeypatch.setattr(ReadableLog, "read", cold)
    for partition in hanging:
        nursery.start_soon(fetch, partition)
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(SLOW_SECONDS / 2):
        await slots.acquire()
        info = await append_to_leader(slow_disk.replicas, good, batch(b"value"))
        slots.release()
        assert info.first_offset == 1
        await fetch(good)
    assert answered == [good]
    nursery.cancel_scope.cancel()


# ---- syncs


@pytest.mark.parametrize("slow_disk", ["syncs"], indirect=True)
async def test_threads_that_took_the_place_of_slow_ones_end_with_them(slow_disk, nursery, autojump_clock):
    good, *slow = await slow_disk.partitions_in(DATA, 9)
    queue = slow_disk.replicas.flusher._queues[DATA]
    slow_disk.slow_down(*slow)
    for partition in (*slow, good):
        nursery.start_soon(slow_disk.seconds, partition)
    await trio.sleep(SLOW_SECONDS / 2)
    assert queue._usual.threads == 8
    await trio.sleep(3 * SLOW_SECONDS)
    assert queue._usual.threads == 4
    assert slow_disk.replicas.flusher.statistics().threads == 4


@pytest.mark.parametrize("slow_disk", ["syncs"], indirect=True)
async def test_a_directory_whose_disk_hangs_leaves_that_of_another_alone(slow_disk, nursery, autojump_clock):
    [good] = await slow_disk.partitions_in(OTHER_DATA, 1)
    hanging = await add_topic(slow_disk.replicas, "hanging", partitions=80, topic_id=bytes(range(1, 17)))
    hanging = [partition for partition in hanging if partition.log.directory.parent == DATA]
    for partition in hanging:
        await slow_disk.seconds(partition)
    slow_disk.slow_down_files(lambda path: DATA in path.parents)
    for partition in hanging:
        nursery.start_soon(slow_disk.seconds, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert len(hanging) > 16
    assert await slow_disk.slowest(good, 50) <= QUICK_SECONDS
    nursery.cancel_scope.cancel()
