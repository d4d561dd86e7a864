"""DescribeTopicPartitions: topics page by page."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kafka_wire.primitives import NO_UUID
from trio_broker.handlers.describe_topic_partitions import error_response

ALL_TOPIC_OPERATIONS = 0b0000_1101_1111_1000


async def page(wire, *names, limit=2000, cursor=None):
    topics = [TopicRequest(name=name) for name in names]
    wanted = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
    return await wire.ask(wanted, 0)


def partitions_of(response):
    """Every partition of a page, as topic and index."""
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


@pytest.fixture
async def three_topics(wire):
    """``beta`` with three partitions, ``alpha`` and ``gamma`` with two, created out of order."""
    await wire.create_topic("gamma", 2)
    await wire.create_topic("alpha", 2)
    await wire.create_topic("beta", 3)
    return wire


async def test_topics_come_sorted_however_they_were_asked_for(three_topics):
    response = await page(three_topics, "gamma", "alpha", "gamma")
    assert partitions_of(response) == [("alpha", 0), ("alpha", 1), ("gamma", 0), ("gamma", 1)]
    assert response.next_cursor is None


async def test_an_empty_list_asks_for_all_topics(three_topics):
    assert [topic.name for topic in (await page(three_topics)).topics] == ["alpha", "beta", "gamma"]


@pytest.mark.parametrize("limit", range(1, 9))
async def test_pages_follow_each_other_without_gap_or_repetition(three_topics, limit):
    whole = partitions_of(await page(three_topics))
    collected, cursor = [], None
    while True:
        response = await page(three_topics, limit=limit, cursor=cursor)
        assert 1 <= len(partitions_of(response)) <= limit
        collected += partitions_of(response)
        if (cursor := response.next_cursor) is None:
            break
    assert collected == whole


async def test_no_page_is_longer_than_the_brokers_own_limit(open_wire_client):
    wire = await open_wire_client(max_request_partition_size_limit="2")
    await wire.create_topic("t", 3)
    response = await page(wire, "t", limit=1000)
    assert partitions_of(response) == [("t", 0), ("t", 1)]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("t", 2)


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
async def test_a_limit_that_allows_nothing_still_gets_a_page_that_moves(three_topics, limit):
    assert partitions_of(await page(three_topics, limit=limit)) == [("alpha", 0)]


async def test_a_cursor_at_a_topic_deleted_meanwhile_goes_on_with_the_next(three_topics):
    response = await page(three_topics, cursor=Cursor(topic_name="b", partition_index=1))
    assert [topic.name for topic in response.topics] == ["beta", "gamma"]
    assert partitions_of(response)[0] == ("beta", 0)


async def test_a_negative_cursor_is_an_invalid_request(three_topics):
    response = await page(three_topics, "beta", cursor=Cursor(topic_name="beta", partition_index=-1))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


async def test_a_missing_topic_is_unknown_and_an_impossible_one_invalid(wire):
    response = await page(wire, "missing", "not/possible")
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in response.topics] == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_UUID),
        ("not/possible", ErrorCode.INVALID_TOPIC_EXCEPTION, NO_UUID),
    ]


async def test_it_never_creates_a_topic(wire):
    await page(wire, "missing")
    assert wire.services.metadata_cache.image.topics == {}


async def test_a_topic_is_reported_with_its_id_and_each_partition_with_leader_and_epoch(wire):
    topic_id = await wire.create_topic("t")
    [topic] = (await page(wire, "t")).topics
    [partition] = topic.partitions
    node_id = wire.services.node.node_id
    assert (topic.topic_id, topic.error_code, topic.is_internal) == (topic_id, ErrorCode.NONE, False)
    assert (partition.leader_id, partition.leader_epoch) == (node_id, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([node_id], [node_id], [])


async def test_topic_operations_are_always_reported(wire):
    await wire.create_topic("t")
    assert (await page(wire, "t")).topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS


def test_a_refusal_is_borne_by_every_topic():
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a"), TopicRequest(name="b")])
    response = error_response(request, KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
