"""AlterPartitionReassignments."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.alter_partition_reassignments import alter_partition_reassignments, error_response


def move(topic, *partitions):
    wanted = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in partitions]
    return ReassignableTopic(name=topic, partitions=wanted)


def request(*topics, **options):
    return AlterPartitionReassignmentsRequest(topics=list(topics), **options)


def outcomes(response):
    return [
        (item.name, [(one.partition_index, one.error_code) for one in item.partitions]) for item in response.responses
    ]


@pytest.fixture
async def admin():
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", num_partitions=2)])
    return client


@pytest.mark.parametrize("version", range(2))
async def test_each_partition_is_answered_in_the_order_asked(admin, version):
    asked = request(move("t", (1, [1]), (0, [9]), (7, [1])), move("x", (0, [1])), move("t", (0, None)))
    response = await admin.ask(alter_partition_reassignments, asked, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.error_code == ErrorCode.NONE
    assert outcomes(response) == [
        ("t", [(1, ErrorCode.NONE), (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (7, unknown)]),
        ("x", [(0, unknown)]),
        ("t", [(0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]),
    ]


async def test_the_reason_comes_with_a_refusal_and_with_nothing_else(admin):
    response = await admin.ask(alter_partition_reassignments, request(move("t", (0, [1]), (1, [9]))), 1)
    assert [one.error_message for one in response.responses[0].partitions] == [
        None,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ]


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_answer_repeats_whether_the_number_of_replicas_may_change(admin, allowed):
    asked = request(move("t", (0, [1])), allow_replication_factor_change=allowed)
    response = await admin.ask(alter_partition_reassignments, asked, 1)
    assert response.allow_replication_factor_change is allowed


def test_a_refused_request_has_its_error_at_the_top():
    response = error_response(request(move("t", (0, [1]))), KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert (response.error_code, response.error_message, response.responses) == (56, "no", [])
