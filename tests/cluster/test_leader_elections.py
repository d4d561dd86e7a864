"""Elections of leaders that are asked for."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.fakes.controllers import set_image
from tests.fakes.images import image_with
from trio_broker.cluster.leader_elections import ElectionType, decide_election
from trio_broker.cluster.metadata_image import NO_LEADER, PartitionImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.topic_partition import TopicPartition

PREFERRED, UNCLEAN = ElectionType


def decide(controller, election, topic="t", partition=0):
    return decide_election(controller.image, controller.settings, election, TopicPartition(topic, partition))


@pytest.fixture
async def controller(controller):
    await controller.create_topics([NewTopic(name="t")])
    return controller


def place(controller, leader, replicas, isr):
    partition = PartitionImage(leader=leader, leader_epoch=3, partition_epoch=5, replicas=replicas, isr=isr)
    set_image(controller, image_with(controller.image, "t", partition))


@pytest.mark.parametrize("election", ElectionType)
async def test_a_partition_with_the_leader_wanted_needs_no_election(controller, election):
    with pytest.raises(KafkaError, match=r"Leader election not needed for topic partition\.") as raised:
        decide(controller, election)
    assert raised.value.code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(
    ("name", "partition", "reason"), [("u", 0, "No such topic as u"), ("t", 3, "No such partition as t-3")]
)
async def test_what_is_not_there_has_no_leader_to_elect(controller, name, partition, reason):
    with pytest.raises(KafkaError, match=reason) as raised:
        decide(controller, PREFERRED, name, partition)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("election", "leader", "isr", "code"),
    [
        (PREFERRED, 1, (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (PREFERRED, NO_LEADER, (2,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, 1, (1,), ErrorCode.ELECTION_NOT_NEEDED),
    ],
)
async def test_a_preferred_leader_elsewhere_is_not_alive(controller, election, leader, isr, code):
    place(controller, leader, (2, 1), isr)
    with pytest.raises(KafkaError) as raised:
        decide(controller, election)
    assert raised.value.code is code


async def test_without_any_replica_here_there_is_nobody_to_elect(controller):
    place(controller, NO_LEADER, (2,), (2,))
    with pytest.raises(KafkaError) as raised:
        decide(controller, UNCLEAN)
    assert raised.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_an_unclean_election_gives_the_partition_to_this_node_alone(controller):
    place(controller, NO_LEADER, (2, 1), (2,))
    assert await controller.elect_leaders(UNCLEAN, [TopicPartition("t", 0)]) == [None]
    elected = controller.image.topics["t"].partitions[0]
    assert elected == attrs.evolve(elected, leader=1, leader_epoch=4, partition_epoch=6, isr=(1,), replicas=(2, 1))
