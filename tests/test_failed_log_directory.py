"""One of the disks of a broker of several fails: other brokers lead what was on it, until it is back and has caught
up."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio.testing

from kafka_wire.error_codes import ErrorCode
from tests.running_broker import connected, until
from tests.test_shared_metadata import Cluster, opened_cluster
from trio_broker.broker import Broker
from trio_broker.cluster.metadata_image import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionImage
from trio_broker.common.topic_partition import TopicPartition

PARTITIONS = range(4)


async def create_topic(cluster: Cluster, brokers: dict[int, Broker]) -> None:
    """A topic that broker 1 leads and broker 2 follows, as both of them know."""
    async with connected(brokers[1]) as client:
        await client.create_placed_topic("orders", *[(1, 2)] * len(PARTITIONS))
    await cluster.followed(*brokers.values())


def image_of(broker: Broker, index: int, topic: str = "orders") -> PartitionImage:
    return broker.services.metadata_cache.image.topics[topic].partitions[index]


def indexes_in(broker: Broker, directory: Path, topic: str = "orders") -> set[int]:
    """The partitions that a broker has in a directory."""
    local = broker.services.replicas.topic(topic).partitions
    return {index for index, each in local.items() if each.log.directory.parent == directory}


def is_led_by(broker: Broker, index: int, leader: int, topic: str = "orders") -> bool:
    """Whether a broker knows that."""
    return image_of(broker, index, topic).leader == leader


async def produce_to_each(brokers: dict[int, Broker]) -> None:
    for index in PARTITIONS:
        leader = image_of(brokers[2], index).leader
        await until(partial(is_led_by, brokers[leader], index, leader))
        async with connected(brokers[leader]) as client:
            assert await client.produce("orders", b"value", partition=index) == ErrorCode.NONE


async def start(cluster: Cluster, node_id: int, *directories: Path) -> Broker:
    return await cluster.start(node_id, log_dirs=",".join(map(str, directories)))


async def move_one(brokers: dict[int, Broker], target: Path) -> None:
    """Have broker 1 move a replica to a directory, and all know of it."""
    replicas = brokers[1].services.replicas
    index = min(set(PARTITIONS) - indexes_in(brokers[1], target))
    directory_id = replicas.log_manager.directory_ids()[target]
    await replicas.alter_log_dirs.alter(TopicPartition("orders", index), replicas.log_manager.directory(target))
    await until(lambda: image_of(brokers[2], index).directory_of(1) == directory_id)


@pytest.mark.parametrize("name", ["first", "second"])
async def test_what_was_on_a_failed_disk_is_led_by_others_until_it_has_caught_up(tmp_path, name):
    directories, aside = [tmp_path / "1" / each for each in ("first", "second")], tmp_path / "aside"
    failing = tmp_path / "1" / name
    async with opened_cluster(tmp_path) as cluster:
        # The first one is the controller, to which the other one reports.
        brokers = {2: await start(cluster, 2, tmp_path / "2"), 1: await start(cluster, 1, *directories)}
        await create_topic(cluster, brokers)
        await until(
            lambda: all(image_of(brokers[2], each).directory_of(1) != UNASSIGNED_DIRECTORY for each in PARTITIONS)
        )
        await produce_to_each(brokers)
        await move_one(brokers, failing)
        failed = indexes_in(brokers[1], failing)
        assert 0 < len(failed) < len(PARTITIONS)
        failing.rename(aside)
        await brokers[1].services.replicas.log_maintenance.write_high_watermarks()
        led_by_2 = {each: {2} if each in failed else {1, 2} for each in PARTITIONS}
        await until(lambda: {each: set(image_of(brokers[2], each).isr) for each in PARTITIONS} == led_by_2)
        assert {each for each in PARTITIONS if image_of(brokers[2], each).leader == 2} == failed
        assert brokers[1].services.log_dir_failures.reason_not_served() == ""
        await produce_to_each(brokers)
        await cluster.stop(brokers[1])
        aside.rename(failing)
        brokers[1] = await start(cluster, 1, *directories)
        await until(lambda: all(set(image_of(brokers[2], each).isr) == {1, 2} for each in PARTITIONS))
        found = [brokers[1].services.replicas.find(TopicPartition("orders", each)) for each in PARTITIONS]
        assert [each and each.log_end_offset for each in found] == [2] * len(PARTITIONS)


async def test_a_broker_starts_without_a_directory_and_has_all_that_is_there_when_it_is_back(tmp_path):
    first, second = directories = [tmp_path / "1" / each for each in ("first", "second")]
    async with opened_cluster(tmp_path) as cluster:
        brokers = {2: await start(cluster, 2, tmp_path / "2"), 1: await start(cluster, 1, *directories)}
        await create_topic(cluster, brokers)
        async with connected(brokers[1]) as client:
            await client.create_placed_topic("alone", (1,), (1,))
            await cluster.followed(*brokers.values())
            for index in (0, 1):
                assert await client.produce("alone", b"value", partition=index) == ErrorCode.NONE
        await produce_to_each(brokers)
        lost = indexes_in(brokers[1], second)
        [alone] = indexes_in(brokers[1], second, "alone")
        first_id, second_id = brokers[1].services.replicas.log_manager.directory_ids().values()
        await until(lambda: image_of(brokers[2], alone, "alone").directory_of(1) == second_id)
        await cluster.stop(brokers[1])

        second.rename(tmp_path / "aside")
        second.touch()
        brokers[1] = await start(cluster, 1, *directories)
        others = [each for each in PARTITIONS if each not in lost]
        await until(lambda: all(set(image_of(brokers[2], each).isr) == {1, 2} for each in others))
        image = brokers[2].services.metadata_cache.image
        assert image.brokers[1].log_dirs == (first_id,)
        assert {each for each in PARTITIONS if image_of(brokers[2], each).isr == (2,)} == lost
        assert image_of(brokers[2], alone, "alone").leader == NO_LEADER
        assert brokers[1].services.replicas.topic("alone").failures.keys() == {alone}
        assert {path.name for path in first.glob("*-[0-9]")}.isdisjoint({f"orders-{each}" for each in lost})
        await produce_to_each(brokers)
        async with connected(brokers[1]) as client:
            await client.create_placed_topic("new", (1,), (1,))
            await cluster.followed(*brokers.values())
        assert indexes_in(brokers[1], first, "new") == {0, 1}
        await cluster.stop(brokers[1])

        second.unlink()
        (tmp_path / "aside").rename(second)
        brokers[1] = await start(cluster, 1, *directories)
        await until(lambda: all(set(image_of(brokers[2], each).isr) == {1, 2} for each in PARTITIONS))
        found = [brokers[1].services.replicas.find(TopicPartition("orders", each)) for each in PARTITIONS]
        assert [each and each.log_end_offset for each in found] == [2] * len(PARTITIONS)
        await until(partial(is_led_by, brokers[1], alone, 1, "alone"))
        async with connected(brokers[1]) as client:
            assert await client.produce("alone", b"value", partition=alone) == ErrorCode.NONE
        kept = brokers[1].services.replicas.find(TopicPartition("alone", alone))
        assert kept is not None
        assert kept.log_end_offset == 2
        await cluster.stop(brokers[1])

        # Without the directory for good: what others have is copied, and what nobody has is not taken for empty.
        brokers[1] = await start(cluster, 1, first)
        await until(lambda: all(set(image_of(brokers[2], each).isr) == {1, 2} for each in PARTITIONS))
        await until(lambda: image_of(brokers[2], alone, "alone").directory_of(1) == first_id)
        assert image_of(brokers[2], alone, "alone").leader == NO_LEADER


async def test_a_broker_with_one_directory_reports_nothing(tmp_path):
    async with opened_cluster(tmp_path) as cluster:
        brokers = {node_id: await cluster.start(node_id) for node_id in (1, 2)}
        await create_topic(cluster, brokers)
        await produce_to_each(brokers)
        await cluster.followed(*brokers.values())
        await trio.testing.wait_all_tasks_blocked()
        for each in PARTITIONS:
            assert set(image_of(brokers[2], each).directories) == {UNASSIGNED_DIRECTORY}
