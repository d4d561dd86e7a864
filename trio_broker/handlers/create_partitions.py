"""CreatePartitions: raise the number of partitions of topics. It never falls.

Source: Kafka's ControllerApis.createPartitions and ReplicationControlManager.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from trio_broker.cluster.replication_control import NewPartitions
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.client_quotas import partition_change_quota
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_TOPIC, ForEach, its_name

STRICT_QUOTA_SINCE_VERSION = 3


def error_response(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[refused_topic(topic.name, error) for topic in request.topics])


@handles(
    CreatePartitionsRequest,
    error_response=error_response,
    requires=[ForEach([ALTER_TOPIC], "topics", "results", its_name)],
    by_controller=True,
)
async def create_partitions(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    """Add partitions to each topic, or answer with its error."""
    wanted = [wanted_partitions(topic) async for topic in InTurns(request.topics)]
    context.release_for_disk()
    outcomes = await context.services.controller.create_partitions(
        wanted,
        validate_only=request.validate_only,
        apply_quota=partition_change_quota(context, strict_since=STRICT_QUOTA_SINCE_VERSION),
    )
    return CreatePartitionsResponse(
        results=[
            refused_topic(topic.name, outcome)
            if isinstance(outcome, KafkaError)
            else CreatePartitionsTopicResult(name=topic.name)
            async for topic, outcome in InTurns(zip(request.topics, outcomes, strict=True))
        ]
    )


def wanted_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    return NewPartitions(
        name=topic.name,
        count=topic.count,
        assignments=None if topic.assignments is None else [tuple(item.broker_ids) for item in topic.assignments],
    )


def refused_topic(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=str(error))
