"""A broker that is decommissioned loses its replicas to others, and is unregistered when it has none."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ConfigRecord, TopicRecord, UnregisterBrokerRecord
from tests.fakes.clusters import after, caught_up, cluster_image, partition_of
from tests.fakes.images import broker_record, image_after, partition_record
from trio_broker.cluster.broker_liveness import decide_unregistration
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigOperation,
    ResourceAlterations,
    decide_config_change,
)
from trio_broker.cluster.decommission import (
    MAX_MOVES,
    decide_decommissions,
    decommission_progress,
)
from trio_broker.cluster.decommission_progress import DecommissionState
from trio_broker.cluster.metadata_image import NO_LEADER, ConfigResource
from trio_broker.cluster.replica_placer import usable_brokers
from trio_broker.common.setting_names import DECOMMISSION
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.concurrency.steps import run_steps

OFFSETS_ID = bytes(15) + b"\x51"


def asked(image, config, broker_id=3, operation=ConfigOperation.SET):
    """What is decided about the setting of a broker."""
    value = "true" if operation is ConfigOperation.SET else None
    alteration = ConfigAlteration(DECOMMISSION, operation, value)
    return decide_config_change(image, config, ResourceAlterations(ConfigResource.of_broker(broker_id), (alteration,)))


def leaving(image, config, broker_id=3):
    return after(image, asked(image, config, broker_id))


async def step(image, config):
    return await run_steps(decide_decommissions(image, config))


def racks(broker_racks, partitions):
    """Brokers in these racks, with the topic ``t``."""
    image = cluster_image([], elr=False)
    brokers = [broker_record(each, rack=rack, broker_epoch=10 * each) for each, rack in broker_racks.items()]
    records = [partition_record(OFFSETS_ID, index, replicas) for index, replicas in enumerate(partitions)]
    return image_after(image, *brokers, TopicRecord(name="t", topic_id=OFFSETS_ID), *records)


async def test_replicas_move_to_other_racks_and_to_the_brokers_with_the_fewest(config):
    partitions = [(3, 1), (1, 3), (3, 2), (2, 1)]
    image = leaving(racks({1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}, partitions), config)
    image = caught_up(after(image, await step(image, config)))
    replicas = [partition_of(image, index).replicas for index in range(4)]
    # Each keeps one replica in either rack; and 4 and 5, which had none, get as many as one another, up to one.
    assert [set(each) for each in replicas] == [{1, 4}, {1, 5}, {2, 4}, {1, 2}]
    assert replicas[1][0] == 1, "who was preferred and stays is preferred"


async def test_it_moves_some_at_a_time_and_waits_for_them(config):
    image = leaving(cluster_image([1, 2, 3], [{"replicas": [3, 1]}] * (2 * MAX_MOVES + 1)), config)
    for left in (MAX_MOVES, 2 * MAX_MOVES, 2 * MAX_MOVES + 1):
        image = after(image, await step(image, config))
        assert (await step(image, config)).records == []
        image = caught_up(image)
        moved = sum(3 not in each.replicas for each in image.topics["t"].partitions.values())
        assert moved == left


async def test_new_replicas_are_placed_elsewhere_meanwhile(config):
    image = leaving(cluster_image([1, 2, 3]), config)
    assert [each.broker_id for each in usable_brokers(image)] == [1, 2]


async def test_what_is_empty_and_fenced_is_unregistered_with_its_setting(config):
    image = leaving(image_after(cluster_image([1, 2]), broker_record(3, fenced=True, broker_epoch=30)), config)
    decision = await step(image, config)
    assert decision.outcome == [3]
    assert decision.records == [
        UnregisterBrokerRecord(broker_id=3, broker_epoch=30),
        ConfigRecord(resource_type=4, resource_name="3", name=DECOMMISSION, value=None),
    ]
    assert after(image, decision).leaving_brokers == frozenset()


async def test_an_operator_who_unregisters_the_broker_takes_its_setting_along(config):
    image = leaving(image_after(cluster_image([1, 2]), broker_record(3, fenced=True, broker_epoch=30)), config)
    assert after(image, await run_steps(decide_unregistration(image, config, 3))).configs_by_resource == {}


async def test_what_nobody_leads_waits_and_keeps_nothing_from_its_move(config):
    lost = {"replicas": [3], "leader": NO_LEADER, "isr": [3]}
    image = leaving(cluster_image([1, 2, 3], [lost] * MAX_MOVES + [{"replicas": [3, 1]}]), config)
    [change] = (await step(image, config)).records
    assert change.partition_id == MAX_MOVES


async def test_the_broker_s_own_topics_lose_a_replica_and_need_one_in_sync_where_two_brokers_are_left(config):
    topic = TopicRecord(name=CONSUMER_OFFSETS_TOPIC, topic_id=OFFSETS_ID)
    raised = ConfigRecord(resource_type=2, resource_name=topic.name, name="min.insync.replicas", value="2")
    image = image_after(cluster_image([1, 2, 3]), topic, partition_record(OFFSETS_ID, replicas=(3, 1, 2)), raised)
    image = leaving(image, config)
    image = after(image, await step(image, config))
    offsets = image.topics[CONSUMER_OFFSETS_TOPIC]
    assert sorted(offsets.partitions[0].replicas) == [1, 2]
    assert offsets.configs == {}


async def test_it_is_refused_where_too_few_brokers_would_be_left(config):
    image = cluster_image([1, 2, 3], [{"replicas": [1, 2, 3]}])
    with pytest.raises(KafkaError) as refused:
        asked(image, config)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert str(refused.value) == (
        "broker 3 cannot be decommissioned: topic t has 3 replicas, and 2 brokers would be left"
    )
    with pytest.raises(KafkaError, match="broker 1 cannot be decommissioned: no other broker would be left"):
        asked(cluster_image([1]), config, 1)
    two_left = leaving(cluster_image([1, 2, 3, 4], [{"replicas": [1, 2, 4]}]), config, 3)
    with pytest.raises(KafkaError, match="topic t has 3 replicas, and 2 brokers would be left"):
        asked(two_left, config, 4)


async def test_a_cancellation_keeps_the_replicas_that_are_on_their_way(config):
    image = leaving(cluster_image([1, 2, 3], [{"replicas": [3, 1]}]), config)
    image = after(image, await step(image, config))
    assert partition_of(image).adding_replicas == (2,)
    image = after(image, asked(image, config, operation=ConfigOperation.DELETE))
    assert (sorted(partition_of(image).replicas), partition_of(image).is_reassigned) == ([1, 3], False)
    assert (await step(image, config)).records == ()


async def test_the_progress_is_read_from_the_image(config):
    image = cluster_image([1, 2, 3], [{"replicas": [3, 1]}, {"replicas": [1, 2]}])
    preview = await run_steps(decommission_progress(image, config, 3, is_asked=True))
    assert (preview.state, preview.replicas, preview.leaders) == (DecommissionState.NONE, 1, 1)
    [move] = preview.moves
    assert (move.topic, move.partition, move.replicas, set(move.target)) == ("t", 0, (3, 1), {1, 2})
    image = leaving(image, config)
    image = after(image, await step(image, config))
    progress = await run_steps(decommission_progress(image, config, 3))
    assert (progress.state, [each.is_under_way for each in progress.moves]) == (DecommissionState.MOVING, [True])
    progress = await run_steps(decommission_progress(caught_up(image), config, 3))
    assert (progress.state, progress.replicas, progress.moves) == (DecommissionState.STOPPING, 0, ())


async def test_what_no_broker_is_there_for_is_named_and_goes_on_when_one_is(config):
    image = leaving(cluster_image([1, 2, 3], [{"replicas": [3, 1]}]), config)
    image = image_after(image, broker_record(2, fenced=True, broker_epoch=20))
    progress = await run_steps(decommission_progress(image, config, 3))
    assert progress.blocked == "no broker is there for t-0, or none that leads"
    assert (await step(image, config)).records == []
    image = image_after(image, broker_record(2, broker_epoch=21))
    assert len((await step(image, config)).records) == 1
