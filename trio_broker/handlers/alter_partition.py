"""AlterPartition: give partitions the ISRs that their leader asks for, as the controller.

Source: Kafka's ControllerApis.handleAlterPartitionRequest and ReplicationControlManager.alterPartition.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from trio_broker.cluster.alter_partition import UNCHECKED_EPOCH, Altered, PartitionAlteration, ReplicaState
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.controller_requests import require_controller
from trio_broker.handlers.support.registry import handles


def error_response(request: AlterPartitionRequest, error: KafkaError) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error.code, topics=[])


@handles(AlterPartitionRequest, error_response=error_response, between_brokers=True)
async def alter_partition(request: AlterPartitionRequest, context: Context) -> AlterPartitionResponse:
    """Change the ISRs that may be changed; every other partition gets its error."""
    require_controller(context)
    topics = [TopicData(topic_id=topic.topic_id, partitions=[]) async for topic in InTurns(request.topics)]
    items = (
        (alteration(topic.topic_id, item), answered.partitions)
        for topic, answered in zip(request.topics, topics, strict=True)
        for item in topic.partitions
    )
    # All at once, for one write of the metadata log; each keeps the list that its result goes to.
    wanted = [item async for item in InTurns(items)]
    context.release_for_disk()
    outcomes = await context.services.controller.alter_partitions(
        request.broker_id, request.broker_epoch, [each async for each, _ in InTurns(wanted)]
    )
    async for (each, partitions), outcome in InTurns(zip(wanted, outcomes, strict=True)):
        partitions.append(answer(each.index, outcome))
    return AlterPartitionResponse(topics=topics)


def alteration(topic_id: bytes, item: AlterPartitionRequest.PartitionData) -> PartitionAlteration:
    """What is asked about one partition. Before version 3 the epochs of the brokers are not known."""
    isr = [ReplicaState(each.broker_id, each.broker_epoch) for each in item.new_isr_with_epochs]
    return PartitionAlteration(
        topic_id=topic_id,
        index=item.partition_index,
        leader_epoch=item.leader_epoch,
        partition_epoch=item.partition_epoch,
        isr=isr or [ReplicaState(broker_id, UNCHECKED_EPOCH) for broker_id in item.new_isr],
        leader_recovery_state=item.leader_recovery_state,
    )


def answer(index: int, outcome: Altered) -> PartitionData:
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
