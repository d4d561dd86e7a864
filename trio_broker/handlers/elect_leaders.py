"""ElectLeaders: elect the preferred leader of partitions or, accepting a loss of records, any live replica.

For a request about all partitions, the answer names every topic, and of its partitions those that needed an election.

Source: Kafka's ControllerApis.handleElectLeaders and ReplicationControlManager.electLeaders.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from trio_broker.cluster.leader_elections import ElectionType
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, clear_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster

NOTHING_TO_ELECT = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Left out of an answer about all partitions; the second are those that were deleted since it was begun."""


def error_response(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=item.topic, partition_result=[result(partition, error) for partition in item.partitions]
            )
            for item in request.topic_partitions or ()
        ],
    )


@handles(ElectLeadersRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER)], by_controller=True)
async def elect_leaders(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """Elect leaders of the partitions that need one; every other partition gets its error."""
    try:
        election = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(f"Unknown election type {request.election_type}", code=ErrorCode.INVALID_REQUEST) from None
    if request.topic_partitions is not None:
        wanted = [(item.topic, item.partitions) async for item in InTurns(request.topic_partitions)]
        return await elect(wanted, election, context)
    topics = context.services.metadata_cache.image.topics.values()
    response = await elect([(topic.name, list(topic.partitions)) for topic in topics], election, context)
    for item in response.replica_election_results:
        item.partition_result = [one for one in item.partition_result if one.error_code not in NOTHING_TO_ELECT]
    return response


async def elect(
    wanted: Iterable[tuple[str, Iterable[int]]], election: ElectionType, context: Context
) -> ElectLeadersResponse:
    """Elect a leader of every partition; return the results in their order."""
    # The controller takes all partitions at once, for one write of its log; each keeps the list that its result goes
    # to.
    results = [ReplicaElectionResult(topic=topic, partition_result=[]) async for topic, _ in InTurns(wanted)]
    items = (
        (TopicPartition(topic, partition), item.partition_result)
        for (topic, indexes), item in zip(wanted, results, strict=True)
        for partition in indexes
    )
    partitions = [item async for item in InTurns(items)]
    named = [partition async for partition, _ in InTurns(partitions)]
    context.release_for_disk()
    outcomes = await context.services.controller.elect_leaders(election, named)
    async for (partition, elected), outcome in InTurns(zip(partitions, outcomes, strict=True)):
        elected.append(result(partition.partition, outcome))
    await run_steps(clear_in_turns(partitions, outcomes))
    return ElectLeadersResponse(replica_election_results=results)


def result(partition: int, error: KafkaError | None) -> PartitionResult:
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
    )
