"""Reassignments of partitions on a cluster of one node."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.fakes.controllers import set_image
from tests.fakes.images import image_with
from trio_broker.cluster.metadata_image import PartitionImage
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignment
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.common.topic_partition import TopicPartition


@pytest.fixture
async def controller(controller):
    await controller.create_topics([NewTopic(name="t")])
    return controller


def decide(controller, replicas, name="t", partition=0, *, allow_replication_factor_change=True):
    wanted = Reassignment(TopicPartition(name, partition), replicas)
    changes = ClusterChanges(controller.image, controller.settings)
    return decide_reassignment(changes, wanted, allow_replication_factor_change=allow_replication_factor_change)


def refusal_of(controller, *arguments, **options):
    with pytest.raises(KafkaError) as raised:
        decide(controller, *arguments, **options)
    return raised.value.code, str(raised.value)


async def test_the_replicas_that_are_there_already_change_nothing(controller):
    assert decide(controller, [1]).records == ()


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([], "an empty replica list."),
        ([1, 1], "the broker 1 more than once."),
        ([9], "broker 9, but no such broker is registered."),
        ([1, 9], "broker 9, but no such broker is registered."),
    ],
)
async def test_replicas_that_make_no_sense_are_refused_in_kafkas_words(controller, replicas, reason):
    assert refusal_of(controller, replicas) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"The manual partition assignment includes {reason}",
    )


@pytest.mark.parametrize("replicas", [[1], None])
async def test_what_is_not_there_cannot_be_reassigned(controller, replicas):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal_of(controller, replicas, "u") == (code, "Unable to find a topic named u.")
    assert refusal_of(controller, replicas, "t", 7) == (code, "Unable to find partition t:7.")


async def test_no_reassignment_is_under_way_that_could_be_ended(controller):
    assert refusal_of(controller, None)[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.fixture
def once_of_two(controller):
    """The partition of a node that was one of two brokers, both of which are registered."""
    brokers = {**controller.image.brokers, 2: attrs.evolve(controller.image.brokers[1], broker_id=2, fenced=True)}
    partition = PartitionImage(leader=1, leader_epoch=3, partition_epoch=5, replicas=(2, 1), isr=(1,))
    set_image(controller, image_with(attrs.evolve(controller.image, brokers=brokers), "t", partition))
    return partition


async def test_replicas_that_are_not_alive_can_be_left_out(controller, once_of_two):
    wanted = Reassignment(TopicPartition("t", 0), [1])
    outcomes = await controller.reassign_partitions([wanted], allow_replication_factor_change=True)
    assert outcomes == [None]
    assert controller.image.topics["t"].partitions[0] == PartitionImage(
        leader=1, leader_epoch=4, partition_epoch=6, replicas=(1,), isr=(1,)
    )


async def test_the_number_of_replicas_changes_only_where_the_client_allows_it(controller, once_of_two):
    assert refusal_of(controller, [1], allow_replication_factor_change=False) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 2 to 1",
    )
    [change] = decide(controller, [1, 2], allow_replication_factor_change=False).records
    assert change.replicas == [1, 2]


async def test_this_node_keeps_what_nobody_else_could_take_over(controller, once_of_two):
    code, reason = refusal_of(controller, [2])
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "no replica that is alive and in sync would be left" in reason


async def test_a_broker_that_is_not_alive_gets_no_further_partition(controller, once_of_two):
    set_image(controller, image_with(controller.image, "t", attrs.evolve(once_of_two, replicas=(1,))))
    code, reason = refusal_of(controller, [1, 2])
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "broker 2 has no replica of it" in reason
