"""What the start of a node writes."""

from __future__ import annotations

import pytest

from kafka_wire.stored.metadata import PartitionChangeRecord
from tests.fakes.controllers import set_image
from tests.fakes.images import image_with
from trio_broker.cluster.metadata_image import EndpointImage, PartitionImage
from trio_broker.cluster.replication_control import NewTopic


def partition(leader, replicas, isr):
    return PartitionImage(leader=leader, leader_epoch=3, partition_epoch=3, replicas=replicas, isr=isr)


@pytest.mark.parametrize(
    ("before", "unclean", "election"),
    [
        (partition(1, (1,), (1,)), "false", {"leader": 1}),
        (partition(2, (2, 1), (2, 1)), "false", {"leader": 1}),
        (partition(2, (2, 1), (2,)), "false", {"leader": -1}),
        (partition(2, (2, 1), (2,)), "true", {"leader": 1, "isr": [1], "leader_recovery_state": 1}),
        (partition(2, (2,), (2,)), "true", {"leader": -1}),
        (partition(-1, (2,), (2,)), "false", None),
    ],
)
async def test_only_a_node_in_sync_leads_unless_unclean_elections_are_allowed(
    controller, metadata_log, node, before, unclean, election
):
    configs = {"unclean.leader.election.enable": unclean}
    [topic] = await controller.create_topics([NewTopic(name="t", configs=configs)])
    set_image(controller, image_with(controller.image, "t", before))
    await controller.register_node(node)
    changes = [record for record in metadata_log.batches[-1] if isinstance(record, PartitionChangeRecord)]
    expected = [] if election is None else [{"partition_id": 0, "topic_id": topic.topic_id} | election]
    assert changes == [PartitionChangeRecord(**fields) for fields in expected]


async def test_a_start_registers_the_node_at_the_offset_of_its_registration(controller, metadata_log, node):
    await controller.create_topics([NewTopic(name="t")])
    offset = metadata_log.log_end_offset
    assert await controller.register_node(node) == offset
    broker = controller.image.brokers[1]
    assert (broker.broker_epoch, broker.fenced, broker.rack) == (offset, False, "r1")
    assert broker.endpoints == (EndpointImage("PLAINTEXT", "localhost", 9092, 0),)


async def test_every_start_raises_every_leader_epoch_in_one_batch(controller, metadata_log, node):
    await controller.create_topics([NewTopic(name="t", num_partitions=2), NewTopic(name="u")])
    await controller.register_node(node)
    epochs = [item.leader_epoch for topic in controller.image.topics.values() for item in topic.partitions.values()]
    assert epochs == [1, 1, 1]
    assert len(metadata_log.batches[-1]) == 4
