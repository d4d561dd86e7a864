"""DescribeTopicPartitions: topics page by page.

Topics come sorted by name, at most ``response_partition_limit`` partitions an answer (and never more than
``max.request.partition.size.limit``), and a cursor that says where the next page begins.

Source: Kafka's DescribeTopicPartitionsRequestHandler; KIP-966.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kafka_wire.primitives import NO_UUID
from trio_broker.cluster.metadata_image import NO_LEADER, PartitionImage, TopicImage
from trio_broker.common.topic_names import is_internal_topic, is_valid_topic_name
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, sorted_distinct
from trio_broker.handlers.support.authorized_operations import topic_operations
from trio_broker.handlers.support.broker_nodes import BrokerEndpoints, broker_nodes
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_TOPIC, InHandler


def error_response(request: DescribeTopicPartitionsRequest, error: KafkaError) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0, topics=[missing_topic(topic.name, error.code) for topic in request.topics]
    )


@attrs.frozen
class Position:
    """Where a page begins: the first partition of a topic that it holds."""

    topic: str
    partition: int


@handles(
    DescribeTopicPartitionsRequest,
    error_response=error_response,
    requires=[InHandler([DESCRIBE_TOPIC], "the topic: TOPIC_AUTHORIZATION_FAILED; left out where all are asked for")],
)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    """Describe the topics asked for, or all of them, from the cursor on."""
    image = context.services.metadata_cache.image
    cursor = request.cursor
    start = Position(cursor.topic_name, cursor.partition_index) if cursor else Position("", 0)
    if start.partition < 0:
        raise KafkaError("a cursor's partition is never negative", code=ErrorCode.INVALID_REQUEST)
    # An empty list asks for every topic; Metadata expresses that by null (KIP-4).
    asked = [topic.name for topic in request.topics]
    names = await run_steps(sorted_distinct(asked or image.topics))
    # At least one partition a page: a page of none would send the client back to the same cursor for ever.
    limit = min(
        max(request.response_partition_limit, 1), context.services.config.request.max_request_partition_size_limit
    )
    endpoints = BrokerEndpoints(image, broker_nodes(image, context.connection))
    return await page(context, endpoints, names, start, limit, leaves_out_denied=not asked)


async def page(
    context: Context,
    endpoints: BrokerEndpoints,
    names: Iterable[str],
    start: Position,
    limit: int,
    *,
    leaves_out_denied: bool,
) -> DescribeTopicPartitionsResponse:
    """As many partitions of ``names`` from ``start`` on as the limit allows; the names are sorted. A topic that the
    client may not see is answered with that, or left out."""
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    image, room = context.services.metadata_cache.image, limit
    async for name in InTurns(names):
        if name < start.topic:
            continue
        is_allowed = context.may(DESCRIBE_TOPIC, name, is_audited=not leaves_out_denied)
        if leaves_out_denied and not is_allowed:
            continue
        if room == 0:
            return response(topics, Cursor(topic_name=name, partition_index=0))
        if not is_allowed:
            topics.append(missing_topic(name, DESCRIBE_TOPIC.error))
            continue
        topic = image.topics.get(name)
        # Perhaps deleted since the page before, whose cursor named it: no reason to refuse the others.
        if topic is None:
            topics.append(missing_topic(name, error_for_missing(name)))
            continue
        first = start.partition if name == start.topic else 0
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        described = describe(topic, endpoints, indexes[:room])
        # Unlike Metadata's, this request has no field that asks for them (KIP-966).
        described.topic_authorized_operations = topic_operations(context, name, asked=True)
        topics.append(described)
        if len(indexes) > room:
            return response(topics, Cursor(topic_name=name, partition_index=indexes[room]))
        room -= len(indexes)
    return response(topics, None)


def response(
    topics: list[DescribeTopicPartitionsResponseTopic], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=next_cursor)


def error_for_missing(name: str) -> ErrorCode:
    known_kind = is_valid_topic_name(name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known_kind else ErrorCode.INVALID_TOPIC_EXCEPTION


def missing_topic(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=NO_UUID, is_internal=False, partitions=[]
    )


def describe(topic: TopicImage, endpoints: BrokerEndpoints, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=[describe_partition(index, topic.partitions[index], endpoints) for index in indexes],
    )


def describe_partition(
    index: int, partition: PartitionImage, endpoints: BrokerEndpoints
) -> DescribeTopicPartitionsResponsePartition:
    code = endpoints.unavailability(partition)
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=NO_LEADER if code else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=endpoints.offline_replicas(partition),
    )
