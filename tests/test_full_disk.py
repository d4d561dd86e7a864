"""A broker on a disk that is full, or without descriptors, and how it comes back when it is not."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePath
from typing import cast

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.primitives import NO_UUID
from tests.handlers.group_client import GroupClient
from tests.handlers.wire_client import WireClient
from tests.running_broker import Connection, connected, make_broker, until
from trio_broker.broker import Broker, StartupError, single_startup_error
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.clock import SystemClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage.log_directory import RESERVE_BYTES, RESERVE_PART_BYTES

DATA = PurePath("/data")
RESERVE = DATA / ".space-reserve"
ROOMY_BYTES = 1 << 40
NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(SystemClock())


def broker_on(disk: SimulatedDisk) -> Broker:
    broker = make_broker(Path(DATA), offsets_topic_num_partitions="1", log_segment_bytes=str(1 << 20))
    return Broker(broker.config, runtime=attrs.evolve(real_runtime(), disk=disk))


@asynccontextmanager
async def running_on(disk: SimulatedDisk) -> AsyncIterator[Broker]:
    broker = broker_on(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        yield broker
        broker.stop()


def fill(disk: SimulatedDisk, usable_bytes: int = 0) -> None:
    space = disk.space(DATA)
    disk.faults.total_bytes = space.total_bytes - space.usable_bytes + usable_bytes


def empty(disk: SimulatedDisk) -> None:
    disk.faults.total_bytes = ROOMY_BYTES


def exhaust_reserve(disk: SimulatedDisk) -> None:
    """Leave neither free space nor any that is kept back."""
    disk.unlink(RESERVE)
    fill(disk)


def new_partitions(topic: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=1000, validate_only=False
    )


def without_descriptors_in(disk: SimulatedDisk, directory: str) -> None:
    """Let no file of a partition be opened."""
    disk.faults.applies_to = lambda path: directory in path.parts
    disk.faults.failing_opens = 1.0


def with_descriptors(disk: SimulatedDisk) -> None:
    disk.faults.failing_opens = 0.0


def group_client(client: Connection) -> GroupClient:
    return GroupClient(cast(WireClient, client))


async def find_coordinator(client: Connection) -> None:
    """Have the topic of the groups' offsets created."""
    response = await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert response.coordinators[0].error_code == ErrorCode.NONE


async def test_a_topic_for_which_there_is_no_room_is_an_error_and_not_there(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        fill(disk)
        assert await client.try_create_topic("orders") == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders" not in broker.services.metadata_cache.image.topics
        empty(disk)
        await client.create_topic("orders")
        assert await client.produce("orders", b"one") == ErrorCode.NONE


async def test_a_topic_of_which_a_partition_got_no_log_is_an_error_and_deleted_again(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        without_descriptors_in(disk, "orders-1")
        assert await client.try_create_topic("orders", 3) == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders" not in broker.services.metadata_cache.image.topics
        assert not disk.exists(DATA / "orders-1")
        with_descriptors(disk)
        await client.create_topic("orders", 3)
        assert await client.produce("orders", b"one", partition=1) == ErrorCode.NONE


async def test_added_partitions_without_a_log_are_reported_and_come_by_themselves(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        without_descriptors_in(disk, "orders-1")
        response = await client.ask(new_partitions("orders", 3), 3)
        assert response.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "has 3 partitions now, and not all have a log yet" in response.results[0].error_message
        assert await client.produce("orders", b"one", partition=1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.produce("orders", b"one", partition=2) == ErrorCode.NONE
        with_descriptors(disk)
        await broker.services.replicas.retry_after_shortage()
        assert await client.produce("orders", b"one", partition=1) == ErrorCode.NONE


async def test_a_partition_that_could_not_be_recovered_for_a_shortage_comes_by_itself(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await client.produce("orders", b"one")
    broker = broker_on(disk)
    async with trio.open_nursery() as nursery:
        without_descriptors_in(disk, "orders-0")
        await nursery.start(broker.run)
        async with connected(broker) as client:
            assert await client.produce("orders", b"two") == ErrorCode.KAFKA_STORAGE_ERROR
            with_descriptors(disk)
            await broker.services.replicas.retry_after_shortage()
            assert await client.produce("orders", b"two") == ErrorCode.NONE
            assert await client.values("orders") == [b"one", b"two"]
        broker.stop()


async def test_the_groups_of_a_partition_that_comes_later_are_loaded_then(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await find_coordinator(client)
        assert await group_client(client).commit(9, topic="orders", offset=42) == [ErrorCode.NONE]
    broker = broker_on(disk)
    async with trio.open_nursery() as nursery:
        without_descriptors_in(disk, "__consumer_offsets-0")
        await nursery.start(broker.run)
        async with connected(broker) as client:
            groups = group_client(client)
            assert await groups.fetch(9, topic="orders") == [(ErrorCode.NOT_COORDINATOR, -1)]
            assert await groups.commit(9, topic="orders", offset=43) == [ErrorCode.NOT_COORDINATOR]
            with_descriptors(disk)
            await broker.services.replicas.retry_after_shortage()
            await until(lambda: list(broker.services.groups.runtime.active_shards()))
            assert await groups.fetch(9, topic="orders") == [(ErrorCode.NONE, 42)]
            assert await groups.commit(9, topic="orders", offset=43) == [ErrorCode.NONE]
        broker.stop()


async def delete_before(client: Connection, offset: int) -> DeleteRecordsPartitionResult:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[partition])], timeout_ms=0)
    response = await client.ask(wanted, 2)
    [topic] = response.topics
    result: DeleteRecordsPartitionResult
    [result] = topic.partitions
    return result


async def delete_topic(client: Connection, name: str) -> int:
    response = await client.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=NO_UUID)], timeout_ms=0), 6
    )
    code: int = response.responses[0].error_code
    return code


async def test_on_a_full_disk_records_and_topics_can_be_deleted_with_the_space_kept_back(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await client.create_topic("payments")
        for _ in range(3):
            assert await client.produce("orders", b"x" * 1000) == ErrorCode.NONE
        fill(disk)
        assert await client.produce("orders", b"x" * 1000) == ErrorCode.KAFKA_STORAGE_ERROR
        result = await delete_before(client, 2)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)
        assert await delete_topic(client, "payments") == ErrorCode.NONE
        # A producer that waits for space gets little of what was kept back.
        assert disk.status(RESERVE).size_bytes >= RESERVE_BYTES - 2 * RESERVE_PART_BYTES
        empty(disk)
        await broker.services.replicas.log_maintenance.sample_disk_usage()
        assert disk.status(RESERVE).size_bytes == RESERVE_BYTES
        assert await client.produce("orders", b"x" * 1000) == ErrorCode.NONE


async def test_checkpoints_leave_the_space_that_is_kept_back_for_deletions(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        assert await client.produce("orders", b"x" * 1000) == ErrorCode.NONE
        fill(disk)
        for task in broker.services.replicas.log_maintenance.tasks():
            await task.run()
        assert disk.status(RESERVE).size_bytes == RESERVE_BYTES
        assert (await delete_before(client, 1)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("count", [1, 5])
async def test_what_is_deleted_on_a_full_disk_leaves_it_at_once(disk, count):
    """Also where all of it is in the active segment."""
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await client.create_topic("payments")
        for _ in range(count):
            assert await client.produce("orders", b"x" * 400_000) == ErrorCode.NONE
            assert await client.produce("payments", b"x" * 400_000) == ErrorCode.NONE
            if count > 1:
                broker.services.replicas.log_manager.logs[ORDERS].roll(NOW_MS)
        fill(disk)
        usable_before = disk.space(DATA).usable_bytes
        assert (await delete_before(client, count)).error_code == ErrorCode.NONE
        freed = disk.space(DATA).usable_bytes - usable_before
        assert freed > 0.9 * count * 400_000
        fill(disk)
        assert await delete_topic(client, "payments") == ErrorCode.NONE
        await until(lambda: disk.space(DATA).usable_bytes > 0.9 * count * 400_000)
        empty(disk)
        assert await client.produce("orders", b"y") == ErrorCode.NONE
        assert await client.values("orders", offset=count) == [b"y"]


async def test_what_is_deleted_stays_for_slow_readers_where_there_is_room(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        assert await client.produce("orders", b"x" * 1000) == ErrorCode.NONE
        broker.services.replicas.log_manager.logs[ORDERS].roll(NOW_MS)
        assert await client.produce("orders", b"x" * 1000) == ErrorCode.NONE
        assert (await delete_before(client, 2)).error_code == ErrorCode.NONE
        names = {entry.name for entry in disk.list_directory(DATA / "orders-0")}
        assert {"00000000000000000000.log.deleted", "00000000000000000001.log"} < names


async def test_a_start_on_a_full_disk_takes_the_space_kept_back(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await client.produce("orders", b"one")
    fill(disk)
    async with running_on(disk) as broker, connected(broker) as client:
        assert await client.values("orders") == [b"one"]
        assert disk.status(RESERVE).size_bytes == RESERVE_BYTES - RESERVE_PART_BYTES


async def test_a_start_on_a_full_disk_without_that_is_refused_with_one_line(disk):
    async with running_on(disk):
        pass
    exhaust_reserve(disk)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(broker_on(disk).run)
    error = single_startup_error(caught.value)
    assert isinstance(error, StartupError)
    assert str(error).startswith("cannot start: /data/")
    assert str(error).endswith("No space left on device: make some room for the start")
    assert "\n" not in str(error)


async def test_a_start_on_a_full_disk_removes_what_is_deleted_before_it_writes(disk):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await client.create_topic("dropped")
        for topic in ("orders", "dropped", "orders"):
            await client.produce(topic, b"x" * 600_000)
        # The records are of 2023.
        await broker.services.replicas.log_maintenance.apply_retention()
        dropped = DeleteTopicsRequest(topics=[DeleteTopicState(name="dropped", topic_id=NO_UUID)], timeout_ms=0)
        await client.ask(dropped, 6)
        await client.produce("orders", b"last")
    left = {each.name for each in disk.list_directory(DATA) if each.name.endswith("-delete")}
    left |= {each.name for each in disk.list_directory(DATA / "orders-0") if each.name.endswith(".log.deleted")}
    assert len(left) == 3
    exhaust_reserve(disk)
    async with running_on(disk) as broker, connected(broker) as client:
        assert await client.produce("orders", b"one") == ErrorCode.NONE
        assert broker.services.replicas.topic("orders").partition(0).log_end_offset == 4
    for directory in (DATA, DATA / "orders-0"):
        assert not left & {each.name for each in disk.list_directory(directory)}


async def test_a_flood_of_refused_appends_is_a_line_with_a_count(disk, caplog):
    async with running_on(disk) as broker, connected(broker) as client:
        await client.create_topic("orders")
        assert await client.produce("orders", b"one") == ErrorCode.NONE
        fill(disk)
        for _ in range(20):
            assert await client.produce("orders", b"x" * 1000) == ErrorCode.KAFKA_STORAGE_ERROR
    assert sum("write refused, disk full" in each.getMessage() for each in caplog.records) == 1


async def test_on_a_disk_that_is_small_a_share_is_kept_back(disk, caplog):
    disk.faults.total_bytes = 16 << 20
    async with running_on(disk) as broker, connected(broker) as client:
        assert disk.status(RESERVE).size_bytes == (2 << 20) - RESERVE_PART_BYTES
        await client.create_topic("orders")
        assert await client.produce("orders", b"x" * 400_000) == ErrorCode.NONE
        fill(disk)
        assert (await delete_before(client, 1)).error_code == ErrorCode.NONE
        assert disk.space(DATA).usable_bytes > 300_000
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_no_space_is_kept_back_where_there_is_hardly_any(disk, caplog):
    disk.faults.total_bytes = RESERVE_PART_BYTES
    async with running_on(disk):
        assert not disk.exists(RESERVE)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
