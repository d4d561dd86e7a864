"""AlterReplicaLogDirs: which moves begin, and how each that cannot is answered."""

from __future__ import annotations

import errno

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafka_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.handlers.loop_rounds import counted_rounds
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.alter_replica_log_dirs import error_response


def moving(*moves):
    """A request of these moves: each a path, a topic, and partitions."""
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=partitions)])
            for path, topic, *partitions in moves
        ]
    )


def codes(response):
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in response.results
        for partition in topic.partitions
    }


@pytest.fixture
async def wire(open_wire_client, tmp_path):
    """A client of a broker with the log directories ``one`` and ``two`` and a topic with a partition in each."""
    opened = await open_wire_client(log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}")
    await opened.create_topic("orders", partitions=2)
    return opened


def partition_of(wire, index):
    return wire.services.replicas.topic("orders").partition(index)


def home(wire, index):
    return partition_of(wire, index).log.directory.parent


@pytest.mark.parametrize("version", [1, 2])
async def test_a_replica_that_is_in_its_directory_is_answered_without_an_error(wire, version):
    response = await wire.ask(moving((home(wire, 0), "orders", 0), (home(wire, 1), "orders", 1)), version)
    assert codes(response) == {("orders", 0): 0, ("orders", 1): 0}


async def test_a_move_is_answered_when_it_has_begun_and_shown_until_it_ends(wire):
    homes, delayed = [home(wire, index) for index in range(2)], wire.delayed
    response = await wire.ask(moving((homes[1], "orders", 0), (homes[0], "orders", 1)), 2)
    assert codes(response) == dict.fromkeys([("orders", 0), ("orders", 1)], ErrorCode.NONE)
    assert wire.delayed == delayed + 1, "a move that is cancelled would hold the slot until it has ended"
    described = await wire.ask(DescribeLogDirsRequest(topics=None), 5)
    shown = {
        (each.log_dir, partition.partition_index): partition.is_future_key
        for each in described.results
        for topic in each.topics
        for partition in topic.partitions
    }
    one, two = map(str, homes)
    assert shown == {(one, 0): False, (two, 1): False, (two, 0): True, (one, 1): True}


async def test_a_replica_that_may_yet_come_here_is_not_available(wire):
    """In a cluster it is on its way from another broker."""
    image = wire.services.metadata_cache.image
    partitions = {**image.topics["orders"].partitions, 2: image.topics["orders"].partitions[0]}
    topic = attrs.evolve(image.topics["orders"], partitions=partitions)
    wire.services.metadata_cache.set_image(attrs.evolve(image, topics={"orders": topic}))
    response = await wire.ask(moving((home(wire, 0), "orders", 2)), 2)
    assert codes(response) == {("orders", 2): ErrorCode.REPLICA_NOT_AVAILABLE}


async def test_a_topic_whose_copy_would_have_too_long_a_name_stays(wire):
    name = "t" * 249
    await wire.create_topic(name)
    assert codes(await wire.ask(moving((home(wire, 0), name, 0)), 2)) == {(name, 0): ErrorCode.INVALID_TOPIC_EXCEPTION}


@pytest.mark.parametrize("path", ["/nowhere", "one", "", "{home}/", "{home}/../{name}"])
async def test_a_path_that_is_not_spelled_as_in_log_dirs_is_not_found(wire, path):
    path = path.format(home=home(wire, 0), name=home(wire, 0).name)
    response = await wire.ask(moving((path, "orders", 0)), 2)
    assert codes(response) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}


@pytest.mark.parametrize(
    ("topic", "index"), [("orders", 9), ("orders", -1), ("nothing", 0), ("bad/name", 0), ("__cluster_metadata", 0)]
)
async def test_a_partition_that_is_not_here_has_an_error_of_its_own(wire, topic, index):
    response = await wire.ask(moving((home(wire, 0), "orders", 0), (home(wire, 0), topic, index)), 2)
    assert codes(response) == {("orders", 0): 0, (topic, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_the_directory_is_looked_at_before_the_partition(wire):
    response = await wire.ask(moving(("/nowhere", "nothing", 0)), 2)
    assert codes(response) == {("nothing", 0): ErrorCode.LOG_DIR_NOT_FOUND}


async def test_of_two_directories_for_one_partition_the_last_counts(wire):
    response = await wire.ask(moving((home(wire, 0), "orders", 0), ("/nowhere", "orders", 0)), 2)
    assert codes(response) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert len(response.results[0].partitions) == 1


@pytest.mark.parametrize("index", [0, 1])
async def test_a_failed_disk_answers_storage_error_for_its_directory_and_its_replicas(wire, index):
    failed = home(wire, 0)
    wire.services.replicas.failures.storage_failed(partition_of(wire, 0), OSError(errno.EIO, "gone"))
    from_or_to_it = moving((failed, "orders", index), (home(wire, 1), "orders", 0))
    response = await wire.ask(from_or_to_it, 2)
    assert set(codes(response).values()) == {ErrorCode.KAFKA_STORAGE_ERROR}


async def test_other_tasks_run_while_many_replicas_are_looked_at(wire, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    async with counted_rounds() as rounds:
        await wire.ask(moving((home(wire, 0), "orders", *range(500))), 2)
    assert rounds.count > 400


def test_a_refusal_is_reported_for_every_replica():
    response = error_response(moving(("/one", "orders", 0, 1)), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert codes(response) == {("orders", 0): -1, ("orders", 1): -1}
