"""DeleteRecords: move the log start offset of partitions forward.

Records before the new start cannot be read any more; their segments are deleted at the next retention check. The new
start is written to its checkpoint before the answer, so that records deleted for a client do not reappear after a
crash.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.record_deletion import deletable_partition
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.partition import Partition

NO_LOW_WATERMARK = -1


def failed(partition: DeleteRecordsPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )


def error_response(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[failed(partition, error.code) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@handles(DeleteRecordsRequest, error_response=error_response)
async def delete_records(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """Delete up to each offset; each partition on its own, but for the checkpoints, which are written once."""
    services = context.services
    offsets: dict[Partition, int] = {}
    async for topic in InTurns(request.topics):
        async for wanted in InTurns(topic.partitions):
            with suppress(KafkaError):
                offsets[deletable_partition(services, topic.name, wanted.partition_index)] = wanted.offset
    context.release_for_disk()
    outcomes = await services.replicas.delete_records(offsets)
    return DeleteRecordsResponse(
        topics=[await results_in_topic(topic, services, outcomes) async for topic in InTurns(request.topics)]
    )


async def results_in_topic(
    topic: DeleteRecordsTopic, services: BrokerServices, outcomes: Mapping[Partition, int | KafkaError]
) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            result_in_partition(topic.name, wanted, services, outcomes) async for wanted in InTurns(topic.partitions)
        ],
    )


def result_in_partition(
    topic: str,
    wanted: DeleteRecordsPartition,
    services: BrokerServices,
    outcomes: Mapping[Partition, int | KafkaError],
) -> DeleteRecordsPartitionResult:
    """The new log start offset of one partition, or why it has none."""
    try:
        outcome = outcomes[deletable_partition(services, topic, wanted.partition_index)]
    except KafkaError as error:
        return failed(wanted, error.code)
    if isinstance(outcome, KafkaError):
        return failed(wanted, outcome.code)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=outcome)
