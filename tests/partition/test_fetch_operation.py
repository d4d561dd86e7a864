"""A Fetch that waits: whatever happens between its look at a partition and its wait ends the wait.

The steps of a Fetch are begun in one turn of the event loop, and what they wait for is awaited in a later one. Other
tasks run in between; here they do what is tested.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from tests.partition.real_logs import NOW_MS, add_topic, batch, commit, led, make_replicas, sync, write_epoch_entry
from trio_broker.common.request_phase import ignore_release
from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.partition.fetch_operation import READS_PER_LOOK, FetchedPartition, FetchLimits, FetchTarget
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.log_reader import ReadableLog

WAIT_SECONDS = 60.0


@pytest.fixture
def durable_replicas(tmp_path):
    made = make_replicas(tmp_path / "durable")
    yield made
    made.log_manager.close(clean=False)


async def partitions_of(replicas: ReplicaManager, count: int = 1) -> list[Partition]:
    partitions = await add_topic(replicas, partitions=count)
    for partition in partitions:
        write_epoch_entry(partition)
    return partitions


def append(partition: Partition, *values: bytes, **options: Any) -> None:
    partition.writer.append(batch(*values, **options), now_ms=NOW_MS)


def fetch(
    replicas: ReplicaManager, *partitions: Partition, offset: int = 0, min_bytes: int = 1, committed: bool = False
) -> Steps[list[FetchedPartition]]:
    isolation_level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    targets = [FetchTarget(index, offset, 1 << 20, partition) for index, partition in enumerate(partitions)]
    limits = FetchLimits(WAIT_SECONDS, min_bytes, 1 << 20, isolation_level)
    return replicas.fetch_steps(targets, limits, release_handler=ignore_release)


async def answer_to(steps: Steps[list[FetchedPartition]], event: Callable[[], object]) -> list[FetchedPartition]:
    """The answer of ``steps``, in no time, if ``event`` happens before what they wait for first is awaited."""
    wait = next(steps)
    event()
    began = trio.current_time()
    answer = await run_steps(steps, wait)
    assert trio.current_time() == began, "it waited all its time"
    return answer


async def test_an_append_before_the_wait_ends_it(replicas, autojump_clock):
    [partition] = await partitions_of(replicas)
    [result] = await answer_to(fetch(replicas, partition), lambda: append(partition, b"a"))
    assert result.record_count == 1


async def test_the_report_of_a_sync_before_the_wait_ends_it(durable_replicas, autojump_clock):
    [partition] = await partitions_of(durable_replicas)
    append(partition, b"a")
    [result] = await answer_to(fetch(durable_replicas, partition), lambda: sync(partition))
    assert result.record_count == 1


async def test_the_end_of_a_transaction_before_the_wait_ends_it(replicas, autojump_clock):
    [partition] = await partitions_of(replicas)
    append(partition, b"a" * 100, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    steps = fetch(replicas, partition, min_bytes=100, committed=True)
    [result] = await answer_to(steps, lambda: commit(partition))
    assert result.record_count == 2


async def test_a_failure_before_the_wait_ends_it(replicas, autojump_clock):
    [partition] = await partitions_of(replicas)
    gone = KafkaError("deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    [result] = await answer_to(fetch(replicas, partition), lambda: partition.fail(gone))
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_stop_of_the_broker_before_the_wait_ends_it(replicas, autojump_clock):
    [partition] = await partitions_of(replicas)
    [result] = await answer_to(fetch(replicas, partition), replicas.stop_waiting)
    assert (result.error_code, result.record_count) == (ErrorCode.NONE, 0)


async def test_bytes_that_were_found_and_those_that_come_before_the_wait_count_together(replicas, autojump_clock):
    first, second = await partitions_of(replicas, 2)
    append(first, b"v" * 1000)
    steps = fetch(replicas, first, second, min_bytes=2000)
    results = await answer_to(steps, lambda: append(second, b"v" * 1000))
    assert [result.record_count for result in results] == [1, 1]


async def test_too_few_bytes_before_the_wait_do_not_end_it(replicas, autojump_clock):
    [partition] = await partitions_of(replicas)
    began = trio.current_time()
    steps = fetch(replicas, partition, min_bytes=2000)
    wait = next(steps)
    append(partition, b"v" * 1000)
    [result] = await run_steps(steps, wait)
    assert trio.current_time() - began == WAIT_SECONDS
    assert result.record_count == 1


@pytest.mark.parametrize("moved", ["leader epoch", "high watermark", "last stable offset"])
async def test_what_moves_behind_a_long_walk_is_not_missed(replicas, autojump_clock, monkeypatch, moved):
    """The walk yields after its first partitions; the first of all moves then."""
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    first, *others = await partitions_of(replicas, READS_PER_LOOK + 1)
    append(first, b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    isolation = IsolationLevel.READ_UNCOMMITTED if moved == "high watermark" else IsolationLevel.READ_COMMITTED
    offset = 1 if moved == "high watermark" else 0
    targets = [FetchTarget(0, offset, 1 << 20, first, current_leader_epoch=0)]
    targets += [FetchTarget(index, 0, 1 << 20, other) for index, other in enumerate(others, 1)]
    steps = replicas.fetch_steps(
        targets, FetchLimits(WAIT_SECONDS, 1, 1 << 20, isolation), release_handler=ignore_release
    )
    wait = next(steps)
    match moved:
        case "leader epoch":
            await first.writer.make_leader(led(1), 0.0)
        case "high watermark":
            append(first, b"b")
        case _:
            commit(first)
    began = trio.current_time()
    results = await run_steps(steps, wait)
    assert trio.current_time() == began, "it waited all its time"
    if moved == "leader epoch":
        assert results[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    else:
        assert results[0].record_count > 0


async def test_a_walk_that_has_found_enough_registers_nowhere(replicas, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    partitions = await partitions_of(replicas, READS_PER_LOOK + 1)
    append(partitions[0], b"a")
    steps = fetch(replicas, *partitions)
    wait = next(steps)
    assert replicas.statistics().delayed_fetches == 0
    await run_steps(steps, wait)


async def test_one_that_is_given_up_before_its_wait_leaves_nothing_behind(replicas):
    [partition] = await partitions_of(replicas)
    steps = fetch(replicas, partition)
    next(steps)
    assert partition.delayed.fetches
    steps.close()
    assert not partition.delayed.fetches
    assert replicas.statistics().delayed_fetches == 0


async def test_an_append_during_a_cold_read_ends_the_wait(replicas, autojump_clock, monkeypatch):
    first, second = await partitions_of(replicas, 2)
    append(second, b"a")
    read = ReadableLog.read

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if nowait and not first.log_end_offset:
            raise BlockingIOError(errno.EAGAIN, "not in the cache")
        return read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)

    monkeypatch.setattr(ReadableLog, "read", cold)
    steps = fetch(replicas, first, second, min_bytes=1000)
    results = await answer_to(steps, lambda: append(first, b"v" * 1000))
    assert [result.record_count for result in results] == [1, 1]


@pytest.mark.parametrize("when", ["before it begins", "before its wait", "in its wait"])
async def test_a_client_that_goes_ends_its_wait(replicas, autojump_clock, when):
    [partition] = await partitions_of(replicas)
    limits = FetchLimits(WAIT_SECONDS, 1, 1 << 20)
    gone: list[Callable[[], None]] = []
    has_gone = when == "before it begins"
    steps = replicas.fetch_steps(
        [FetchTarget(0, 0, 1 << 20, partition)],
        limits,
        release_handler=ignore_release,
        when_unawaited=[lambda notify: notify() if has_gone else gone.append(notify)],
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_steps, steps, None if has_gone else next(steps))
        if when == "in its wait":
            await trio.testing.wait_all_tasks_blocked()
        for notify in gone:
            notify()
    assert trio.current_time() == 0
    assert replicas.statistics().delayed_fetches == 0
