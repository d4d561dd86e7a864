"""OffsetCommit: what is refused before the coordinator, and the shapes of the versions."""

from __future__ import annotations

from uuid import uuid4

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_wire.primitives import NO_UUID
from tests.cases import each
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.offset_commit import error_response, offset_commit

BY_NAME = range(2, 10)
BY_ID = range(10, 11)
VERSIONS = range(2, 11)


def committed(request, request_context):
    """All went well, as the coordinator says it."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def client_with_topics(*names, answer=committed):
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name=name, num_partitions=3) for name in names])
    client.groups = ScriptedGroups(answer)
    return client


def topic(indexes, *, name="", topic_id=NO_UUID):
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=None)
        for index in indexes
    ]
    return OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)


def request(*topics):
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=list(topics))


def outcomes(response):
    """Codes by partition, topic by topic."""
    return [{each.partition_index: each.error_code for each in topic.partitions} for topic in response.topics]


@pytest.mark.parametrize("version", BY_NAME)
async def test_topics_go_by_name_and_the_coordinator_hears_the_id_too(version):
    client = await client_with_topics("t")
    response = await client.ask(offset_commit, request(topic([0, 2], name="t")), version)
    assert response.topics[0].name == "t"
    assert outcomes(response) == [{0: 0, 2: 0}]
    [(asked, request_context)] = client.groups.asked
    assert (asked.topics[0].topic_id, request_context.version) == (
        client.controller.image.topics["t"].topic_id,
        version,
    )


@pytest.mark.parametrize("version", BY_ID)
async def test_version_10_goes_by_id_and_the_coordinator_hears_the_name(version):
    client = await client_with_topics("t")
    topic_id = client.controller.image.topics["t"].topic_id
    response = await client.ask(offset_commit, request(topic([1], topic_id=topic_id)), version)
    assert (response.topics[0].topic_id, outcomes(response)) == (topic_id, [{1: 0}])
    [(asked, _)] = client.groups.asked
    assert asked.topics[0].name == "t"


@pytest.mark.parametrize("version", BY_ID)
@pytest.mark.parametrize("topic_id", [NO_UUID, uuid4().bytes])
async def test_an_unknown_id_is_error_100(version, topic_id):
    client = await client_with_topics("t")
    response = await client.ask(offset_commit, request(topic([0, 1], topic_id=topic_id)), version)
    assert (response.topics[0].topic_id, outcomes(response)) == (topic_id, [{0: 100, 1: 100}])
    assert client.groups.asked == [], "there is nothing to ask the coordinator"


@pytest.mark.parametrize("version", BY_NAME)
async def test_what_is_not_there_is_refused_partition_by_partition(version):
    client = await client_with_topics("t")
    wanted = request(topic([0], name="gone"), topic([5, 1, -1], name="t"))
    response = await client.ask(offset_commit, wanted, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {topic.name: codes for topic, codes in zip(response.topics, outcomes(response), strict=True)} == {
        "gone": {0: unknown},
        "t": {1: 0, 5: unknown, -1: unknown},
    }
    [(asked, _)] = client.groups.asked
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in asked.topics] == [("t", [1])]


@pytest.mark.parametrize("version", BY_ID)
async def test_a_known_id_without_that_partition_is_error_3(version):
    client = await client_with_topics("t")
    topic_id = client.controller.image.topics["t"].topic_id
    response = await client.ask(offset_commit, request(topic([1, 3], topic_id=topic_id)), version)
    assert outcomes(response) == [{1: 0, 3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_without_partitions_is_no_error_and_asks_nobody(version):
    client = await client_with_topics("t")
    response = await client.ask(offset_commit, request(), version)
    assert (response.topics, client.groups.asked) == ([], [])


@pytest.mark.parametrize("version", BY_NAME)
async def test_a_coordinator_that_refuses_is_reported_for_the_partitions_that_are_there(version):
    client = await client_with_topics("t", answer=KafkaError("no", code=ErrorCode.NOT_COORDINATOR))
    response = await client.ask(offset_commit, request(topic([0, 9], name="t")), version)
    assert outcomes(response) == [{0: ErrorCode.NOT_COORDINATOR, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]


async def test_thousands_of_topics_are_committed():
    client = await client_with_topics("t")
    wanted = [topic([0], name=f"gone-{number}") for number in range(1200)]
    response = await client.ask(offset_commit, request(*wanted, topic([0], name="t")), 9)
    assert len(response.topics) == 1201
    assert response.topics[0].name == "t"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_is_reported_for_every_partition(version):
    response = error_response(request(topic([0, 1], name="t")), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert outcomes(response) == [{0: -1, 1: -1}]


@each("version", VERSIONS)
async def test_a_consumer_without_a_group_commits_while_there_are_no_members(groups, version):
    assert await groups.commit(version, offset=7) == [0]
    assert await groups.fetch(9) == [(0, 7)]


@each("version", range(2, 5))
@each("retention_time_ms", [-1, 0, 1, 60_000])
async def test_a_retention_time_changes_nothing_that_can_be_seen(groups, version, retention_time_ms):
    assert await groups.commit(version, retention_time_ms=retention_time_ms) == [0]
    assert await groups.fetch(9) == [(0, 7)]


@each("version", VERSIONS)
async def test_a_member_commits_in_its_generation(groups, version):
    member = await groups.enter()
    assert await groups.commit(version, member, offset=9, indexes=(0, 2)) == [0, 0]
    assert await groups.fetch(9, indexes=(0, 1, 2)) == [(0, 9), (0, -1), (0, 9)]
