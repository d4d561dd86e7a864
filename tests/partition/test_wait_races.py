"""What a request waits for in a partition may happen at any moment of its wait, and ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from tests.partition.real_logs import NOW_MS, add_topic, batch, commit, make_replicas, sync, write_epoch_entry
from tests.scheduling import RACES, Race, begun, outcomes
from trio_broker.common.request_phase import ignore_release
from trio_broker.partition.command_queue import CommandQueue
from trio_broker.partition.delayed_operations import DelayedProduce, ExpirationReaper
from trio_broker.partition.fetch_operation import FetchLimits, FetchTarget
from trio_broker.partition.flusher import Flusher
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.log_cleaner import _Round
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.real_workers import RealWorkers

GONE = KafkaError("gone", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.fixture(params=["fsync", "page-cache"])
def replicas(request, tmp_path):
    made = make_replicas(tmp_path / "data", log_durability=request.param)
    yield made
    made.log_manager.close(clean=False)


async def new_partitions(replicas: ReplicaManager) -> Iterator[Partition]:
    """One for each race. Made before, since that takes a thread, for which a clock that jumps does not wait."""
    partitions = await add_topic(replicas, partitions=RACES)
    for partition in partitions:
        write_epoch_entry(partition)
    return iter(partitions)


def append(partition: Partition, **options: Any) -> None:
    """Append a record that readers may see at once: in fsync mode its sync is reported in the same turn."""
    partition.writer.append(batch(b"value", **options), now_ms=NOW_MS)
    if partition.writer.needs_sync:
        sync(partition)


def end_transaction(partition: Partition) -> None:
    commit(partition)
    if partition.writer.needs_sync:
        sync(partition)


def fetch(
    replicas: ReplicaManager, partition: Partition, *, committed: bool = False
) -> Callable[[], Awaitable[tuple[ErrorCode, int]]]:
    """Look now; what waits then returns the error code and how many records there are."""
    isolation_level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    limits = FetchLimits(60.0, 1, 1 << 20, isolation_level)
    target = FetchTarget(0, 0, 1 << 20, partition)
    wait = begun(replicas.fetch_steps([target], limits, release_handler=ignore_release))

    async def fetched() -> tuple[ErrorCode, int]:
        [result] = await wait()
        return result.error_code, result.record_count

    return fetched


async def test_a_fetch_ends_with_an_append(replicas, autojump_clock):
    partitions = await new_partitions(replicas)

    async def new_race() -> Race[Any]:
        partition = next(partitions)
        return Race(fetch(replicas, partition), partial(append, partition))

    assert set(await outcomes(new_race)) == {(ErrorCode.NONE, 1)}


async def test_a_fetch_of_committed_records_ends_with_the_transaction_that_holds_them_back(replicas, autojump_clock):
    partitions = await new_partitions(replicas)

    async def new_race() -> Race[Any]:
        partition = next(partitions)
        append(partition, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        return Race(fetch(replicas, partition, committed=True), partial(end_transaction, partition))

    assert set(await outcomes(new_race)) == {(ErrorCode.NONE, 2)}


@pytest.mark.parametrize("end", [Partition.fail, None], ids=["its partition", "the broker"])
async def test_a_fetch_ends_with(replicas, autojump_clock, end):
    partitions = await new_partitions(replicas)

    async def new_race() -> Race[Any]:
        replicas.stops_waiting = False
        partition = next(partitions)
        event: Callable[[], object] = replicas.stop_waiting if end is None else partial(end, partition, GONE)
        return Race(fetch(replicas, partition), event)

    code = ErrorCode.NONE if end is None else GONE.code
    assert {found for found, _ in await outcomes(new_race)} == {code}


@pytest.mark.parametrize("end", [sync, partial(Partition.fail, failure=GONE)], ids=["its sync", "its partition"])
async def test_a_produce_ends_with(tmp_path, autojump_clock, end):
    replicas = make_replicas(tmp_path / "durable")
    partitions = await new_partitions(replicas)

    async def new_race() -> Race[Any]:
        partition = next(partitions)
        partition.writer.append(batch(b"value"), now_ms=NOW_MS)
        required = [RequiredOffset(partition, partition.log_end_offset)]
        wait = begun(replicas.appends.replication_steps(required, timeout_seconds=60, release_handler=ignore_release))
        return Race(wait, partial(end, partition))

    [codes] = {tuple(codes) for codes in await outcomes(new_race)}
    assert codes == ((ErrorCode.NONE,) if end is sync else (GONE.code,))
    replicas.log_manager.close(clean=False)


async def test_what_waits_for_the_end_of_a_sync_goes_on_with_it(replicas, autojump_clock):
    """As the deletion of a topic does, before its files are closed."""
    partitions = await new_partitions(replicas)

    async def new_race() -> Race[None]:
        writer = next(partitions).writer
        flusher = Flusher(RealWorkers(), 1, lambda partition, error: None)
        flusher._runs, flusher._under_way[writer] = True, None
        return Race(partial(flusher.wait_idle, writer), partial(flusher._go_on, writer, None))

    await outcomes(new_race)


async def test_a_round_of_compaction_ends_with_its_partition_at_whatever_moment(
    replicas, autojump_clock, nursery, monkeypatch
):
    partitions = await new_partitions(replicas)
    cleaner = replicas.log_maintenance.log_cleaner

    async def compact(*arguments: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(cleaner, "compact", compact)

    async def new_race() -> Race[None]:
        partition = next(partitions)
        cleaner._rounds[partition] = _Round()
        begin = partial(nursery.start_soon, cleaner._perform, partition, None)
        return Race(partial(cleaner.wait_idle, partition), begin)

    await outcomes(new_race)
    assert not cleaner.statistics().under_way


async def test_a_command_begins_when_the_one_before_has_ended(autojump_clock, nursery):
    async def new_race() -> Race[None]:
        queue, gate = CommandQueue(), trio.Event()
        nursery.start_soon(queue.execute, gate.wait)
        await trio.testing.wait_all_tasks_blocked()
        return Race(partial(queue.execute, trio.lowlevel.checkpoint), gate.set)

    await outcomes(new_race)


async def test_a_produce_without_a_task_ends_with_its_time_whenever_it_comes(autojump_clock):
    """An earlier one may come at any moment of the wait for the earliest."""

    async def new_race() -> Race[None]:
        reaper, completed = ExpirationReaper(), trio.Event()
        DelayedProduce(100, reaper).when_complete(lambda: None)

        async def wait() -> None:
            async with trio.open_nursery() as reaping:
                reaping.start_soon(reaper.run)
                await completed.wait()
                reaping.cancel_scope.cancel()

        return Race(wait, lambda: DelayedProduce(0, reaper).when_complete(completed.set))

    await outcomes(new_race)
