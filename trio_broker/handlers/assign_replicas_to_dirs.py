"""AssignReplicasToDirs: take note of the log directories in which a broker has its replicas.

Source: Kafka's ControllerApis.handleAssignReplicasToDirs; KIP-858.
"""

from __future__ import annotations

from itertools import groupby

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from trio_broker.cluster.directory_assignments import DirectoryAssignment
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, for_cluster


def error_response(request: AssignReplicasToDirsRequest, error: KafkaError) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(error_code=error.code, directories=[])


@handles(
    AssignReplicasToDirsRequest,
    error_response=error_response,
    requires=[for_cluster(CLUSTER_ACTION)],
    by_controller=True,
    between_brokers=True,
)
async def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, context: Context
) -> AssignReplicasToDirsResponse:
    """Note the log directory of each replica of a broker, or answer with its error."""
    wanted = [
        DirectoryAssignment(topic_id=topic.topic_id, index=partition.partition_index, directory_id=directory.id)
        async for directory in InTurns(request.directories)
        async for topic in InTurns(directory.topics)
        async for partition in InTurns(topic.partitions)
    ]
    context.release_for_disk()
    outcomes = await context.services.controller.assign_replicas(request.broker_id, request.broker_epoch, wanted)
    noted = [
        (each, PartitionData(partition_index=each.index, error_code=ErrorCode.NONE if error is None else error.code))
        async for each, error in InTurns(zip(wanted, outcomes, strict=True))
    ]
    return AssignReplicasToDirsResponse(
        directories=[
            DirectoryData(
                id=directory_id,
                topics=[
                    TopicData(topic_id=topic_id, partitions=[partition for _, partition in partitions])
                    for topic_id, partitions in groupby(in_directory, key=lambda pair: pair[0].topic_id)
                ],
            )
            for directory_id, in_directory in groupby(noted, key=lambda pair: pair[0].directory_id)
        ]
    )
