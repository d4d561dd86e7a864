"""AlterPartition: the ISR that a leader asks for, in the versions with and without epochs."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_partition import AlterPartitionRequest, BrokerState
from kafka_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.handlers.second_broker import NODE_ID, SecondBroker
from trio_broker.cluster.metadata_image import TopicImage

LEADER = 1


async def replicated_topic(broker: SecondBroker) -> TopicImage:
    """A topic on both brokers, led by the first."""
    await broker.register()
    await broker.beat()
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, NODE_ID])
    topic = CreatableTopic(
        name="orders", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
    )
    response = await broker.wire.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == 0, response
    return broker.wire.services.metadata_cache.image.topics["orders"]


def request(broker: SecondBroker, topic: TopicImage, **others: Any) -> AlterPartitionRequest:
    """The leader alone is in sync, by its wish."""
    partition = topic.partitions[0]
    leader_epoch = broker.wire.services.metadata_cache.image.brokers[LEADER].broker_epoch
    data = AlterPartitionRequest.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        **{"new_isr_with_epochs": [BrokerState(broker_id=LEADER, broker_epoch=leader_epoch)], **others},
    )
    data_of_topic = AlterPartitionRequest.TopicData(topic_id=topic.topic_id, partitions=[data])
    return AlterPartitionRequest(broker_id=LEADER, broker_epoch=leader_epoch, topics=[data_of_topic])


@pytest.mark.parametrize("version", [2, 3])
async def test_a_leader_takes_a_replica_out_of_the_isr(second_broker, version):
    topic = await replicated_topic(second_broker)
    assert tuple(topic.partitions[0].isr) == (LEADER, NODE_ID)
    isr: dict[str, Any] = {"new_isr": [LEADER], "new_isr_with_epochs": []} if version == 2 else {}
    response = await second_broker.wire.ask(request(second_broker, topic, **isr), version)
    [altered] = response.topics[0].partitions
    assert (response.error_code, altered.error_code, altered.isr, altered.leader_id) == (0, 0, [LEADER], LEADER)
    # It is answered before the controller's own broker follows.
    await trio.testing.wait_all_tasks_blocked()
    partition = second_broker.wire.services.metadata_cache.image.topics["orders"].partitions[0]
    assert tuple(partition.isr) == (LEADER,)
    assert altered.partition_epoch == partition.partition_epoch


async def test_what_was_overtaken_is_refused_for_its_partition(second_broker):
    topic = await replicated_topic(second_broker)
    await second_broker.wire.ask(request(second_broker, topic), 3)
    response = await second_broker.wire.ask(request(second_broker, topic), 3)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_an_earlier_life_of_the_leader_is_refused_as_a_whole(second_broker):
    topic = await replicated_topic(second_broker)
    stale = request(second_broker, topic)
    stale.broker_epoch -= 1
    response = await second_broker.wire.ask(stale, 3)
    assert (response.error_code, response.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
