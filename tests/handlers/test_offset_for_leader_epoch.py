"""OffsetForLeaderEpoch: where epochs ended."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch
from trio_broker.handlers.offset_for_leader_epoch import error_response, offset_for_leader_epoch


def request(leader_epoch, *, topic="orders", index=0, current_leader_epoch=-1):
    partition = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])])


async def ask(client, leader_epoch, version=4, **fields):
    response = await client.ask(offset_for_leader_epoch, request(leader_epoch, **fields), version)
    [[partition]] = [topic.partitions for topic in response.topics]
    return partition


@pytest.fixture
async def three_epochs(replicas):
    """Epoch 1 at offsets 0 and 1, epoch 3 at 2, epoch 6 at 3."""
    for epoch, records in ((1, 2), (3, 1), (6, 1)):
        [partition] = await add_topic(replicas, leader_epoch=epoch)
        for _ in range(records):
            await append_to_leader(replicas, partition, batch(b"v"))
    return partition


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_epoch_ends_where_the_next_began_and_the_latest_at_the_log_end(client, three_epochs, version):
    ends = [(await ask(client, epoch, version)) for epoch in (1, 2, 3, 6)]
    assert [(end.leader_epoch, end.end_offset) for end in ends] == [(1, 2), (1, 2), (3, 3), (6, 4)]


async def test_an_empty_partition_has_an_epoch(client, replicas):
    await add_topic(replicas, leader_epoch=0)
    answer = await ask(client, 0)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 0)


async def test_an_epoch_begins_before_its_first_record(client, three_epochs, replicas):
    await add_topic(replicas, leader_epoch=7)
    ends = [await ask(client, epoch) for epoch in (6, 7)]
    assert [(end.leader_epoch, end.end_offset) for end in ends] == [(6, 4), (7, 4)]


async def test_an_epoch_nobody_knows_is_no_error(client, three_epochs):
    answer = await ask(client, 9)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -1, -1)


async def test_the_current_leader_epoch_is_checked(client, three_epochs):
    codes = [(await ask(client, 1, current_leader_epoch=epoch)).error_code for epoch in (6, 5, 7)]
    assert codes == [0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]


async def test_an_unknown_partition_answers_3(client, three_epochs):
    assert (await ask(client, 1, topic="nothing")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(client, 1, index=4)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refusal_is_reported_for_every_partition():
    response = error_response(request(1), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
