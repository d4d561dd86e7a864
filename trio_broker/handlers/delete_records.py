"""DeleteRecords: move the log start offset of partitions forward.

Records before the new start cannot be read any more; their segments are deleted at the next retention check. The new
start is written to its checkpoint before the answer, so that records deleted for a client do not reappear after a
crash. The answer comes when all replicas that are alive have deleted, or with REQUEST_TIMED_OUT after ``timeout_ms``.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.record_deletion import deletable_partition
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DELETE_TOPIC, ForEach, its_name
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


@handles(
    DeleteRecordsRequest,
    error_response=error_response,
    requires=[ForEach([DELETE_TOPIC], "topics", "topics", its_name)],
)
async def delete_records(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """Delete up to each offset; each partition on its own, but for the checkpoints, which are written once."""
    services = context.services
    found: dict[TopicPartition, Partition | KafkaError] = {}
    offsets: dict[Partition, int] = {}
    async for topic in InTurns(request.topics):
        async for wanted in InTurns(topic.partitions):
            topic_partition = TopicPartition(topic.name, wanted.partition_index)
            try:
                partition = found[topic_partition] = deletable_partition(services, topic.name, wanted.partition_index)
            except KafkaError as error:
                found[topic_partition] = error.with_traceback(None)
            else:
                offsets[partition] = wanted.offset
    context.release_for_disk()
    outcomes = await services.replicas.record_deletion.delete(
        offsets, timeout_seconds=request.timeout_ms / 1000, release_handler=context.release_handler
    )
    return DeleteRecordsResponse(
        topics=[await results_in_topic(topic, found, outcomes) async for topic in InTurns(request.topics)]
    )


async def results_in_topic(
    topic: DeleteRecordsTopic,
    found: Mapping[TopicPartition, Partition | KafkaError],
    outcomes: Mapping[Partition, int | KafkaError],
) -> DeleteRecordsTopicResult:
    partitions = []
    async for wanted in InTurns(topic.partitions):
        here = found[TopicPartition(topic.name, wanted.partition_index)]
        partitions.append(result_in_partition(wanted, here if isinstance(here, KafkaError) else outcomes[here]))
    return DeleteRecordsTopicResult(name=topic.name, partitions=partitions)


def result_in_partition(wanted: DeleteRecordsPartition, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    """The low watermark of one partition, or why it has none."""
    if isinstance(outcome, KafkaError):
        return failed(wanted, outcome.code)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=outcome)
