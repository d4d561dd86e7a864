"""CreateTopics."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafka_wire.primitives import NO_UUID
from tests.handlers.admin_client import make_admin_client
from trio_broker.handlers.create_topics import create_topics, error_response

VERSIONS = range(2, 8)


def wanted(name="t", partitions=-1, replicas=-1, assignments=(), configs=()):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=list(b)) for i, b in assignments],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def request(*topics, validate_only=False):
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only)


@pytest.mark.parametrize("version", VERSIONS)
async def test_minus_one_is_the_brokers_default(version):
    client = await make_admin_client(num_partitions="3")
    [topic] = (await client.ask(create_topics, request(wanted()), version)).topics
    assert (topic.error_code, topic.error_message) == (ErrorCode.NONE, None)
    assert len(client.controller.image.topics["t"].partitions) == 3
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)


async def test_version_5_answers_with_settings_and_version_7_with_the_id():
    client = await make_admin_client()
    [old] = (await client.ask(create_topics, request(wanted("old")), 4)).topics
    assert (old.configs, old.topic_id) == ([], NO_UUID)
    [topic] = (await client.ask(create_topics, request(wanted(configs=[("retention.ms", "5")])), 7)).topics
    configs = {config.name: config for config in topic.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (str(2**30), 5)
    assert topic.topic_id == client.controller.image.topics["t"].topic_id != NO_UUID


@pytest.mark.parametrize("version", VERSIONS)
async def test_validate_only_creates_nothing(version):
    client = await make_admin_client()
    before = client.metadata_log.log_end_offset
    response = await client.ask(create_topics, request(wanted(), wanted("/"), validate_only=True), version)
    assert [topic.error_code for topic in response.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert client.metadata_log.log_end_offset == before


async def test_a_topic_that_exists_is_error_36_and_others_are_made():
    client = await make_admin_client()
    await client.ask(create_topics, request(wanted("a")), 7)
    response = await client.ask(create_topics, request(wanted("a"), wanted("b")), 7)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 36), ("b", 0)]
    assert response.topics[0].error_message == "Topic 'a' already exists."


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (wanted(replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted(configs=[("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
        (wanted(configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (wanted(assignments=[(0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(partitions=1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_created_is_refused_with_the_right_code(topic, code):
    client = await make_admin_client()
    [answer] = (await client.ask(create_topics, request(topic), 7)).topics
    assert answer.error_code == code
    assert answer.error_message
    assert client.controller.image.topics == {}


async def test_a_manual_assignment_is_taken():
    client = await make_admin_client()
    [answer] = (await client.ask(create_topics, request(wanted(assignments=[(1, [1]), (0, [1])])), 7)).topics
    assert (answer.error_code, answer.num_partitions) == (0, 2)


def test_a_refused_request_refuses_each_topic():
    response = error_response(request(wanted("a"), wanted("b")), KafkaError("no", code=ErrorCode.POLICY_VIOLATION))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 44), ("b", 44)]
