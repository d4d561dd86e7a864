"""OffsetDelete: what is refused before the coordinator."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.offset_delete import error_response, offset_delete

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def deleted(request, context):
    """All went well, as the coordinator says it."""
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def client_with_topic(answer=deleted):
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", num_partitions=3)])
    client.groups = ScriptedGroups(answer)
    return client


def request(**topics):
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ],
    )


def outcomes(response):
    """Codes by topic and partition."""
    return {
        topic.name: {each.partition_index: each.error_code for each in topic.partitions} for topic in response.topics
    }


async def test_what_is_not_there_is_refused_partition_by_partition():
    client = await client_with_topic()
    response = await client.ask(offset_delete, request(t=[1, 5], gone=[0]), 0)
    assert response.error_code == ErrorCode.NONE
    assert outcomes(response) == {"t": {1: 0, 5: UNKNOWN}, "gone": {0: UNKNOWN}}
    [(asked, _)] = client.groups.asked
    assert asked == request(t=[1])


async def test_the_groups_error_comes_alone():
    client = await client_with_topic(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[]))
    response = await client.ask(offset_delete, request(t=[1, 5]), 0)
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_the_coordinator_is_asked_even_when_nothing_is_there():
    client = await client_with_topic()
    response = await client.ask(offset_delete, request(gone=[0]), 0)
    assert outcomes(response) == {"gone": {0: UNKNOWN}}
    assert len(client.groups.asked) == 1


async def test_thousands_of_topics_are_handled():
    client = await client_with_topic()
    response = await client.ask(offset_delete, request(**{f"gone-{number}": [0] for number in range(1200)}), 0)
    assert len(response.topics) == 1200


def test_a_refusal_is_the_responses():
    response = error_response(request(t=[0]), KafkaError("no", code=ErrorCode.NOT_COORDINATOR))
    assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_what_is_deleted_is_fetched_as_never_committed(groups):
    await groups.commit(9, indexes=(0, 1))
    response = await groups.wire.ask(request(t=[0, 9]), 0)
    assert (response.error_code, outcomes(response)) == (ErrorCode.NONE, {"t": {0: 0, 9: UNKNOWN}})
    assert await groups.fetch(9, indexes=(0, 1)) == [(0, -1), (0, 7)]
