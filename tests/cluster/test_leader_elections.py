"""Elections of leaders that are asked for."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.fakes.clusters import after, cluster_image, summary
from tests.fakes.controllers import set_image
from tests.fakes.images import broker_record, image_after, image_with
from trio_broker.cluster import leader_elections
from trio_broker.cluster.leader_elections import ElectionType, decide_election, decide_leader_balance
from trio_broker.cluster.metadata_image import NO_LEADER, PartitionImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig

PREFERRED, UNCLEAN = ElectionType


def decide(controller, election, topic="t", partition=0):
    changes = ClusterChanges(controller.image, controller.settings)
    return decide_election(changes, election, TopicPartition(topic, partition))


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


# --- the balance of leaders ---


async def balanced(image, **settings):
    config = BrokerConfig({"node.id": "1", **settings})
    decision = await run_steps(decide_leader_balance(image, config))
    return decision, after(image, decision)


async def test_preferred_replicas_get_their_leadership_back_when_they_are_live_and_in_sync():
    partitions: list[dict[str, Any]] = [
        {"replicas": (1, 2), "leader": 2},
        {"replicas": (1, 2), "leader": 2, "isr": [2]},
        {"replicas": (3, 2), "leader": 2},
        {"replicas": (1, 2)},
    ]
    image = image_after(cluster_image([1, 2], partitions), broker_record(3, fenced=True))
    decision, after_it = await balanced(image)
    assert [summary(after_it, index)[0] for index in range(4)] == [1, 2, 2, 1]
    assert (decision.outcome, len(decision.records)) == (False, 1)
    assert (await balanced(image, **{"auto.leader.rebalance.enable": "false"}))[0].records == []


async def test_an_offline_partition_is_led_by_any_live_replica_where_its_topic_allows_it():
    image = cluster_image([1], [{"replicas": (2, 1), "leader": NO_LEADER, "isr": [2]}], elr=False)
    assert (await balanced(image))[0].records == []
    allowed = {"unclean.leader.election.enable": "true", "auto.leader.rebalance.enable": "false"}
    assert summary((await balanced(image, **allowed))[1])[0] == 1


async def test_some_elections_are_made_at_a_time(monkeypatch):
    monkeypatch.setattr(leader_elections, "MAX_BALANCING_ELECTIONS", 2)
    image = cluster_image([1, 2], [{"replicas": (1, 2), "leader": 2}] * 3)
    decision, image = await balanced(image)
    assert (decision.outcome, len(decision.records)) == (True, 2)
    decision, image = await balanced(image)
    assert (decision.outcome, len(decision.records)) == (False, 1)
    assert [summary(image, index)[0] for index in range(3)] == [1, 1, 1]
