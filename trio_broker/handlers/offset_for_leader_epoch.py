"""OffsetForLeaderEpoch: the end offset of a leader epoch in this log.

A consumer that has seen a change of leader asks with the epoch of its last record; an end before its position means
that records it has read were truncated (KIP-320). An unknown epoch is no error: epoch and offset are then -1.

Source: Kafka's ReplicaManager.lastOffsetForLeaderEpoch; KIP-101, KIP-279.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.partitions import partition_here
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, DESCRIBE_TOPIC, ForEach, InHandler, its_topic


def error_response(request: OffsetForLeaderEpochRequest, error: KafkaError) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(error_code=error.code, partition=partition.partition)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    OffsetForLeaderEpochRequest,
    error_response=error_response,
    requires=[
        ForEach([DESCRIBE_TOPIC], "topics", "topics", its_topic, unless=CLUSTER_ACTION),
        InHandler([CLUSTER_ACTION], "of a replica, the request: CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: Context
) -> Steps[OffsetForLeaderEpochResponse]:
    """Look up every epoch in its partition's leader epochs."""
    if request.replica_id >= 0:
        context.require(CLUSTER_ACTION)
    topics: list[OffsetForLeaderTopicResult] = []
    budget = YieldBudget()
    for topic in request.topics:
        partitions: list[EpochEndOffset] = []
        for wanted in topic.partitions:
            partitions.append(look_up(topic.topic, wanted, context))
            if budget.is_spent:
                yield budget.renewed
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        if budget.is_spent:  # a topic may have no partitions
            yield budget.renewed
    return OffsetForLeaderEpochResponse(topics=topics)


def look_up(topic: str, wanted: OffsetForLeaderPartition, context: Context) -> EpochEndOffset:
    """The largest epoch not after the one asked for, and where it ends; the latest ends at the log end."""
    try:
        partition = partition_here(context.services, topic, wanted.partition)
        partition.require_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    end = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
