"""OffsetDelete: delete committed offsets of a group.

Source: Kafka's KafkaApis.handleOffsetDeleteRequest and OffsetDeleteResponse.Builder; KIP-496.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import InTurns, list_in_turns, partition_in_turns
from trio_broker.handlers.support.context import Context, GroupCaller
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DELETE_GROUP, READ_TOPIC, InHandler, for_group


def error_response(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, topics=[])


@handles(
    OffsetDeleteRequest,
    error_response=error_response,
    requires=[
        for_group(DELETE_GROUP),
        InHandler([READ_TOPIC], "the partitions of a topic: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
async def offset_delete(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    """Delete the offsets of the partitions that exist; every other partition gets its error."""
    refused = [topic async for topic in InTurns(request.topics) if not context.may(READ_TOPIC, topic.name)]
    if refused:
        names = {topic.name for topic in refused}
        request.topics = [topic async for topic in InTurns(request.topics) if topic.name not in names]
    response = await delete_existing(request, context)
    if response.error_code == ErrorCode.NONE:
        merge(response, [await run_steps(failed(each.name, each.partitions, READ_TOPIC.error)) for each in refused])
    return response


async def delete_existing(request: OffsetDeleteRequest, caller: GroupCaller) -> OffsetDeleteResponse:
    """As the handler."""
    image = caller.services.metadata_cache.image
    missing = [
        refused
        async for topic in InTurns(request.topics)
        if (refused := await run_steps(pop_missing(topic, image))) is not None
    ]
    # Even when none is left the coordinator is asked: an error of the whole group counts more than missing partitions.
    request.topics = [topic async for topic in InTurns(request.topics) if topic.partitions]
    response = await run_steps(caller.call_group(request.group_id, request))
    # Beside an error of the whole group Kafka's response has no partitions.
    if response.error_code == ErrorCode.NONE:
        merge(response, missing)
    return response


def pop_missing(topic: OffsetDeleteRequestTopic, image: MetadataImage) -> Steps[OffsetDeleteResponseTopic | None]:
    """Remove the partitions that do not exist from ``topic``, and return the answer for them."""
    there = image.topics[topic.name].partitions if topic.name in image.topics else {}
    topic.partitions, absent = yield from partition_in_turns(
        topic.partitions, lambda each: each.partition_index in there
    )
    if not absent:
        return None
    return (yield from failed(topic.name, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def failed(
    name: str, partitions: Iterable[OffsetDeleteRequestPartition], code: ErrorCode
) -> Steps[OffsetDeleteResponseTopic]:
    answers = (
        OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
        for partition in partitions
    )
    return OffsetDeleteResponseTopic(name=name, partitions=(yield from list_in_turns(answers)))


def merge(response: OffsetDeleteResponse, missing: Iterable[OffsetDeleteResponseTopic]) -> None:
    """Add the refused partitions, each to its topic's answer where there is one already."""
    answered = {topic.name: topic for topic in response.topics}
    for topic in missing:
        if same := answered.get(topic.name):
            same.partitions += topic.partitions
        else:
            response.topics.append(topic)
