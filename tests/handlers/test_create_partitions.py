"""CreatePartitions."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.handlers.create_partitions import create_partitions, error_response


def growth(name, count, assignments=None):
    return CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments],
    )


def request(*topics, validate_only=False):
    return CreatePartitionsRequest(topics=list(topics), timeout_ms=1, validate_only=validate_only)


@pytest.fixture
async def admin():
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", num_partitions=2)])
    return client


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows(admin, version):
    response = await admin.ask(create_partitions, request(growth("t", 4), growth("x", 4)), version)
    assert [(item.name, item.error_code) for item in response.results] == [
        ("t", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert sorted(admin.controller.image.topics["t"].partitions) == [0, 1, 2, 3]


async def test_validate_only_grows_nothing(admin):
    [item] = (await admin.ask(create_partitions, request(growth("t", 4), validate_only=True), 3)).results
    assert item.error_code == ErrorCode.NONE
    assert len(admin.controller.image.topics["t"].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (growth("t", 2), ErrorCode.INVALID_PARTITIONS),
        (growth("t", 1), ErrorCode.INVALID_PARTITIONS),
        (growth("t", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth("t", 3, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_is_no_growth_is_refused_with_the_right_code(admin, topic, code):
    [item] = (await admin.ask(create_partitions, request(topic), 3)).results
    assert (item.error_code, bool(item.error_message)) == (code, True)


async def test_an_internal_topic_does_not_grow(admin):
    """Or the keys that are on other partitions then would begin anew."""
    await admin.controller.create_topics([NewTopic(name=CONSUMER_OFFSETS_TOPIC, num_partitions=2)])
    [item] = (await admin.ask(create_partitions, request(growth(CONSUMER_OFFSETS_TOPIC, 4)), 3)).results
    assert (item.error_code, bool(item.error_message)) == (ErrorCode.INVALID_PARTITIONS, True)
    assert len(admin.controller.image.topics[CONSUMER_OFFSETS_TOPIC].partitions) == 2


async def test_a_manual_assignment_is_taken(admin):
    [item] = (await admin.ask(create_partitions, request(growth("t", 3, [[1]])), 3)).results
    assert item.error_code == ErrorCode.NONE


def test_a_refused_request_refuses_each_topic():
    error = KafkaError("no", code=ErrorCode.POLICY_VIOLATION)
    assert [item.error_code for item in error_response(request(growth("t", 3)), error).results] == [44]
