"""WriteTxnMarkers: end transactions in partitions, as a coordinator or an administrator says.

An administrator ends so a transaction that no coordinator knows any more and that holds readers back.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-664.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, CLUSTER_ACTION, for_cluster
from trio_broker.partition.transaction_end import TransactionEnd


def error_response(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[outcome(index, error.code) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def outcome(index: int, code: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)


@handles(WriteTxnMarkersRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER, CLUSTER_ACTION)])
async def write_txn_markers(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    """Write each marker, and answer when all are durable."""
    return WriteTxnMarkersResponse(
        # Kafka answers nothing to a marker for no partition.
        markers=[await write(marker, context) async for marker in InTurns(request.markers) if marker.topics]
    )


async def write(marker: WritableTxnMarker, context: Context) -> WritableTxnMarkerResult:
    """Write one marker into each of its partitions, once into one that is named twice."""
    end = TransactionEnd(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    partitions = {
        TopicPartition(topic.name, index): None
        async for topic in InTurns(marker.topics)
        async for index in InTurns(topic.partition_indexes)
    }
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        # No producer has them, and a log with such a marker would not be one that Kafka reads.
        codes = {each: ErrorCode.INVALID_PRODUCER_EPOCH async for each in InTurns(partitions)}
    else:
        codes = await context.services.markers.write(end, partitions, context.release_handler)
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=[
                outcome(index, codes[TopicPartition(topic.name, index)])
                async for index in InTurns(topic.partition_indexes)
            ],
        )
        async for topic in InTurns(marker.topics)
    ]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
