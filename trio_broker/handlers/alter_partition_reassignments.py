"""AlterPartitionReassignments: change the replicas of partitions, or cancel such a change.

Source: Kafka's ControllerApis.handleAlterPartitionReassignments and ReplicationControlManager.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from trio_broker.cluster.partition_reassignments import Reassignment
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, clear_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster


def error_response(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=str(error),
        responses=[],
    )


@handles(
    AlterPartitionReassignmentsRequest,
    error_response=error_response,
    requires=[for_cluster(ALTER_CLUSTER)],
    by_controller=True,
)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Assign the replicas asked for where they can be; every other partition gets its error."""
    responses = [ReassignableTopicResponse(name=topic.name, partitions=[]) async for topic in InTurns(request.topics)]
    # All at once, for one write of the metadata log; each keeps the list that its result goes to.
    items = (
        (Reassignment(TopicPartition(topic.name, item.partition_index), item.replicas), response.partitions)
        for topic, response in zip(request.topics, responses, strict=True)
        for item in topic.partitions
    )
    wanted = [item async for item in InTurns(items)]
    reassignments = [reassignment async for reassignment, _ in InTurns(wanted)]
    context.release_for_disk()
    outcomes = await context.services.controller.reassign_partitions(
        reassignments, allow_replication_factor_change=request.allow_replication_factor_change
    )
    async for (reassignment, partitions), outcome in InTurns(zip(wanted, outcomes, strict=True)):
        partitions.append(reassigned(reassignment.partition.partition, outcome))
    await run_steps(clear_in_turns(wanted, outcomes))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


def reassigned(partition: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
    )
