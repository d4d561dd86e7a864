"""DeleteRecords: move the log start offset of partitions forward.

Records before the new start cannot be read any more; their segments are deleted at the next retention check. The new
start is written to its checkpoint before the answer, so that records deleted for a client do not reappear after a
crash.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

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
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.record_deletion import delete_records_before
from trio_broker.handlers.support.registry import handles
from trio_broker.yield_budget import InTurns

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
    """Delete up to each offset; each partition on its own."""
    return DeleteRecordsResponse(
        topics=[await delete_in_topic(topic, context) async for topic in InTurns(request.topics)]
    )


async def delete_in_topic(topic: DeleteRecordsTopic, context: Context) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            await delete_in_partition(topic.name, partition, context) async for partition in InTurns(topic.partitions)
        ],
    )


async def delete_in_partition(
    topic: str, wanted: DeleteRecordsPartition, context: Context
) -> DeleteRecordsPartitionResult:
    """Move one log start offset, and return its new value."""
    try:
        low_watermark = await delete_records_before(
            context.services.replicas, topic, wanted.partition_index, wanted.offset
        )
    except KafkaError as error:
        return failed(wanted, error.code)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)
