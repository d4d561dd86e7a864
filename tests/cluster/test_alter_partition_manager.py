"""A leader's wish for other in-sync replicas: asked for once at a time, and again until it is known what came of it."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.partition.real_logs import NO_BROKERS, NODE_ID, led, make_log, make_partition
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState
from trio_broker.cluster.alter_partition_manager import AlterPartitionManager
from trio_broker.cluster.metadata_image import PartitionImage
from trio_broker.network.errors import ResponseLost
from trio_broker.partition.partition import Partition
from trio_broker.partition.remote_replicas import FollowerFetch
from trio_broker.runtime.clock import ManualClock

EPOCHS = {NODE_ID: 11, 2: 20}

OF_THE_WHOLE = (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH)
"""What is answered for all alterations of a request."""


@attrs.define(eq=False)
class FakeController:
    """Does what it is asked for, unless it is to answer with ``errors``, one for each request."""

    errors: list[KafkaError | ResponseLost | OSError] = attrs.field(factory=list)
    asked: list[tuple[int, PartitionAlteration]] = attrs.field(factory=list)
    requests: int = 0
    answers: trio.Event = attrs.field(factory=trio.Event)

    async def alter_partitions(self, broker_id, broker_epoch, alterations):
        self.asked += [(broker_epoch, each) for each in alterations]
        self.requests += 1
        await self.answers.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is not None and (not isinstance(error, KafkaError) or error.code in OF_THE_WHOLE):
            raise error
        return [error or altered(each) for each in alterations]


def altered(wanted: PartitionAlteration) -> PartitionImage:
    return PartitionImage(
        leader=NODE_ID,
        leader_epoch=wanted.leader_epoch,
        partition_epoch=wanted.partition_epoch + 1,
        replicas=(NODE_ID, 2),
        isr=tuple(each.broker_id for each in wanted.isr),
        directories=(bytes(16), bytes(16)),
    )


@pytest.fixture
def controller() -> FakeController:
    made = FakeController()
    made.answers.set()
    return made


@pytest.fixture
async def manager(controller, nursery):
    made = AlterPartitionManager(controller, NODE_ID, lambda: EPOCHS[NODE_ID], ManualClock())
    nursery.start_soon(made.run)
    return made


@pytest.fixture
def partition(tmp_path, monkeypatch) -> Partition:
    """It leads, and broker 2 has a replica that is not in sync."""
    monkeypatch.setattr(NO_BROKERS, "epochs", EPOCHS)
    made = make_partition(make_log(tmp_path))
    made.writer.lead_at_once(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    return made


def expand(manager: AlterPartitionManager, partition: Partition) -> None:
    """Broker 2 has caught up."""
    wanted = partition.writer.follower_fetched(FollowerFetch(2, 20, 0, 0, 0, 0.0))
    assert wanted is not None
    manager.submit(partition, wanted)


async def test_a_change_is_asked_for_with_the_epochs_of_all_brokers_in_it(manager, controller, partition):
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    [(epoch, wanted)] = controller.asked
    assert (epoch, wanted.leader_epoch, wanted.partition_epoch) == (11, 1, 1)
    assert set(wanted.isr) == {ReplicaState(NODE_ID, 11), ReplicaState(2, 20)}
    assert (partition.state.in_sync_replica_count, partition.writer.state.remote.partition_epoch) == (2, 2)


@pytest.mark.parametrize(
    "error",
    [
        ResponseLost("the connection was lost"),
        KafkaError("another one", code=ErrorCode.NOT_CONTROLLER),
        KafkaError("registered anew", code=ErrorCode.STALE_BROKER_EPOCH),
        KafkaError("a bug", code=ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_what_may_not_have_been_done_is_asked_for_again(manager, controller, partition, error, autojump_clock):
    controller.errors = [error, error]
    expand(manager, partition)
    await trio.sleep(1)
    assert len(controller.asked) == 3
    assert partition.state.in_sync_replica_count == 2


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_UPDATE_VERSION])
async def test_what_is_refused_is_not_asked_for_again(manager, controller, partition, code, autojump_clock):
    controller.errors = [KafkaError("no", code=code)]
    expand(manager, partition)
    await trio.sleep(1)
    assert len(controller.asked) == 1
    assert partition.state.in_sync_replica_count == 1


async def test_a_change_that_newer_metadata_have_overtaken_is_forgotten(manager, controller, partition, autojump_clock):
    controller.errors = [ResponseLost("the connection was lost")] * 1000
    expand(manager, partition)
    await trio.sleep(1)
    partition.writer.lead_at_once(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2), partition_epoch=9), 0.0)
    await trio.sleep(1)
    asked = len(controller.asked)
    await trio.sleep(1)
    assert len(controller.asked) == asked


async def test_a_second_change_of_a_partition_waits_for_the_answer_to_the_first(manager, controller, partition):
    controller.answers = trio.Event()
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    partition.writer.lead_at_once(led(2, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert [wanted.leader_epoch for _, wanted in controller.asked] == [1]
    controller.answers.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [wanted.leader_epoch for _, wanted in controller.asked] == [1, 2]
    assert (partition.state.in_sync_replica_count, partition.writer.state.remote.partition_epoch) == (2, 3)


async def test_what_is_submitted_meanwhile_goes_as_one_request(manager, controller, tmp_path, partition):
    controller.answers = trio.Event()
    others = [make_partition(make_log(tmp_path, index)) for index in range(1, 5)]
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    for each in others:
        each.writer.lead_at_once(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
        expand(manager, each)
    controller.answers.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (controller.requests, len(controller.asked)) == (2, 5)
    assert [each.state.in_sync_replica_count for each in others] == [2] * 4


async def test_what_the_controller_refuses_for_good_lets_the_leader_ask_anew(manager, controller, partition):
    """INELIGIBLE_REPLICA says that nothing was done; after other refusals only new metadata tell."""
    controller.errors = [KafkaError("it is fenced", code=ErrorCode.INELIGIBLE_REPLICA)]
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    assert partition.state.in_sync_replica_count == 2


async def test_what_another_controller_may_have_done_stays_pending(manager, controller, partition):
    controller.errors = [KafkaError("a newer one", code=ErrorCode.INVALID_UPDATE_VERSION)]
    expand(manager, partition)
    await trio.testing.wait_all_tasks_blocked()
    wanted = partition.writer.follower_fetched(FollowerFetch(2, 20, 0, 0, 0, 1.0))
    assert wanted is None
    assert partition.writer.state.remote.state.maximal_isr == {NODE_ID, 2}


async def test_the_disk_of_the_controller_may_be_full_for_a_while(manager, controller, partition, autojump_clock):
    controller.errors = [OSError("no space left")]
    expand(manager, partition)
    await trio.sleep(1)
    assert (controller.requests, partition.state.in_sync_replica_count) == (2, 2)
