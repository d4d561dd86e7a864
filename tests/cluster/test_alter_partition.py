"""Leaders ask for another ISR: what they get, and each way in which they are refused."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import BrokerRegistrationChangeRecord
from tests.fakes.clusters import TOPIC_ID, after, cluster_image, partition_of
from tests.fakes.images import image_after
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState, decide_alterations
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig

ASKED = PartitionAlteration(
    topic_id=TOPIC_ID,
    index=0,
    leader_epoch=5,
    partition_epoch=7,
    isr=(ReplicaState(1, 10), ReplicaState(2, 20), ReplicaState(3, 30)),
    leader_recovery_state=0,
)


def isr_of(*broker_ids):
    return tuple(ReplicaState(broker_id, 10 * broker_id) for broker_id in broker_ids)


@pytest.fixture
def image():
    return image_with_partition()


def image_with_partition(**fields):
    partition = {"replicas": (1, 2, 3), "isr": [1, 2], "leader_epoch": 5, "partition_epoch": 7, **fields}
    return cluster_image([1, 2, 3, 4], [partition])


async def ask(image, config, *wanted, broker_id=1, broker_epoch=10):
    return list(await run_steps(decide_alterations(image, config, broker_id, broker_epoch, wanted or (ASKED,))))


async def refusal(image, config, broker_id=1, **fields):
    wanted = attrs.evolve(ASKED, **fields)
    [error] = await ask(image, config, wanted, broker_id=broker_id, broker_epoch=10 * broker_id)
    assert isinstance(error, KafkaError), error
    return error.code


async def test_a_leader_gets_the_isr_it_asks_for_in_its_leader_epoch(image, config):
    [result] = await ask(image, config)
    changed = partition_of(after(image, result))
    assert result.outcome == changed
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1, 2, 3), 1, 5, 8)


async def test_an_isr_that_is_there_already_changes_nothing(image, config):
    [result] = await ask(image, config, attrs.evolve(ASKED, isr=isr_of(1, 2)))
    assert result == ControllerResult(partition_of(image), ())


async def test_who_leaves_an_isr_that_becomes_too_small_is_eligible(image):
    config = BrokerConfig({"node.id": "1", "min.insync.replicas": "2"})
    [result] = await ask(image, config, attrs.evolve(ASKED, isr=isr_of(1)))
    assert result.outcome.eligible_leader_replicas == (2,)


async def test_a_recovery_ends_with_the_isr_that_its_leader_reports(config):
    image = image_with_partition(isr=[1], leader_recovery_state=1)
    [result] = await ask(image, config)
    assert (result.outcome.leader_recovery_state, result.outcome.isr) == (0, (1, 2, 3))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ({"broker_id": 2, "partition_epoch": 6}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": isr_of(1, 4)}, ErrorCode.INVALID_REQUEST),
        ({"isr": isr_of(1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": isr_of(2, 3)}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1, "isr": isr_of(1)}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        ({"isr": (ReplicaState(1, 10), ReplicaState(3, 29))}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
async def test_what_may_not_be_is_refused_with_kafkas_code(image, config, fields, code):
    assert await refusal(image, config, **fields) is code


async def test_an_epoch_that_the_leader_does_not_know_is_not_checked(image, config):
    [result] = await ask(image, config, attrs.evolve(ASKED, isr=(ReplicaState(1, -1), ReplicaState(3, -1))))
    assert result.outcome.isr == (1, 3)


@pytest.mark.parametrize("change", [{"fenced": 1}, {"in_controlled_shutdown": 1}])
async def test_only_active_brokers_come_into_an_isr(image, config, change):
    image = image_after(image, BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=30, **change))
    assert await refusal(image, config) is ErrorCode.INELIGIBLE_REPLICA


async def test_a_broker_that_is_not_registered_comes_into_no_isr(config):
    image = cluster_image([1, 2], [{"replicas": (1, 2, 3), "isr": [1, 2], "leader_epoch": 5, "partition_epoch": 7}])
    assert await refusal(image, config) is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 9), (1, 11), (5, 50)])
async def test_a_broker_of_another_life_is_refused_as_a_whole(image, config, broker_id, epoch):
    with pytest.raises(KafkaError) as raised:
        await ask(image, config, broker_id=broker_id, broker_epoch=epoch)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_the_isr_that_completes_a_reassignment_changes_the_replicas(config):
    image = image_with_partition(replicas=(1, 2, 3), adding_replicas=[3], removing_replicas=[2])
    [result] = await ask(image, config)
    changed = partition_of(after(image, result))
    assert result.outcome == changed
    assert (changed.replicas, changed.isr, changed.adding_replicas, changed.removing_replicas) == (
        (1, 3),
        (1, 3),
        (),
        (),
    )
    assert (changed.leader, changed.leader_epoch) == (1, 6)


async def test_a_leader_that_its_reassignment_takes_away_is_answered_so_and_followed_by_another(config):
    image = image_with_partition(adding_replicas=[3], removing_replicas=[1])
    [result] = await ask(image, config)
    assert result.outcome.code is ErrorCode.NEW_LEADER_ELECTED
    changed = partition_of(after(image, result))
    assert (changed.replicas, changed.isr, changed.leader, changed.leader_epoch) == ((2, 3), (2, 3), 2, 6)


async def test_one_partition_twice_in_a_request_is_refused_and_others_go_on(config):
    partition = {"replicas": (1, 2, 3), "isr": [1, 2], "leader_epoch": 5, "partition_epoch": 7}
    image = cluster_image([1, 2, 3], [partition, partition])
    first, second, other = await ask(image, config, ASKED, ASKED, attrs.evolve(ASKED, index=1))
    assert (first.code, second.code) == (ErrorCode.INVALID_REQUEST,) * 2
    assert other.outcome.isr == (1, 2, 3)
