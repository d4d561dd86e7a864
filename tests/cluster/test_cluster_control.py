"""What the start of a node writes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import BrokerFeature, FeatureLevelRecord, PartitionChangeRecord
from tests.fakes.clusters import after, cluster_image, partition_of, summary
from tests.fakes.controllers import set_image
from tests.fakes.images import broker_record, image_after, image_with
from trio_broker.cluster.broker_liveness import unfencing
from trio_broker.cluster.cluster_control import decide_broker_registration
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.features import SUPPORTED_WITH_REPLICAS, FeatureLevels, own_features
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    UNASSIGNED_DIRECTORY,
    EndpointImage,
    MetadataImage,
    PartitionImage,
)
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.concurrency.steps import run_steps


def partition(leader, replicas, isr):
    return PartitionImage(leader=leader, leader_epoch=3, partition_epoch=3, replicas=replicas, isr=isr)


@pytest.mark.parametrize(
    ("before", "unclean", "election"),
    [
        (partition(1, (1,), (1,)), "false", {"leader": 1}),
        (
            partition(2, (2, 1), (2, 1)),
            "false",
            {"leader": 1, "replicas": [1], "isr": [1], "directories": [UNASSIGNED_DIRECTORY]},
        ),
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


async def test_a_node_that_is_alone_now_takes_the_others_out(controller, node):
    """As after ``cluster leave``."""
    await controller.create_topics([NewTopic(name="t")])
    shared = image_with(controller.image, "t", partition(2, (2, 1, 3), (1, 2)))
    set_image(controller, image_after(shared, broker_record(2), broker_record(3)))
    await controller.register_node(node)
    assert controller.image.brokers.keys() == {1}
    alone = controller.image.topics["t"].partitions[0]
    assert (alone.replicas, alone.isr, alone.leader, alone.leader_epoch) == ((1,), (1,), 1, 4)


# --- one node of several ---

FIRST, SECOND = bytes(14) + b"\x01\x01", bytes(14) + b"\x01\x02"

PARTITIONS: list[dict[str, Any]] = [{"replicas": (1, 2)}, {"replicas": (2, 1), "isr": [2]}, {"replicas": (1,)}]


@pytest.fixture
def cluster():
    return cluster_image([1, 2], PARTITIONS)


@pytest.fixture
def joining(node):
    return attrs.evolve(node, log_dirs=[FIRST], features=own_features(), previous_broker_epoch=10)


async def decide(image, config, node, *, has_session=False, broker_epoch=100):
    return await run_steps(
        decide_broker_registration(image, config, node, has_session=has_session, broker_epoch=broker_epoch)
    )


async def test_a_node_of_several_begins_fenced_and_the_others_go_on_without_it(cluster, config, joining):
    decision = await decide(cluster, config, joining)
    image = after(cluster, decision)
    assert (decision.outcome, image.brokers[1].broker_epoch, image.brokers[1].fenced) == (100, 100, True)
    assert image.brokers[1].features["transaction.version"] == (0, 2)
    assert [summary(image, index) for index in range(3)] == [(2, (2,), ()), (2, (2,), ()), (-1, (), (1,))]


async def test_a_node_that_was_not_stopped_cleanly_may_have_lost_what_it_had(cluster, config, joining):
    """As a node with an empty disk, which is in no ISR by its name."""
    for epoch in (9, -1):
        image = after(cluster, await decide(cluster, config, attrs.evolve(joining, previous_broker_epoch=epoch)))
        assert summary(image, 2) == (-1, (), ())
        assert partition_of(image, 2).last_known_elr == (1,)
    fresh = after(cluster, await decide(cluster_image([2], PARTITIONS), config, joining))
    assert summary(fresh, 2) == (-1, (), ())


@pytest.mark.parametrize(
    ("assigned", "without_it"), [(UNASSIGNED_DIRECTORY, ()), (FIRST, (1,))], ids=["unassigned", "assigned"]
)
async def test_a_node_that_may_lead_without_its_log_is_not_the_last_known_leader(
    cluster, config, joining, assigned, without_it
):
    """Elected, it would have the others cut their logs to nothing: the partition waits for an unclean election. Where
    the directory is known, it waits for that."""
    stopped = after(cluster, await decide(cluster, config, joining))
    ((name, topic),) = stopped.topics.items()
    replica = attrs.evolve(partition_of(stopped, 2), directories=(assigned,))
    topic = attrs.evolve(topic, partitions={2: replica})
    stopped = attrs.evolve(stopped, topics={name: topic}, topics_by_id={topic.topic_id: topic})
    came_back = attrs.evolve(joining, incarnation_id=bytes(16), previous_broker_epoch=-1)
    for log_dirs, last_known in (([FIRST], (1,)), ([SECOND], without_it)):
        image = after(stopped, await decide(stopped, config, attrs.evolve(came_back, log_dirs=log_dirs)))
        assert summary(image, 2) == (-1, (), ())
        assert partition_of(image, 2).last_known_elr == last_known
        unfenced = after(image, ControllerResult(None, await run_steps(unfencing(image, config, image.brokers[1]))))
        assert summary(unfenced, 2) == ((1, (1,), ()) if log_dirs == [FIRST] else (-1, (), ()))


async def test_the_first_node_of_a_cluster_finalises_features_and_defaults(config, joining):
    image = after(MetadataImage(), await decide(MetadataImage(), config, joining, broker_epoch=0))
    assert image.features == {name: levels.high for name, levels in SUPPORTED_WITH_REPLICAS.items()}
    assert image.configs(CLUSTER_DEFAULT) == {"min.insync.replicas": "1"}


async def test_a_feature_is_finalised_when_all_nodes_know_it(config, joining):
    older = [BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1)]
    image = cluster_image([2], elr=False, features=older)
    assert after(image, await decide(image, config, joining)).features == {"group.version": 1}


async def test_another_process_of_an_id_in_contact_is_refused(cluster, config, joining):
    with pytest.raises(KafkaError) as raised:
        await decide(cluster, config, attrs.evolve(joining, previous_broker_epoch=9), has_session=True)
    assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_node_that_has_ended_the_life_that_is_registered_waits_for_no_session(cluster, config, joining):
    """As when a whole cluster was stopped and is started again: the new controller gives everybody a session."""
    decision = await decide(cluster, config, attrs.evolve(joining, previous_broker_epoch=10), has_session=True)
    assert after(cluster, decision).brokers[1].broker_epoch == 100


async def test_a_process_that_registers_again_keeps_its_epoch_and_its_state(cluster, config, joining):
    same = attrs.evolve(joining, incarnation_id=cluster.brokers[1].incarnation_id, rack="r2")
    decision = await decide(cluster, config, same, has_session=True)
    image = after(cluster, decision)
    assert (decision.outcome, len(decision.records)) == (10, 1)
    assert (image.brokers[1].rack, image.brokers[1].fenced) == ("r2", False)


@pytest.mark.parametrize("directories", [[], [FIRST, FIRST], [bytes(16)], [bytes(15) + b"\x01"], [SECOND]])
async def test_data_directories_have_ids_of_their_own(config, joining, directories):
    image = cluster_image([2], log_dirs=[SECOND])
    with pytest.raises(KafkaError) as raised:
        await decide(image, config, attrs.evolve(joining, log_dirs=directories))
    assert raised.value.code is ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize("fields", [{"node_id": -1}, {"endpoints": []}])
async def test_a_node_that_nobody_can_reach_is_refused(config, joining, fields):
    with pytest.raises(KafkaError) as raised:
        await decide(cluster_image([2]), config, attrs.evolve(joining, **fields))
    assert raised.value.code is ErrorCode.INVALID_REGISTRATION


async def test_a_node_that_does_not_know_a_finalised_level_is_refused(cluster, config, joining):
    image = image_after(cluster, FeatureLevelRecord(name="group.version", feature_level=1))
    features = {**own_features(), "group.version": FeatureLevels(0, 0)}
    with pytest.raises(KafkaError, match=r"does not support finalized version 1 of group\.version") as raised:
        await decide(image, config, attrs.evolve(joining, features=features))
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
