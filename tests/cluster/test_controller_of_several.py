"""The controller of several brokers: they register, beat, lead, stop and vanish, and topics go on."""

from __future__ import annotations

import logging
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.fakes.clusters import partition_of, summary
from tests.fakes.controllers import make_controller, set_image
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.features import own_features
from trio_broker.cluster.leader_elections import ElectionType
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.partition_reassignments import Reassignment
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import ManualClock

T_0 = TopicPartition("t", 0)


class Brokers:
    """Brokers without data that a test starts, beats and stops."""

    def __init__(self, controller, node):
        self.controller = controller
        self._node = node
        self.epochs: dict[int, int] = {}
        self.lives: dict[int, int] = {}

    async def register(self, broker_id, *, clean=True):
        life = self.lives[broker_id] = self.lives.get(broker_id, 0) + 1
        node = attrs.evolve(
            self._node,
            node_id=broker_id,
            incarnation_id=bytes([broker_id, life]) + bytes(14),
            log_dirs=[bytes(14) + bytes([1, broker_id])],
            features=own_features(),
            previous_broker_epoch=self.epochs.get(broker_id, -1) if clean else -1,
        )
        self.epochs[broker_id] = await self.controller.register_broker(node)

    async def beat(self, *broker_ids, **wants):
        replies = []
        for broker_id in broker_ids:
            heartbeat = BrokerHeartbeat(
                broker_id=broker_id,
                broker_epoch=self.epochs[broker_id],
                current_metadata_offset=self.controller.image.offset,
                **wants,
            )
            replies.append(await self.controller.heartbeat(heartbeat))
        return replies[-1]

    async def start(self, *broker_ids, clean=True):
        for broker_id in broker_ids:
            await self.register(broker_id, clean=clean)
            await self.beat(broker_id)

    async def alter(self, isr, **fields):
        """What the leader of the partition gets for this ISR."""
        present = partition_of(self.controller.image)
        alteration = PartitionAlteration(
            topic_id=self.controller.image.topics["t"].topic_id,
            index=0,
            leader_epoch=present.leader_epoch,
            partition_epoch=present.partition_epoch,
            isr=[ReplicaState(broker_id, self.epochs[broker_id]) for broker_id in isr],
            leader_recovery_state=0,
        )
        leader = present.leader
        [result] = await self.controller.alter_partitions(
            leader, self.epochs[leader], [attrs.evolve(alteration, **fields)]
        )
        return result


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def brokers(metadata_log, node, clock):
    config = BrokerConfig({"node.id": "1", "min.insync.replicas": "2"})
    made = Brokers(make_controller(metadata_log, config, clock=clock), node)
    await made.start(1, 2, 3)
    await made.controller.create_topics([NewTopic(name="t", assignments={0: [1, 2, 3]})])
    return made


@pytest.fixture
def controller(brokers):
    return brokers.controller


async def test_brokers_begin_fenced_and_serve_after_their_first_heartbeat(brokers, controller):
    assert [broker.is_active for broker in controller.image.brokers.values()] == [True] * 3
    await brokers.beat(1, want_shut_down=True, want_fence=True)
    await brokers.register(1)
    assert controller.image.brokers[1].fenced


async def test_the_quorum_has_how_far_the_other_brokers_have_read_by_their_last_heartbeats(brokers, controller):
    await brokers.beat(2, 3)
    read = controller.image.offset + 1
    await controller.create_topics([NewTopic(name="u")])
    await brokers.beat(3)
    quorum = await controller.describe_quorum()
    assert quorum.observers == {2: read, 3: quorum.log_end_offset}


async def test_a_silent_broker_is_fenced_by_the_clock_and_comes_back_into_the_isr_by_its_leader(
    brokers, controller, clock
):
    clock.advance(5)
    await brokers.beat(2, 3)
    await controller.periodic_tasks.fence_stale_brokers()
    assert summary(controller.image) == (1, (1, 2, 3), ())
    clock.advance(5)
    await brokers.beat(2)
    await controller.periodic_tasks.fence_stale_brokers()
    assert summary(controller.image) == (2, (2, 3), ())
    assert (await brokers.beat(1)).is_fenced is False
    assert summary(controller.image) == (2, (2, 3), ())
    await brokers.alter([2, 3, 1])
    assert summary(controller.image) == (2, (2, 3, 1), ())
    assert await controller.elect_leaders(ElectionType.PREFERRED, [T_0]) == [None]
    assert summary(controller.image) == (1, (2, 3, 1), ())


async def test_an_election_is_decided_on_what_was_decided_while_it_waited(brokers, controller):
    refusals = []

    async def elect():
        refusals.extend(await controller.elect_leaders(ElectionType.PREFERRED, [T_0]))

    async with trio.open_nursery() as nursery, controller.operations.lock:
        nursery.start_soon(partial(brokers.beat, 1, want_fence=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(elect)
        await trio.testing.wait_all_tasks_blocked()
    assert [each.code for each in refusals] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert summary(controller.image) == (2, (2, 3), ())


async def test_no_process_takes_the_id_of_a_broker_in_contact_and_any_may_after_its_session(brokers, controller, clock):
    with pytest.raises(KafkaError) as raised:
        await brokers.register(1, clean=False)
    assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    clock.advance(10)
    await brokers.beat(2, 3)
    await brokers.register(1, clean=False)
    assert summary(controller.image) == (2, (2, 3), ())


async def test_a_new_controller_gives_every_broker_a_whole_session(brokers, metadata_log, node, clock):
    clock.advance(100)
    config = BrokerConfig({"node.id": "2"})
    successor = make_controller(metadata_log, config, metadata_log.records, clock=clock)
    successor.begin_sessions()
    await successor.periodic_tasks.fence_stale_brokers()
    assert summary(successor.image) == (1, (1, 2, 3), ())
    clock.advance(10)
    # The first look finds that nobody is heard, and would leave the claim to others.
    await successor.periodic_tasks.fence_stale_brokers()
    assert summary(successor.image) == (1, (1, 2, 3), ())
    claim = successor.writer.require_active()
    successor.periodic_tasks.offer.holding(attrs.evolve(claim, epoch=claim.epoch + 1))
    await successor.periodic_tasks.fence_stale_brokers()
    assert [broker.fenced for broker in successor.image.brokers.values()] == [True] * 3
    # The last of an ISR that is large enough are eligible, and lead when they are back.
    assert summary(successor.image)[0] == NO_LEADER


async def test_all_go_and_the_first_who_may_leads_again(brokers, controller, clock):
    await brokers.beat(1, want_fence=True)
    await brokers.beat(2, want_fence=True)
    assert summary(controller.image) == (3, (3,), (2,))
    await brokers.beat(3, want_fence=True)
    assert summary(controller.image) == (NO_LEADER, (), (2, 3))
    await brokers.beat(1)
    assert summary(controller.image) == (NO_LEADER, (), (2, 3)), "it may lack what the others have committed since"
    await brokers.beat(2)
    assert summary(controller.image) == (2, (2,), (3,))
    await brokers.alter([2, 1])
    assert summary(controller.image) == (2, (2, 1), ())


async def test_a_controlled_stop_and_a_start_leave_the_broker_eligible_and_an_unclean_one_does_not(brokers, controller):
    await brokers.beat(3, want_fence=True)
    for clean, eligible in ((True, (1,)), (False, ())):
        await brokers.alter([2, 1] if summary(controller.image)[0] == 2 else [1, 2])
        reply = await brokers.beat(1, want_shut_down=True)
        if reply.in_controlled_shutdown:
            await brokers.beat(2)
            reply = await brokers.beat(1, want_shut_down=True)
        assert reply.should_shut_down
        assert summary(controller.image) == (2, (2,), (1,))
        await brokers.register(1, clean=clean)
        assert summary(controller.image) == (2, (2,), eligible)
        await brokers.beat(1)


async def test_a_reassignment_adds_a_replica_and_takes_another_away_when_it_has_caught_up(brokers, controller):
    await brokers.start(4)
    wanted = Reassignment(T_0, [4, 2, 3])
    assert await controller.reassign_partitions([wanted], allow_replication_factor_change=False) == [None]
    partition = partition_of(controller.image)
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((4, 2, 3, 1), (4,), (1,))
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2, 3), 0)
    result = await brokers.alter([1, 2, 3, 4])
    assert result.code is ErrorCode.NEW_LEADER_ELECTED
    partition = partition_of(controller.image)
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((4, 2, 3), (2, 3, 4), 4, 1)
    assert not partition.is_reassigned


async def test_a_second_change_of_one_partition_in_a_request_is_refused(brokers, controller):
    await brokers.start(4)
    wanted = [Reassignment(T_0, [4, 2, 3]), Reassignment(T_0, [2, 1]), Reassignment(TopicPartition("t", 9), [1])]
    done, second, unknown = await controller.reassign_partitions(wanted, allow_replication_factor_change=True)
    assert (done, second.code) == (None, ErrorCode.INVALID_REQUEST)
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition_of(controller.image).replicas == (4, 2, 3, 1)


async def test_a_reassignment_is_cancelled(brokers, controller):
    await brokers.start(4)
    await controller.reassign_partitions([Reassignment(T_0, [4, 2, 3])], allow_replication_factor_change=True)
    outcomes = await controller.reassign_partitions([Reassignment(T_0, None)], allow_replication_factor_change=True)
    assert outcomes == [None]
    partition = partition_of(controller.image)
    assert (sorted(partition.replicas), partition.isr, partition.leader) == ([1, 2, 3], (1, 2, 3), 1)
    assert partition.leader_epoch == 1, "the replica that is taken away must not go on following"
    [error] = await controller.reassign_partitions([Reassignment(T_0, None)], allow_replication_factor_change=True)
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_cancellation_that_would_lose_records_needs_unclean_elections(brokers, controller):
    await brokers.start(4)
    await controller.reassign_partitions([Reassignment(T_0, [4, 1])], allow_replication_factor_change=True)
    partition = partition_of(controller.image)
    assert partition.adding_replicas == (4,)
    only_new = attrs.evolve(partition, isr=(4,), leader=4)
    image = controller.image
    topic = attrs.evolve(image.topics["t"], partitions={0: only_new})
    set_image(controller, attrs.evolve(image, topics={"t": topic}, topics_by_id={topic.topic_id: topic}))
    [error] = await controller.reassign_partitions([Reassignment(T_0, None)], allow_replication_factor_change=True)
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_a_broker_is_unregistered_when_it_is_gone(brokers, controller, clock):
    with pytest.raises(KafkaError, match="broker 1 is running: stop it first"):
        await controller.unregister_broker(1)
    clock.advance(10)
    await brokers.beat(2, 3)
    await controller.periodic_tasks.fence_stale_brokers()
    await controller.unregister_broker(1)
    assert list(controller.image.brokers) == [2, 3]
    with pytest.raises(KafkaError) as raised:
        await brokers.beat(1)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_what_could_not_be_written_is_decided_again_at_the_next_heartbeat(brokers, controller, metadata_log):
    metadata_log.failure = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await brokers.beat(1, want_fence=True)
    assert not controller.image.brokers[1].fenced
    metadata_log.failure = None
    await brokers.beat(1, want_fence=True)
    assert controller.image.brokers[1].fenced


async def test_the_controller_fences_balances_and_grows_by_the_clock(brokers, controller, clock, autojump_clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.periodic_tasks.run)
        await controller.create_topics([NewTopic(name="__consumer_offsets", assignments={0: [2]})])
        await trio.sleep(6)
        assert len(controller.image.topics["__consumer_offsets"].partitions[0].replicas) == 3
        clock.advance(10)
        await brokers.beat(2, 3)
        await trio.sleep(2)
        assert summary(controller.image) == (2, (2, 3), ())
        await brokers.beat(1)
        await brokers.alter([2, 3, 1])
        await trio.sleep(300)
        assert summary(controller.image)[0] == 1
        nursery.cancel_scope.cancel()


async def test_what_a_controller_was_about_to_do_by_itself_is_left_to_its_successor(controller, caplog, autojump_clock):
    async with trio.open_nursery() as nursery:
        async with controller.operations.lock:
            nursery.start_soon(controller.periodic_tasks.run)
            await trio.sleep(6)
            controller.writer.deactivate()
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_heartbeat_that_waits_for_its_turn_counts_from_when_it_came(brokers, controller, clock):
    clock.advance(8)
    async with trio.open_nursery() as nursery, controller.operations.lock:
        nursery.start_soon(brokers.beat, 1)
        await trio.testing.wait_all_tasks_blocked()
        clock.advance(8)
        assert controller.sessions.has_valid_session(1, clock.monotonic())
