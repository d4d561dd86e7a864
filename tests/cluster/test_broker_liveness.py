"""Brokers come, stop and vanish: who leads in their place, and who is in sync."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import BrokerRegistrationChangeRecord
from tests.fakes.clusters import after, cluster_image, partition_of, summary
from tests.fakes.images import broker_record, image_after
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat, BrokerHeartbeatManager
from trio_broker.cluster.broker_liveness import decide_fencing, decide_heartbeat, decide_unregistration
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig

PARTITIONS: list[dict[str, Any]] = [
    {"replicas": (1, 2, 3)},
    {"replicas": (2, 3, 1)},
    {"replicas": (1,)},
    {"replicas": (2, 3)},
    {"replicas": (1, 2, 3), "isr": [1, 2], "leader": 2},
]


@pytest.fixture
def config():
    return BrokerConfig({"node.id": "1", "min.insync.replicas": "2"})


@pytest.fixture
def image():
    return cluster_image([1, 2, 3], PARTITIONS)


@pytest.fixture
def sessions(image):
    made = BrokerHeartbeatManager(9.0)
    made.begin(image, now=0.0)
    return made


async def fence(image, config, broker_id):
    return after(image, await run_steps(decide_fencing(image, config, broker_id)))


async def beat(image, config, sessions, broker_id, offset=100, epoch=None, **wants):
    """The reply to a heartbeat, and the image that follows from it."""
    heartbeat = BrokerHeartbeat(
        broker_id=broker_id,
        broker_epoch=10 * broker_id if epoch is None else epoch,
        current_metadata_offset=offset,
        **wants,
    )
    decision = await run_steps(decide_heartbeat(image, config, sessions, heartbeat))
    return decision.outcome, after(image, decision)


async def test_a_fenced_broker_leads_nothing_and_is_in_no_isr(image, config):
    fenced = await fence(image, config, 1)
    assert fenced.brokers[1].fenced
    assert [summary(fenced, index) for index in range(5)] == [
        (2, (2, 3), ()),
        (2, (2, 3), ()),
        (NO_LEADER, (), (1,)),
        (2, (2, 3), ()),
        (2, (2,), (1,)),
    ]
    before, changed = partition_of(image, 1), partition_of(fenced, 1)
    assert changed.leader_epoch == before.leader_epoch, "a smaller ISR begins no leader epoch"
    assert partition_of(fenced, 0).leader_epoch == partition_of(image, 0).leader_epoch + 1
    assert partition_of(fenced, 3) == partition_of(image, 3)


async def test_a_broker_that_is_unfenced_leads_what_nobody_could(image, config, sessions):
    fenced = await fence(image, config, 1)
    waiting, same = await beat(fenced, config, sessions, 1, offset=9)
    assert (waiting.is_fenced, waiting.is_caught_up, same.brokers[1].fenced) == (True, False, True)
    reply, image = await beat(fenced, config, sessions, 1, offset=10)
    assert (reply.is_fenced, reply.is_caught_up, image.brokers[1].fenced) == (False, True, False)
    assert [summary(image, index) for index in (0, 2)] == [(2, (2, 3), ()), (1, (1,), ())]


async def test_a_heartbeat_that_changes_nothing_writes_nothing(image, config, sessions):
    heartbeat = BrokerHeartbeat(broker_id=1, broker_epoch=10, current_metadata_offset=5)
    decision = await run_steps(decide_heartbeat(image, config, sessions, heartbeat))
    assert (list(decision.records), decision.outcome.is_fenced) == ([], False)


async def test_without_eligible_replicas_the_last_in_sync_stay_so(config):
    image = cluster_image([1, 2, 3], PARTITIONS, elr=False)
    gone = await fence(await fence(image, config, 1), config, 2)
    assert summary(gone, 2) == (NO_LEADER, (1,), ())
    assert summary(gone, 4) == (NO_LEADER, (2,), ())
    assert summary(gone, 0) == (3, (3,), ())


async def test_any_live_replica_leads_where_the_topic_allows_it(image):
    unclean = BrokerConfig({"node.id": "1", "unclean.leader.election.enable": "true"})
    without_two = await fence(await fence(image, unclean, 2), unclean, 1)
    partition = partition_of(without_two, 4)
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (3, (3,), 1)


async def test_a_controlled_shutdown_moves_leaders_first_and_ends_when_all_have_read_so(image, config, sessions):
    reply, image = await beat(image, config, sessions, 1, want_shut_down=True)
    assert (reply.is_fenced, reply.in_controlled_shutdown, reply.should_shut_down) == (False, True, False)
    assert image.brokers[1].in_controlled_shutdown
    assert [summary(image, index)[0] for index in range(5)] == [2, 2, NO_LEADER, 2, 2]
    assert all(1 not in partition_of(image, index).isr for index in range(5))
    sessions.begin_controlled_shutdown(1, image.offset)
    reply, image = await beat(image, config, sessions, 1, want_shut_down=True)
    assert not reply.should_shut_down
    for broker_id in (2, 3):
        heartbeat = BrokerHeartbeat(
            broker_id=broker_id, broker_epoch=10 * broker_id, current_metadata_offset=image.offset
        )
        sessions.touch(heartbeat, now=1.0)
    reply, image = await beat(image, config, sessions, 1, want_shut_down=True)
    assert (reply.is_fenced, reply.should_shut_down, image.brokers[1].fenced) == (True, True, True)


async def test_a_broker_that_leads_nothing_stops_at_once(image, config, sessions):
    reply, image = await beat(image, config, sessions, 3, want_shut_down=True)
    assert (reply.should_shut_down, image.brokers[3].fenced) == (True, True)
    assert summary(image, 0) == (1, (1, 2), ())


async def test_a_broker_may_ask_to_be_fenced(image, config, sessions):
    reply, image = await beat(image, config, sessions, 1, want_fence=True)
    assert (reply.is_fenced, reply.should_shut_down, image.brokers[1].fenced) == (True, False, True)


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 9), (9, 90)])
async def test_a_heartbeat_of_another_life_is_stale(image, config, sessions, broker_id, epoch):
    with pytest.raises(KafkaError) as raised:
        await beat(image, config, sessions, broker_id, epoch=epoch)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_a_broker_that_is_gone_is_unregistered_and_eligible_no_more(image, config):
    fenced = await fence(image, config, 1)
    decision = await run_steps(decide_unregistration(fenced, config, 1))
    gone = after(fenced, decision)
    assert list(gone.brokers) == [2, 3]
    assert summary(gone, 2) == (NO_LEADER, (), ())
    assert partition_of(gone, 2).last_known_elr == (1,)
    assert summary(gone, 4) == (2, (2,), ())
    assert partition_of(gone, 0).replicas == (1, 2, 3)


@pytest.mark.parametrize(
    ("broker_id", "code"), [(9, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, ErrorCode.INVALID_REQUEST)]
)
async def test_only_registered_brokers_that_are_not_running_are_unregistered(image, config, broker_id, code):
    with pytest.raises(KafkaError) as raised:
        await run_steps(decide_unregistration(image, config, broker_id))
    assert raised.value.code is code


async def test_replicas_in_a_directory_that_failed_lead_no_more(config, sessions):
    first, second = (bytes(14) + b"\x01" + bytes([number]) for number in (1, 2))
    unknown = bytes(15) + b"\x01"
    partitions = [{"replicas": (1, 2), "directories": [each, unknown]} for each in (first, second, unknown)]
    image = cluster_image([2], partitions)
    image = image_after(image, broker_record(1, broker_epoch=10, log_dirs=[first, second]))
    reply, changed = await beat(image, config, sessions, 1, offline_log_dirs={first})
    assert not reply.is_fenced
    assert changed.brokers[1].log_dirs == (second,)
    assert [summary(changed, index)[:2] for index in range(3)] == [(2, (2,)), (1, (1, 2)), (1, (1, 2))]
    again = await beat(changed, config, sessions, 1, offline_log_dirs={first})
    assert again[1].offset == changed.offset, "it is written once"
    gone = await fence(changed, config, 2)
    assert summary(gone, 0)[0] == NO_LEADER


async def test_brokers_under_way_out_are_not_elected(image, config):
    record = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=20, in_controlled_shutdown=1)
    fenced = await fence(image_after(image, record), config, 1)
    assert summary(fenced, 0)[0] == 3


async def test_fencing_of_many_partitions_yields_meanwhile(config, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1)
    waits = []

    steps = decide_fencing(cluster_image([1, 2], [{"replicas": (1, 2)}] * 50), config, 1)
    decision = None
    while decision is None:
        try:
            waits.append(await next(steps)())
        except StopIteration as end:
            decision = end.value
    assert len(decision.records) == 51
    assert len(waits) >= 50
