"""DeleteRecords: the log start offset moves up, and stays there."""

from __future__ import annotations

import errno
from pathlib import PurePath

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch, followed
from trio_broker.handlers.delete_records import delete_records, error_response
from trio_broker.storage.log import Log


def request(offset, *, topic="orders", index=0):
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)


async def ask(client, offset, version=2, **fields):
    response = await client.ask(delete_records, request(offset, **fields), version)
    [[partition]] = [topic.partitions for topic in response.topics]
    return partition


@pytest.fixture
async def partition(replicas):
    [made] = await add_topic(replicas)
    await append_to_leader(replicas, made, batch(b"a", b"b", b"c"))
    return made


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_low_watermark_is_the_new_log_start_offset(client, partition, version):
    answer = await ask(client, 2, version)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert partition.log_start_offset == 2


async def test_minus_one_is_the_high_watermark(client, partition):
    assert (await ask(client, -1)).low_watermark == 3


async def test_a_start_that_is_passed_already_stays_where_it_is(client, partition):
    await ask(client, 2)
    answer = await ask(client, 1)
    assert (answer.error_code, answer.low_watermark) == (0, 2)


@pytest.mark.parametrize("offset", [4, -2])
async def test_an_offset_that_is_not_there_answers_1(client, partition, offset):
    answer = await ask(client, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_what_is_not_durable_is_not_deleted(durable_client, durable_replicas, monkeypatch):
    [partition] = await add_topic(durable_replicas)
    monkeypatch.setattr(durable_replicas.flusher, "request", lambda partition: None)
    await append_to_leader(durable_replicas, partition, batch(b"a"))
    assert (await ask(durable_client, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await ask(durable_client, -1)).low_watermark == 0


async def test_a_deletion_that_was_made_is_answered_as_such_also_if_the_leadership_is_lost_then(
    client, replicas, partition, monkeypatch
):
    write = replicas.log_maintenance.write_deletions

    async def lose() -> dict[PurePath, OSError]:
        partition.writer.make_follower(followed(1))
        failed: dict[PurePath, OSError] = await write()
        return failed

    monkeypatch.setattr(replicas.log_maintenance, "write_deletions", lose)
    assert (await ask(client, 2)).low_watermark == 2
    assert (await ask(client, 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_unknown_partitions_answer_3(client, partition):
    assert (await ask(client, 1, topic="nothing")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(client, 1, index=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_of_compacted_topics_are_not_deleted_by_offset(client, replicas):
    await add_topic(replicas, configs={"cleanup.policy": "compact"})
    assert (await ask(client, 0)).error_code == ErrorCode.POLICY_VIOLATION


async def test_internal_topics_are_left_alone(client, replicas):
    await add_topic(replicas, "__consumer_offsets")
    assert (await ask(client, 0, topic="__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_disk_that_fails_answers_storage_error(client, partition, monkeypatch):
    def fail(self, offset):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(Log, "advance_log_start", fail)
    assert (await ask(client, 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_refusal_is_reported_for_every_partition():
    response = error_response(request(1), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_what_may_be_deleted_is_said_before_anything_moves(replicas, partition):
    assert replicas.record_deletion.require_deletable(partition, -1) == 3
    assert replicas.record_deletion.require_deletable(partition, 2) == 2
    assert partition.log_start_offset == 0
    with pytest.raises(KafkaError):
        replicas.record_deletion.require_deletable(partition, 4)


async def test_the_checkpoints_are_written_once_for_all_partitions(client, replicas, monkeypatch):
    partitions = await add_topic(replicas, partitions=5)
    for each in partitions:
        await append_to_leader(replicas, each, batch(b"a", b"b"))
    written = []
    write = replicas.log_manager.checkpoints.write

    def count() -> dict[PurePath, OSError]:
        written.append(1)
        errors: dict[PurePath, OSError] = write()
        return errors

    monkeypatch.setattr(replicas.log_manager.checkpoints, "write", count)
    wanted = [DeleteRecordsPartition(partition_index=index, offset=1) for index in (*range(5), 9)]
    topics = [DeleteRecordsTopic(name="orders", partitions=wanted)]
    response = await client.ask(delete_records, DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    assert [each.low_watermark for each in response.topics[0].partitions] == [1, 1, 1, 1, 1, -1]
    assert written == [1]
