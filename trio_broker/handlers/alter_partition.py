"""AlterPartition: give partitions the in-sync replicas that their leaders ask for.

Source: Kafka's ControllerApis.handleAlterPartitionRequest and ReplicationControlManager.alterPartition; KIP-497.
"""

from __future__ import annotations

from itertools import groupby

from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from kafka_wire.primitives import NO_BROKER_EPOCH
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState
from trio_broker.cluster.metadata_image import PartitionImage
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, for_cluster

EPOCHS_SINCE_VERSION = 3
"""Before it an ISR is a list of ids alone (KIP-903)."""


def error_response(request: AlterPartitionRequest, error: KafkaError) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error.code, topics=[])


@handles(
    AlterPartitionRequest,
    error_response=error_response,
    requires=[for_cluster(CLUSTER_ACTION)],
    by_controller=True,
    between_brokers=True,
)
async def alter_partition(request: AlterPartitionRequest, context: Context) -> AlterPartitionResponse:
    """Change each partition, and answer with it as it is then, or with its error."""
    wanted = [
        alteration(topic.topic_id, partition, context.version)
        async for topic in InTurns(request.topics)
        async for partition in InTurns(topic.partitions)
    ]
    context.release_for_disk()
    outcomes = await context.services.controller.alter_partitions(request.broker_id, request.broker_epoch, wanted)
    altered = [
        (each.topic_id, altered_partition(each.index, outcome))
        async for each, outcome in InTurns(zip(wanted, outcomes, strict=True))
    ]
    return AlterPartitionResponse(
        topics=[
            TopicData(topic_id=topic_id, partitions=[partition for _, partition in partitions])
            for topic_id, partitions in groupby(altered, key=lambda pair: pair[0])
        ]
    )


def alteration(topic_id: bytes, wanted: AlterPartitionRequest.PartitionData, version: int) -> PartitionAlteration:
    if version < EPOCHS_SINCE_VERSION:
        isr = [ReplicaState(broker_id, NO_BROKER_EPOCH) for broker_id in wanted.new_isr]
    else:
        isr = [ReplicaState(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs]
    return PartitionAlteration(
        topic_id=topic_id,
        index=wanted.partition_index,
        leader_epoch=wanted.leader_epoch,
        partition_epoch=wanted.partition_epoch,
        isr=isr,
        leader_recovery_state=wanted.leader_recovery_state,
    )


def altered_partition(index: int, outcome: PartitionImage | KafkaError) -> PartitionData:
    if isinstance(outcome, KafkaError):
        return PartitionData(partition_index=index, error_code=outcome.code)
    return PartitionData(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=outcome.leader_recovery_state,
        partition_epoch=outcome.partition_epoch,
    )
