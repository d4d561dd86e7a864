"""ListOffsets: the ends of a log and lookups by time."""

from __future__ import annotations

import errno

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch
from trio_broker.handlers.list_offsets import error_response, list_offsets
from trio_broker.storage.log_reader import ReadableLog

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
TOP = 11


def lookup(timestamp, index=0, **fields):
    return ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)


def request(*lookups, topic="orders", **fields):
    topics = [ListOffsetsTopic(name=topic, partitions=list(lookups))]
    return ListOffsetsRequest(replica_id=-1, topics=topics, **fields)


async def ask(client, timestamp, version=TOP, topic="orders", isolation_level=0, **fields):
    response = await client.ask(
        list_offsets, request(lookup(timestamp, **fields), topic=topic, isolation_level=isolation_level), version
    )
    [[partition]] = [each.partitions for each in response.topics]
    return partition


async def fill(replicas, partition, *timestamps):
    for timestamp in timestamps:
        await append_to_leader(replicas, partition, batch(b"v", timestamp=timestamp))


async def offset(client, timestamp, version=TOP, **fields):
    answer = await ask(client, timestamp, version, **fields)
    assert answer.error_code == 0
    return answer.offset


@pytest.mark.parametrize("version", range(1, TOP + 1))
async def test_both_ends_in_every_version(client, replicas, version):
    [partition] = await add_topic(replicas)
    await fill(replicas, partition, 1000, 2000, 3000)
    await replicas.record_deletion.delete({partition: 1})
    assert await offset(client, LATEST, version) == 3
    assert await offset(client, EARLIEST, version) == 1


async def test_special_timestamps(client, replicas):
    [partition] = await add_topic(replicas, leader_epoch=4)
    await fill(replicas, partition, 1000, 3000, 2000)
    await replicas.record_deletion.delete({partition: 1})
    latest = await ask(client, LATEST)
    assert (latest.offset, latest.timestamp, latest.leader_epoch) == (3, -1, 4)
    largest = await ask(client, MAX_TIMESTAMP)
    assert (largest.offset, largest.timestamp, largest.leader_epoch) == (1, 3000, 4)
    assert await offset(client, EARLIEST_LOCAL) == 1
    assert await offset(client, LATEST_TIERED) == -1
    assert await offset(client, EARLIEST_PENDING_UPLOAD) == -1


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)]
)
async def test_each_special_timestamp_has_its_first_version(client, replicas, timestamp, since):
    await add_topic(replicas)
    assert (await ask(client, timestamp, since - 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await ask(client, timestamp, since)).error_code == 0
    assert (await ask(client, -7)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_time_finds_the_first_record_that_is_not_older(client, replicas):
    [partition] = await add_topic(replicas)
    await fill(replicas, partition, 1000, 2000, 3000)
    found = await ask(client, 1500)
    assert (found.offset, found.timestamp) == (1, 2000)
    assert await offset(client, 0) == 0
    assert await offset(client, 3000) == 2


async def test_no_match_by_time_is_no_error(client, replicas):
    [partition] = await add_topic(replicas)
    answer = await ask(client, 5000)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)
    await fill(replicas, partition, 1000)
    answer = await ask(client, 5000)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


async def test_latest_is_the_last_stable_offset_for_readers_of_committed_records(client, replicas):
    [partition] = await add_topic(replicas)
    await fill(replicas, partition, 1000)
    records = batch(b"open", timestamp=2000, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    partition.writer.append(records, now_ms=NOW_MS)
    assert await offset(client, LATEST) == 2
    assert await offset(client, LATEST, isolation_level=1) == 1
    assert await offset(client, 1500) == 1
    assert await offset(client, 1500, isolation_level=1) == -1


async def test_offsets_that_are_not_durable_are_not_reported_in_fsync_mode(
    durable_client, durable_replicas, monkeypatch
):
    monkeypatch.setattr(durable_replicas.flusher, "request", lambda partition: None)
    [partition] = await add_topic(durable_replicas)
    await fill(durable_replicas, partition, 1000)
    assert await offset(durable_client, LATEST) == 0
    assert await offset(durable_client, 500) == -1
    assert await offset(durable_client, MAX_TIMESTAMP) == -1


@pytest.mark.parametrize("end", [EARLIEST, LATEST])
async def test_an_empty_partition_has_a_leader_epoch(client, replicas, end):
    await add_topic(replicas, leader_epoch=0)
    answer = await ask(client, end)
    assert (answer.error_code, answer.offset, answer.leader_epoch) == (0, 0, 0)


async def test_the_current_leader_epoch_is_checked(client, replicas):
    await add_topic(replicas, leader_epoch=5)
    codes = [(await ask(client, LATEST, current_leader_epoch=epoch)).error_code for epoch in (-1, 5, 4, 6)]
    assert codes == [0, 0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]
    assert (await ask(client, LATEST, 3, current_leader_epoch=4)).error_code == 0, "not in version 3"


async def test_a_partition_asked_for_twice_is_refused_and_others_are_not(client, replicas):
    await add_topic(replicas, partitions=2)
    response = await client.ask(list_offsets, request(lookup(-1), lookup(-2), lookup(-1, 1)), TOP)
    codes = [partition.error_code for partition in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]


async def test_an_unknown_topic_answers_3_and_no_offset(client, replicas):
    answer = await ask(client, LATEST, topic="nothing")
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


async def test_an_unknown_isolation_level_is_refused_for_every_partition(client, replicas):
    with pytest.raises(KafkaError) as raised:
        await ask(client, LATEST, isolation_level=9)
    answer = error_response(request(lookup(-1), lookup(-1, 1)), raised.value)
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


async def test_a_disk_that_fails_in_a_lookup_answers_storage_error(client, replicas, monkeypatch):
    [partition] = await add_topic(replicas)
    await fill(replicas, partition, 1000)

    def fail(self, *arguments):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(ReadableLog, "offset_for_timestamp", fail)
    assert (await ask(client, 500)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.failure is not None
