"""DescribeProducers: the idempotent producers that each partition remembers, with where an open transaction began.

Tells which transaction holds the last stable offset back. A producer is forgotten ``producer.id.expiration.ms`` after
its last batch.

Source: Kafka's KafkaApis.handleDescribeProducersRequest and UnifiedLog.activeProducers; KIP-664.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kafka_wire.primitives import NO_OFFSET
from trio_broker.common.topic_names import require_valid_topic_name
from trio_broker.concurrency.yield_budget import InTurns, YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.partitions import partition_here
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_TOPIC, ForEach, its_name
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.partition import Partition
from trio_broker.storage.producer_state import ProducerEntry


def failed(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=str(error), active_producers=[]
    )


def error_response(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=topic.name, partitions=[failed(index, error) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


@handles(
    DescribeProducersRequest,
    error_response=error_response,
    requires=[ForEach([READ_TOPIC], "topics", "topics", its_name)],
)
async def describe_producers(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    """Describe the producers of each partition, or say why its producers are not known."""
    # A partition that is named twice is described once: a hundred thousand producers take megabytes to describe, and
    # their partition four bytes to name.
    asked: dict[str, dict[int, None]] = {}
    async for topic in InTurns(request.topics):
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    budget = YieldBudget()
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name,
                partitions=[await describe_partition(name, index, context.services, budget) for index in indexes],
            )
            for name, indexes in asked.items()
        ]
    )


async def describe_partition(
    topic: str, index: int, services: BrokerServices, budget: YieldBudget
) -> PartitionResponse:
    await budget.maybe_yield()
    try:
        partition = led_partition(topic, index, services)
    except KafkaError as error:
        return failed(index, error)
    described = []
    # A copy: producers appear and expire while this yields.
    for entry in list(partition.producers.producers.values()):
        described.append(describe_producer(entry))
        await budget.maybe_yield()
    return PartitionResponse(partition_index=index, active_producers=described)


def led_partition(topic: str, index: int, services: BrokerServices) -> Partition:
    """The partition, if it can be used.

    Raises:
        KafkaError: ``INVALID_TOPIC_EXCEPTION``; those of ``partition_here`` and ``Partition.require_leader``.
    """
    require_valid_topic_name(topic)
    partition = partition_here(services, topic, index)
    partition.require_leader()
    return partition


def describe_producer(entry: ProducerEntry) -> ProducerState:
    first_offset = entry.transaction_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
    )
