"""DescribeLogDirs: every directory, the sizes of its partitions, the room on its volume."""

from __future__ import annotations

import errno
import shutil

import pytest

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_log_dirs import (
    UNKNOWN_BYTES,
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
)
from tests.handlers.loop_rounds import counted_rounds
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch, delete_topics
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.describe_log_dirs import describe_log_dirs, error_response
from trio_broker.storage.log_directory import LogDirectory

PAYMENTS_ID = bytes(range(1, 17))


def naming(*topics, partitions=(0,)):
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=topic, partitions=list(partitions)) for topic in topics]
    )


async def ask(client, request=None, version=5):
    """The results for ``request``, or for all partitions."""
    response = await client.ask(describe_log_dirs, request or DescribeLogDirsRequest(topics=None), version)
    assert response.error_code == 0
    return response.results


def sizes(result):
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.fixture
async def partitions(replicas):
    """``orders`` with two partitions, of which the first has two batches, and ``payments`` with one."""
    made = [*await add_topic(replicas, partitions=2), *await add_topic(replicas, "payments", topic_id=PAYMENTS_ID)]
    for _ in range(2):
        await append_to_leader(replicas, made[0], batch(b"a", b"b"))
    return made


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_null_asks_for_every_partition(client, partitions, version):
    [result] = await ask(client, version=version)
    assert sizes(result) == {("orders", 0): 2 * len(batch(b"a", b"b")), ("orders", 1): 0, ("payments", 0): 0}
    assert result.error_code == 0


async def test_a_size_is_that_of_the_segment_files(client, partitions, replicas):
    partitions[0].log.roll(replicas.clock.now_ms())
    await append_to_leader(replicas, partitions[0], batch(b"in the second segment"))
    [result] = await ask(client)
    files = list(partitions[0].log.directory.glob("*.log"))
    assert len(files) == 2
    assert sizes(result)["orders", 0] == sum(file.stat().st_size for file in files)


async def test_a_leader_neither_lags_nor_moves(client, partitions):
    [result] = await ask(client, naming("orders"))
    assert result.topics[0].partitions == [
        DescribeLogDirsPartition(
            partition_index=0, partition_size=partitions[0].log.size_bytes, offset_lag=0, is_future_key=False
        )
    ]


async def test_only_what_is_named_is_described_and_once(client, partitions):
    [result] = await ask(client, naming("orders", "orders", partitions=(1, 1)))
    assert [topic.name for topic in result.topics] == ["orders"]
    assert [partition.partition_index for partition in result.topics[0].partitions] == [1]


async def test_what_is_not_here_is_left_out_without_an_error(client, partitions):
    [result] = await ask(client, naming("orders", "nothing", partitions=(0, 7, -1)))
    assert set(sizes(result)) == {("orders", 0)}


async def test_an_empty_list_asks_for_the_directories_alone(client, partitions):
    [result] = await ask(client, naming())
    assert (result.error_code, result.topics) == (0, [])


async def test_a_directory_is_reported_by_its_absolute_path_with_the_room_on_its_volume(client, partitions, tmp_path):
    [result] = await ask(client)
    usage = shutil.disk_usage(tmp_path)
    assert result.log_dir == str(tmp_path / "data")
    assert result.total_bytes == usage.total
    assert 0 < result.usable_bytes < usage.total
    assert not result.is_cordoned


async def test_before_version_4_nothing_is_said_of_volumes(client, partitions):
    [result] = await ask(client, version=3)
    assert (result.total_bytes, result.usable_bytes) == (UNKNOWN_BYTES, UNKNOWN_BYTES)


async def test_each_directory_has_its_own_partitions(open_wire_client, tmp_path):
    directories = [tmp_path / "one", tmp_path / "two"]
    wire = await open_wire_client(log_dirs=",".join(map(str, directories)))
    await wire.create_topic("spread", partitions=4)
    response = await wire.ask(DescribeLogDirsRequest(topics=None), 5)
    assert [result.log_dir for result in response.results] == [str(directory) for directory in directories]
    for result, directory in zip(response.results, directories, strict=True):
        assert len(sizes(result)) == 2
        assert all((directory / f"{topic}-{index}").is_dir() for topic, index in sizes(result))


async def test_a_directory_whose_disk_failed_answers_storage_error_without_topics(client, partitions, replicas):
    replicas.failures.storage_failed(partitions[0], OSError(errno.EIO, "gone"))
    [result] = await ask(client)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (result.total_bytes, result.usable_bytes) == (UNKNOWN_BYTES, UNKNOWN_BYTES)


async def test_a_volume_that_cannot_be_measured_answers_storage_error(client, partitions, monkeypatch):
    def fail(self):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(LogDirectory, "volume_space", fail)
    [result] = await ask(client)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


async def test_a_topic_may_be_deleted_while_many_are_described(client, partitions, replicas, nursery, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)  # a checkpoint after every partition
    nursery.start_soon(delete_topics, replicas, "orders")
    [result] = await ask(client)
    assert ("payments", 0) in sizes(result)


async def test_other_tasks_run_while_many_partitions_are_described(client, partitions, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    async with counted_rounds() as rounds:
        await ask(client, naming("orders", partitions=range(1000)))
    assert rounds.count >= 1000


@pytest.mark.parametrize(("version", "code"), [(2, 0), (3, ErrorCode.UNKNOWN_SERVER_ERROR)])
def test_a_refusal_is_reported_for_the_whole_request_where_the_version_can(version, code):
    response = error_response(
        DescribeLogDirsRequest(topics=None), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    )
    read, _ = decode(type(response), version, encode_bytes(response, version))
    assert (read.error_code, read.results) == (code, [])
