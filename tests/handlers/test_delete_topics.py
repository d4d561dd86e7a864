"""DeleteTopics."""

from __future__ import annotations

from uuid import uuid4

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.primitives import NO_UUID
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.delete_topics import delete_topics, error_response


def by_name(version, *names):
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=NO_UUID) for name in names], timeout_ms=1)


async def client_with_topic(**static):
    client = await make_admin_client(**static)
    await client.controller.create_topics([NewTopic(name="t")])
    return client


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_go_by_name_in_every_version(version):
    client = await client_with_topic()
    response = await client.ask(delete_topics, by_name(version, "t", "x"), version)
    assert [(item.name, item.error_code) for item in response.responses] == [
        ("t", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert client.controller.image.topics == {}


async def test_a_topic_goes_by_id_and_the_answer_names_both():
    client = await client_with_topic()
    topic_id, unknown = client.controller.image.topics["t"].topic_id, uuid4().bytes
    states = [DeleteTopicState(name=None, topic_id=each) for each in (topic_id, unknown)]
    response = await client.ask(delete_topics, DeleteTopicsRequest(topics=states, timeout_ms=1), 6)
    assert [(item.name, item.topic_id, item.error_code) for item in response.responses] == [
        ("t", topic_id, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_a_topic_made_again_under_its_name_has_another_id():
    client = await client_with_topic()
    before = client.controller.image.topics["t"].topic_id
    await client.ask(delete_topics, by_name(6, "t"), 6)
    await client.controller.create_topics([NewTopic(name="t")])
    assert client.controller.image.topics["t"].topic_id != before


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
async def test_deletion_switched_off_is_reported_in_words_the_version_knows(version, code):
    client = await client_with_topic(delete_topic_enable="false")
    with pytest.raises(KafkaError) as refusal:
        await client.ask(delete_topics, by_name(version, "t"), version)
    [item] = error_response(by_name(version, "t"), refusal.value).responses
    assert (item.name, item.error_code) == ("t", code)
    assert "t" in client.controller.image.topics
