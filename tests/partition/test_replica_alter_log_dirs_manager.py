"""Replicas move between the directories of a broker while they are used, and whatever ends a move leaves one log."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch, delete_topics, followed, led, make_replicas, sync
from tests.partition.replicating_brokers import epochs_of, runtime_in_memory
from tests.storage.log_content import fetched_data, found_values
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.entries import ConfigScope
from trio_broker.partition import replica_alter_log_dirs_manager
from trio_broker.partition.follower_appends import Truncation
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.disk_trace import DiskOperation, OperationKind
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.storage import future_log
from trio_broker.storage.file_names import PARTITION_METADATA

ONE, OTHER = PurePath("/one"), PurePath("/other")
ORDERS = TopicPartition("orders", 0)
CONFIGS = {"internal.segment.bytes": "2000"}


CHANGES_OF_NAMES = (
    OperationKind.MAKE_DIRECTORY,
    OperationKind.RENAME,
    OperationKind.SYNC_DIRECTORY,
    OperationKind.UNLINK,
    OperationKind.REMOVE_DIRECTORY,
)
"""Between two of these a broker may end at any time, and the same is there."""


@attrs.define(eq=False)
class World:
    """A broker with two data directories, and the partition ``orders-0``, which it leads, in the first of them."""

    clock: SimulatedClock
    disk: SimulatedDisk
    settings: dict[str, Any] = attrs.field(factory=lambda: {"log_durability": "page-cache"})
    replicas: ReplicaManager = attrs.field(init=False)
    written: int = 0

    async def open(self) -> World:
        runtime = runtime_in_memory(self.clock, self.disk, 1)
        self.replicas = make_replicas(ONE, others=[OTHER], runtime=runtime, **self.settings)
        await add_topic(self.replicas, configs=CONFIGS)
        return self

    @property
    def partition(self) -> Partition:
        return self.replicas.topic("orders").partition(0)

    @property
    def place(self) -> PurePath:
        """The directory that the partition is in."""
        return self.partition.log.directory.parent

    async def append(self, count: int = 10, **options: Any) -> None:
        for _ in range(count):
            self.written += 1
            await append_to_leader(self.replicas, self.partition, batch(b"%d" % self.written + b"v" * 500, **options))

    def numbers(self) -> list[int]:
        """Of the records that can be read."""
        return [int(value.rstrip(b"v")) for value in found_values(self.partition.log)]

    async def alter(self, directory: PurePath) -> None:
        await self.replicas.alter_log_dirs.alter(ORDERS, self.replicas.log_manager.directory(directory))

    def set_rate(self, bytes_per_second: int) -> None:
        rate = "replica.alter.log.dirs.io.max.bytes.per.second"
        self.replicas.config.set_dynamic(ConfigScope.BROKER, {rate: str(bytes_per_second)})

    async def until_moved(self) -> None:
        for _ in range(6000):
            if not self.replicas.alter_log_dirs.moves:
                return
            await trio.sleep(0.1)
        pytest.fail("it does not end")

    def names(self, ending: str = "") -> list[str]:
        """Of the directories of partitions."""
        return [
            each.name
            for directory in (ONE, OTHER)
            for each in self.disk.list_directory(directory)
            if each.is_directory and each.name.endswith(ending)
        ]


@pytest.fixture
async def world(nursery, autojump_clock):
    clock = SimulatedClock(autojump_clock)
    made = await World(clock, SimulatedDisk(clock)).open()
    await nursery.start(made.replicas.run)
    yield made
    nursery.cancel_scope.cancel()


async def test_a_replica_moves_with_all_that_it_knows_while_it_is_written_to(world, monkeypatch, autojump_clock):
    monkeypatch.setattr(future_log, "CHUNK_BYTES", 700)
    monkeypatch.setattr(replica_alter_log_dirs_manager, "CAUGHT_UP_BYTES", 2000)
    repeated = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    await world.append(30)
    await world.append(1, **repeated)
    await world.partition.writer.delete_before(3)
    await world.alter(OTHER)
    for _ in range(10):
        await world.append(1)
        await trio.lowlevel.checkpoint()
    assert world.place == ONE, "it was written to meanwhile"
    await world.until_moved()
    assert world.place == OTHER
    await world.append(5)
    assert world.numbers() == list(range(4, world.written + 1))
    assert world.partition.high_watermark == world.partition.log_end_offset == world.written
    assert epochs_of(world.partition) == [(0, 3)]
    # The producer is known still, so its batch is not appended again.
    await append_to_leader(world.replicas, world.partition, batch(b"31" + b"v" * 500, **repeated))
    assert world.partition.log_end_offset == world.written
    [retired] = world.names("-delete")
    assert retired.startswith("orders-0.")
    await world.alter(ONE)
    await world.until_moved()
    assert (world.place, len(world.numbers())) == (ONE, world.written - 3)


async def test_a_replica_that_moves_before_the_first_record_of_its_leader_epoch_takes_that_afterwards(
    world, autojump_clock
):
    await world.append(1)
    await world.partition.writer.make_leader(led(1), 0.0)
    await world.alter(OTHER)
    await world.until_moved()
    await world.append(1)
    assert (world.place, epochs_of(world.partition)) == (OTHER, [(0, 0), (1, 1)])


async def test_reads_under_way_go_on_in_the_new_place(world, autojump_clock):
    await world.append(20)
    before = world.partition.log.read(0, 100_000, end_offset=20)
    await world.alter(OTHER)
    await world.until_moved()
    assert len(fetched_data(before)) == before.size
    assert await world.replicas.run_in_thread(world.partition, lambda log: log.log_end_offset) == 20


async def test_a_move_takes_as_long_as_its_rate_says_and_shows_how_far_it_is(world, monkeypatch, autojump_clock):
    monkeypatch.setattr(future_log, "CHUNK_BYTES", 500)
    world.set_rate(1000)
    await world.append(40)
    size, began = world.partition.log.size_bytes, trio.current_time()
    await world.alter(OTHER)
    await trio.sleep(size / 2000)
    move = world.replicas.alter_log_dirs.moves[ORDERS]
    assert 0 < move.offset_lag < 40
    assert 0 < move.future.size_bytes < size
    await world.until_moved()
    # Indexes are copied too.
    assert 0.8 * size / 1000 < trio.current_time() - began < 2 * size / 1000


async def test_a_move_to_where_it_is_cancels_the_one_under_way(world, autojump_clock):
    world.set_rate(1)
    await world.append(20)
    await world.alter(OTHER)
    await trio.sleep(5)
    assert len(world.names("-future")) == 1
    await world.alter(ONE)
    assert (world.replicas.alter_log_dirs.moves, world.names("-future"), world.place) == ({}, [], ONE)


async def test_a_move_that_has_not_begun_gives_way_at_once_to_a_cancel_and_to_one_of_a_later_partition(
    world, autojump_clock
):
    world.set_rate(1)
    manager, log_manager, later = world.replicas.alter_log_dirs, world.replicas.log_manager, TopicPartition("later", 0)
    one, other = log_manager.directories
    log_manager.prefer(later, one)
    await add_topic(world.replicas, "later")
    await world.append(20)
    await world.alter(OTHER)
    await manager.alter(later, other)
    await trio.sleep(5)
    with trio.fail_after(1):
        await manager.alter(later, one)
    assert list(manager.moves) == [ORDERS]
    await manager.alter(later, other)
    await delete_topics(world.replicas, "later")
    log_manager.prefer(later, one)
    [created] = await add_topic(world.replicas, "later")
    await manager.alter(later, other)
    assert manager.moves[later].partition is created


async def test_a_move_waits_for_none_into_another_directory(world, autojump_clock):
    later, [one, other] = TopicPartition("later", 0), world.replicas.log_manager.directories
    world.replicas.log_manager.prefer(later, other)
    [partition] = await add_topic(world.replicas, "later")
    async with world.partition.writer.rest:
        await world.alter(OTHER)
        await trio.sleep(1)
        await world.replicas.alter_log_dirs.alter(later, one)
        await trio.sleep(1)
        assert (partition.log.directory.parent, world.place) == (ONE, ONE)
    await world.until_moved()
    assert world.place == OTHER


async def test_a_deleted_topic_ends_the_move_of_its_replica(world, autojump_clock):
    world.set_rate(1)
    await world.append(20)
    await world.alter(OTHER)
    await trio.sleep(5)
    await delete_topics(world.replicas, "orders")
    await world.until_moved()
    assert world.names("-future") == world.names("orders-0") == []


async def test_a_log_that_is_cut_meanwhile_is_copied_anew(world, monkeypatch, autojump_clock):
    monkeypatch.setattr(future_log, "CHUNK_BYTES", 500)
    world.set_rate(1000)
    await world.append(20)
    await world.alter(OTHER)
    await trio.sleep(3)
    world.partition.writer.make_follower(followed(1))
    assert not await world.replicas.follower_appends.truncate({world.partition: Truncation(2, 1)})
    await world.until_moved()
    assert (world.place, world.numbers()) == (OTHER, [1, 2])


async def test_a_move_that_loses_its_room_gives_back_what_it_has_and_waits_for_enough(
    world, autojump_clock, monkeypatch
):
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    moves, faults = world.replicas.alter_log_dirs.moves, world.disk.faults
    world.set_rate(1000)
    await world.append(20)
    await world.alter(OTHER)
    await trio.sleep(5)
    copied = moves[ORDERS].future
    assert copied.size_bytes > 0
    with monkeypatch.context() as patched:
        patched.setattr(future_log, "copy_file", refuse)
        await trio.sleep(100)
    assert (copied.size_bytes, copied.end_offset) == (0, 0)
    assert [each.name for each in world.disk.list_directory(copied.path)] == [PARTITION_METADATA]
    roomy_bytes = faults.total_bytes
    faults.total_bytes = roomy_bytes - world.disk.space(OTHER).usable_bytes + world.partition.log.size_bytes - 1
    await trio.sleep(100)
    assert (world.place, copied.size_bytes) == (ONE, 0)
    faults.total_bytes = roomy_bytes
    await world.until_moved()
    assert (world.place, len(world.numbers())) == (OTHER, 20)


async def test_a_move_to_where_there_is_no_room_is_refused_and_changes_nothing(world, autojump_clock):
    await world.append(20)
    faults, needed_bytes = world.disk.faults, world.partition.log.size_bytes
    faults.total_bytes += needed_bytes - 1 - world.disk.space(OTHER).usable_bytes
    with pytest.raises(KafkaError, match=r"has .* bytes left, of .* that are needed") as refused:
        await world.alter(OTHER)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (world.replicas.alter_log_dirs.moves, world.names("-future")) == ({}, [])
    # Where it is, it needs none.
    await world.alter(ONE)


@pytest.mark.parametrize("directory", [ONE, OTHER])
async def test_what_is_asked_for_first_of_all_counts_more_than_the_copy_of_the_last_run(autojump_clock, directory):
    clock = SimulatedClock(autojump_clock)
    world = await interrupted(clock, follows(2), SimulatedDisk.crash)
    assert world is not None
    assert (world.place, len(world.names("-future"))) == (ONE, 1)
    await world.alter(directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.replicas.run)
        await world.until_moved()
        nursery.cancel_scope.cancel()
    assert (world.place, world.names("-future")) == (directory, [])


async def test_a_replica_that_is_not_here_yet_is_made_in_the_directory_that_was_named(world, autojump_clock):
    for index in (1, 2):
        with pytest.raises(KafkaError) as refused:
            await world.replicas.alter_log_dirs.alter(
                TopicPartition("orders", index), world.replicas.log_manager.directory(ONE)
            )
        assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    await add_topic(world.replicas, partitions=3, configs=CONFIGS)
    assert {each.log.directory.parent for each in world.replicas.partitions()} == {ONE}


async def interrupted(
    clock: SimulatedClock,
    is_end: Callable[[DiskOperation], bool],
    end: Callable[[SimulatedDisk], SimulatedDisk],
    seed: int = 0,
) -> World | None:
    """The next life of a broker that ends in the middle of a move, before the operation that ``is_end``; None if the
    move ends before that."""
    world = await World(clock, SimulatedDisk(clock, seed)).open()
    await world.append(6)
    sync(world.partition)
    survivor = None

    def observe(operation: DiskOperation) -> None:
        nonlocal survivor
        if survivor is None and is_end(operation):
            survivor = end(world.disk)
            nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.replicas.run)
            await world.alter(OTHER)
            world.disk.trace.before = observe
            await world.until_moved()
            nursery.cancel_scope.cancel()
    except* ProcessEnded:
        pass
    if survivor is None:
        assert world.place == OTHER
        return None
    survivor.trace.before = None
    return await World(clock, survivor).open()


def follows(changes: int) -> Callable[[DiskOperation], bool]:
    """The operation behind so many changes of names."""
    seen = 0

    def is_next(operation: DiskOperation) -> bool:
        nonlocal seen
        seen += operation.kind in CHANGES_OF_NAMES
        return seen > changes

    return is_next


async def test_the_first_name_is_on_its_disk_before_the_second_is_given(world, autojump_clock):
    """The two are on different disks: a power cut would otherwise leave two logs."""
    names = []

    def note(operation: DiskOperation) -> None:
        if operation.kind in (OperationKind.RENAME, OperationKind.SYNC_DIRECTORY):
            names.append((operation.kind, operation.path, operation.target))

    await world.append(3)
    await world.alter(OTHER)
    world.disk.trace.before = note
    await world.until_moved()
    first = next(index for index, each in enumerate(names) if each[1] == ONE / "orders-0")
    second = next(index for index, each in enumerate(names) if each[2] == OTHER / "orders-0")
    assert (OperationKind.SYNC_DIRECTORY, ONE, None) in names[first:second]


@pytest.mark.parametrize("end", [SimulatedDisk.crash, SimulatedDisk.power_cut])
async def test_whenever_the_broker_ends_just_one_log_is_left_and_the_move_goes_on(autojump_clock, end):
    clock = SimulatedClock(autojump_clock)
    places = set()
    for cut_before in range(200):
        world = await interrupted(clock, follows(cut_before), end, cut_before)
        if world is None:
            break
        assert world.numbers() == [1, 2, 3, 4, 5, 6], cut_before
        assert len(world.names("orders-0")) == 1
        was_under_way = bool(world.names("-future"))
        places.add((world.place, was_under_way))
        async with trio.open_nursery() as nursery:
            await nursery.start(world.replicas.run)
            await trio.sleep(1)
            await world.until_moved()
            nursery.cancel_scope.cancel()
        assert world.numbers() == [1, 2, 3, 4, 5, 6], cut_before
        assert world.names("-future") == []
        assert not was_under_way or world.place == OTHER
    assert cut_before > 10
    assert places >= {(ONE, True), (OTHER, False)}
