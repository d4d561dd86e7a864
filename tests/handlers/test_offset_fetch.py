"""OffsetFetch: three shapes for clients, one for the coordinator."""

from __future__ import annotations

from uuid import uuid4

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_wire.primitives import NO_UUID
from tests.cases import each
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.offset_fetch import error_response, offset_fetch

VERSIONS = range(1, 11)
SINGLE = range(1, 8)
GROUPS = range(8, 11)
OFFSET, EPOCH = 42, 5


def offsets(topic, indexes, topic_id=NO_UUID):
    return OffsetFetchResponseTopics(
        name=topic,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=OFFSET, committed_leader_epoch=EPOCH, metadata="m"
            )
            for index in indexes
        ],
    )


def fetched(group):
    """Everything asked for is there; of everything, topics t and gone are."""
    if group.topics is None:
        topics = [offsets("t", [0, 1]), offsets("gone", [0])]
    else:
        topics = [offsets(topic.name, topic.partition_indexes, topic.topic_id) for topic in group.topics]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


async def client_with_topic(answer=fetched):
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", num_partitions=3)])
    client.groups = ScriptedGroups(answer)
    return client


def request(version, client, *, topic="t", indexes=(0, 2), everything=False, **fields):
    """A request about group g, and one topic or everything, in the shape of the version."""
    indexes = list(indexes)
    if version < 8:
        topics = None if everything else [OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)]
        return OffsetFetchRequest(group_id="g", topics=topics, **fields)
    if version < 10:
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
    else:
        known = client.controller.image.topics.get(topic)
        wanted = OffsetFetchRequestTopics(
            topic_id=known.topic_id if known else uuid4().bytes, partition_indexes=indexes
        )
    group = OffsetFetchRequestGroup(group_id="g", topics=None if everything else [wanted])
    return OffsetFetchRequest(groups=[group], **fields)


def group_of(response, version):
    """Topics and error of the one group, wherever the version has them."""
    holder = response if version < 8 else response.groups[0]
    return holder.topics, holder.error_code


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_has_its_shape_of_the_same_answer(version):
    client = await client_with_topic()
    topics, code = group_of(await client.ask(offset_fetch, request(version, client), version), version)
    assert code == ErrorCode.NONE
    [topic] = topics
    if version < 10:
        assert topic.name == "t"
    else:
        assert topic.topic_id == client.controller.image.topics["t"].topic_id
    assert [(each.partition_index, each.committed_offset, each.metadata) for each in topic.partitions] == [
        (0, OFFSET, "m"),
        (2, OFFSET, "m"),
    ]
    assert topic.partitions[0].committed_leader_epoch == (EPOCH if version >= 5 else -1)
    [(asked,)] = client.groups.asked
    assert [(each.name, each.partition_indexes) for each in asked.topics] == [("t", [0, 2])]


@pytest.mark.parametrize("version", range(2, 11))
async def test_null_topics_are_all_topics(version):
    client = await client_with_topic()
    topics, _ = group_of(await client.ask(offset_fetch, request(version, client, everything=True), version), version)
    if version < 10:
        assert [topic.name for topic in topics] == ["t", "gone"]
    [(asked,)] = client.groups.asked
    assert asked.topics is None


async def test_all_topics_come_with_ids_and_those_without_one_are_left_out():
    client = await client_with_topic()
    topics, _ = group_of(await client.ask(offset_fetch, request(10, client, everything=True), 10), 10)
    assert [topic.topic_id for topic in topics] == [client.controller.image.topics["t"].topic_id]


async def test_an_unknown_id_is_error_100_for_each_partition():
    client = await client_with_topic()
    wanted = request(10, client, topic="gone")
    topics, code = group_of(await client.ask(offset_fetch, wanted, 10), 10)
    assert (code, topics[0].topic_id) == (0, wanted.groups[0].topics[0].topic_id)
    assert [(each.partition_index, each.error_code, each.committed_offset) for each in topics[0].partitions] == [
        (0, ErrorCode.UNKNOWN_TOPIC_ID, -1),
        (2, ErrorCode.UNKNOWN_TOPIC_ID, -1),
    ]
    [(asked,)] = client.groups.asked
    assert asked.topics == [], "the group's own error would come before the topics'"


@pytest.mark.parametrize("version", range(1, 10))
async def test_an_unknown_name_is_the_coordinators_matter(version):
    client = await client_with_topic()
    await client.ask(offset_fetch, request(version, client, topic="gone"), version)
    [(asked,)] = client.groups.asked
    assert [topic.name for topic in asked.topics] == ["gone"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("raised", [True, False])
async def test_the_groups_error_is_where_the_version_has_room(version, raised):
    code = ErrorCode.NOT_COORDINATOR
    answer = OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)
    client = await client_with_topic(KafkaError("no", code=code) if raised else answer)
    topics, reported = group_of(await client.ask(offset_fetch, request(version, client), version), version)
    if version == 1:
        [topic] = topics
        assert [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions] == [
            (0, -1, code),
            (2, -1, code),
        ]
    else:
        assert (topics, reported) == ([], code)


@pytest.mark.parametrize("version", range(7, 11))
async def test_without_transactions_every_offset_is_stable(version):
    client = await client_with_topic()
    wanted = request(version, client, require_stable=True)
    topics, code = group_of(await client.ask(offset_fetch, wanted, version), version)
    assert (code, [each.committed_offset for each in topics[0].partitions]) == (0, [OFFSET, OFFSET])


@pytest.mark.parametrize("version", GROUPS)
async def test_one_groups_error_is_not_the_others(version):
    def answer(group):
        if group.group_id == "bad":
            return KafkaError("no", code=ErrorCode.NOT_COORDINATOR)
        return fetched(group)

    client = await client_with_topic(answer)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("bad", "good")]
    response = await client.ask(offset_fetch, OffsetFetchRequest(groups=groups), version)
    assert [(group.group_id, group.error_code) for group in response.groups] == [("bad", 16), ("good", 0)]


@pytest.mark.parametrize("version", [9, 10])
async def test_member_and_epoch_reach_the_coordinator(version):
    client = await client_with_topic()
    group = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=4, topics=[])
    await client.ask(offset_fetch, OffsetFetchRequest(groups=[group]), version)
    [(asked,)] = client.groups.asked
    assert (asked.member_id, asked.member_epoch) == ("m", 4)


@pytest.mark.parametrize("version", GROUPS)
async def test_everything_of_a_group_is_reported_once_however_often_it_is_asked_for(version):
    client = await client_with_topic()
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "a", "a")]
    response = await client.ask(offset_fetch, OffsetFetchRequest(groups=groups), version)
    assert [group.group_id for group in response.groups] == ["a", "b"]


async def test_hundreds_of_topics_are_put_into_the_old_shape():
    topics = [offsets(f"t-{number}", [0]) for number in range(250)]
    client = await client_with_topic(OffsetFetchResponseGroup(group_id="g", topics=topics))
    response = await client.ask(offset_fetch, request(7, client, everything=True), 7)
    assert [topic.name for topic in response.topics] == [f"t-{number}" for number in range(250)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_refusal_has_room_in_every_version(version):
    client = await client_with_topic()
    response = error_response(request(version, client), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    topics, code = group_of(response, version)
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    if version == 1:
        assert {each.error_code for each in topics[0].partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}


@each("version", VERSIONS)
async def test_an_offset_that_was_never_committed_is_minus_1_without_an_error(groups, version):
    await groups.commit(9, offset=7)
    assert await groups.fetch(version, indexes=(0, 1, 99)) == [(0, 7), (0, -1), (0, -1)]


@each("version", VERSIONS)
async def test_of_a_topic_that_is_not_there_only_the_id_is_unknown(groups, version):
    expected = ErrorCode.NONE if version < 10 else ErrorCode.UNKNOWN_TOPIC_ID
    assert await groups.fetch(version, topic="gone") == [(expected, -1)]


@each("version", range(2, 11))
async def test_all_that_a_group_has(groups, version):
    await groups.commit(9, offset=7, indexes=(0, 2))
    topics, _ = group_of(
        await groups.wire.ask(request(version, groups.wire.services, everything=True), version), version
    )
    [topic] = topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 7), (2, 7)]
    if version >= 10:
        assert topic.topic_id == groups.topic_id("t")
