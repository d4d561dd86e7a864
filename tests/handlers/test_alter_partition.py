"""AlterPartition."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from tests.handlers.brokers_client import SECOND, BrokersClient, alter_partition
from tests.handlers.two_brokers import FROM_BROKER, HERE, Locator, Peers, in_cluster
from trio_broker.cluster.replication_control import NewTopic


@pytest.fixture
def locator():
    return Locator(HERE)


@pytest.fixture
async def controller(wire, locator):
    """A controller, which leads a partition that broker 2 has a replica of as well."""
    made = in_cluster(wire, locator, Peers(), FROM_BROKER)
    second = BrokersClient(made)
    await second.register()
    topic = NewTopic(name="t", assignments={0: [made.services.node.node_id, SECOND]})
    await made.services.controller.create_topics([topic])
    await second.beat()
    return made


def partition(controller):
    return controller.services.metadata_cache.image.topics["t"].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
async def test_the_leader_gets_the_isr_that_it_asks_for(controller, version):
    first = controller.services.node.node_id
    assert partition(controller).isr == (first,)
    request = alter_partition(controller, "t", [first, SECOND], broker_id=first, version=version)
    response = await controller.ask(request, version)
    [topic] = response.topics
    [answered] = topic.partitions
    assert (response.error_code, answered.error_code, answered.isr) == (0, 0, [first, SECOND])
    changed = partition(controller)
    assert (changed.isr, changed.leader_epoch) == ((first, SECOND), answered.leader_epoch)
    assert (answered.leader_id, answered.partition_epoch) == (first, changed.partition_epoch)


async def test_what_may_not_be_is_refused_for_each_partition(controller):
    first = controller.services.node.node_id
    request = alter_partition(controller, "t", [first, SECOND], broker_id=first, partition_epoch=-1)
    [topic] = (await controller.ask(request, 3)).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_UPDATE_VERSION]
    assert partition(controller).isr == (first,)


async def test_a_broker_of_an_earlier_life_is_refused_as_a_whole(controller):
    first = controller.services.node.node_id
    request = alter_partition(controller, "t", [first, SECOND], broker_id=first)
    request.broker_epoch -= 1
    response = await controller.ask(request, 3)
    assert (response.error_code, response.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


async def test_only_the_controller_answers(controller, locator):
    first = controller.services.node.node_id
    locator.controller_name = "another"
    response = await controller.ask(alter_partition(controller, "t", [first], broker_id=first), 3)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
