"""What is decided about a transaction is durable before anybody notices, and holds in every partition in the end."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Collection
from contextlib import asynccontextmanager
from functools import partial, partialmethod
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafka_wire.stored.transactions import TransactionStatus
from tests.coordinator.transactions.open_transactions import SECOND_PROTOCOL, committed, refuse_appends, started
from tests.handlers.transaction_client import (
    ADD_BATCHED,
    PRODUCE_FIRST_PROTOCOL,
    PRODUCE_SECOND_PROTOCOL,
    TransactionClient,
    running_transactions,
)
from tests.partition.real_logs import require_side_by_side
from tests.running_broker import until
from tests.scheduling import RACES, Race, begun, outcomes
from tests.waits import fail_after
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.common.request_phase import ReleaseHandler, ignore_release
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency import barrier
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions import inter_broker_sender, transaction_coordinator
from trio_broker.coordinator.transactions.requests import THE_BROKER
from trio_broker.coordinator.transactions.transaction_marker_channel_manager import MarkerChannel
from trio_broker.coordinator.transactions.transaction_metadata import MAX_EPOCH
from trio_broker.partition.leader_appends import LeaderAppends
from trio_broker.partition.partition import Partition
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.runtime.simulated_workers import SimulatedWorkers
from trio_broker.storage.log import Log

PROTOCOLS = [(PRODUCE_FIRST_PROTOCOL, 4), (PRODUCE_SECOND_PROTOCOL, SECOND_PROTOCOL)]
"""Versions of Produce and EndTxn."""


@pytest.fixture
async def durable_client(memory_path):
    """Of a broker that syncs before it answers."""
    async with running_transactions(memory_path, log_durability="fsync") as client:
        yield client


@pytest.fixture
async def raced_client(memory_path, autojump_clock):
    """Of a broker without threads: while it waited for one, the clock would jump. None of its delays is long, since
    some of them together would take as long as a wait that has missed its event."""
    odds = random.Random(0)
    odds.randrange = lambda *_: 1  # type: ignore[method-assign]
    async with running_transactions(memory_path, workers=SimulatedWorkers(odds)) as client:
        yield client


@asynccontextmanager
async def held_syncs(partition: Partition, monkeypatch):
    """Nothing of ``partition`` becomes durable in this time."""
    gate, sync_files = trio.Event(), partition.log.sync_files

    def slow_sync() -> Any:
        trio.from_thread.run(gate.wait)
        return sync_files()

    monkeypatch.setattr(partition.log, "sync_files", slow_sync)
    try:
        yield
    finally:
        gate.set()


@attrs.frozen
class RefusingMarkers:
    """Writes no marker into some partitions."""

    writer: MarkerChannel
    refused: Collection[TopicPartition]

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        others = [each for each in partitions if each not in self.refused]
        codes = yield from self.writer.write_steps(end, others, release_handler)
        return codes | {each: ErrorCode.KAFKA_STORAGE_ERROR for each in partitions if each in self.refused}


def refuse_markers(client: TransactionClient, *indexes: int) -> None:
    refused = {TopicPartition("t", index) for index in indexes}
    client.coordinator.markers = RefusingMarkers(client.coordinator.markers, refused)


# ---- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
async def test_every_partition_gets_one_marker_and_the_transaction_completes(client, commits):
    producer = await started(client, 0, 2)
    assert (await client.end(producer, commits=commits)).error_code == 0
    await client.completed()
    marker = (producer.producer_id, producer.epoch, commits)
    assert [client.contents(index) for index in range(3)] == [[1, marker], [], [1, marker]]
    assert client.partitions_of() == set()
    for index in range(3):
        assert client.partition(index).last_stable_offset == client.partition(index).log_end_offset


async def test_the_markers_of_the_second_protocol_have_the_raised_epoch(client):
    producer = await client.begin()
    assert await client.produce(producer, version=PRODUCE_SECOND_PROTOCOL) == 0
    response = await client.end(producer, version=SECOND_PROTOCOL)
    await client.completed()
    assert client.contents() == [1, (producer.producer_id, producer.epoch + 1, True)]
    raised = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    assert await client.produce(raised, version=PRODUCE_SECOND_PROTOCOL) == 0


async def test_a_partition_that_was_added_but_never_written_gets_its_marker_too(client):
    producer = await client.begin()
    await client.add(producer, 1)
    await client.end(producer)
    await client.completed()
    assert client.contents(1) == [(producer.producer_id, producer.epoch, True)]


async def test_no_marker_is_written_before_the_decision_is_durable(durable_client, monkeypatch):
    client = durable_client
    producer = await started(client, 0, 1)
    answered = []

    async def end() -> None:
        answered.append((await client.end(producer)).error_code)

    async with trio.open_nursery() as nursery:
        async with held_syncs(client.state_partition(), monkeypatch):
            nursery.start_soon(end)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert client.status() is TransactionStatus.PREPARE_COMMIT
            assert (client.markers(0), client.markers(1), answered) == ([], [], [])
        await client.completed()
    assert answered == [0]
    assert len(client.markers(0)) == len(client.markers(1)) == 1


async def test_what_waits_to_write_markers_leaves_them_to_the_shard_that_has_taken_the_place_of_its_own(
    durable_client, monkeypatch
):
    """Else it would write them into the next transaction of its producer, which goes on by then."""
    client = durable_client
    producer = await started(client, 0)
    shard = client.coordinator.runtime.shard_for("id")
    async with trio.open_nursery() as nursery:
        async with held_syncs(client.state_partition(), monkeypatch):
            nursery.start_soon(client.end, producer)
            await trio.testing.wait_all_tasks_blocked(0.01)
            shard.close(ErrorCode.NOT_COORDINATOR)
            client.coordinator.runtime._load(shard.log.partition, shard.leader_epoch, shard.backoff)
            await client.coordinator.runtime.wait_until_loaded()
        await client.completed()
    assert client.markers(0) == [(producer.producer_id, producer.epoch, True)]


async def test_the_transaction_is_not_complete_before_its_markers_are_durable(durable_client, monkeypatch):
    client = durable_client
    producer = await started(client, 0, 1)
    async with held_syncs(client.partition(1), monkeypatch):
        assert (await client.end(producer)).error_code == 0
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert client.status() is TransactionStatus.PREPARE_COMMIT
        assert (await client.init("id")).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    await client.completed()
    assert len(client.markers(0)) == len(client.markers(1)) == 1


async def test_a_marker_that_is_not_durable_in_time_is_written_again(durable_client, monkeypatch):
    monkeypatch.setattr(inter_broker_sender, "REQUEST_TIMEOUT_SECONDS", 0.001)
    client = durable_client
    producer = await started(client, 0)
    async with held_syncs(client.partition(0), monkeypatch):
        await client.end(producer)
        await until(lambda: len(client.markers()) >= 2)
        assert client.status() is TransactionStatus.PREPARE_COMMIT
    monkeypatch.setattr(inter_broker_sender, "REQUEST_TIMEOUT_SECONDS", 10.0)
    await client.completed()
    assert set(client.markers()) == {(producer.producer_id, producer.epoch, True)}


async def test_an_abort_of_nothing_completes_with_a_raised_epoch(client):
    producer = await client.begin()
    response = await client.end(producer, commits=False, version=SECOND_PROTOCOL)
    assert (response.error_code, response.producer_epoch) == (0, producer.epoch + 1)
    await client.completed()
    assert [client.contents(index) for index in range(3)] == [[], [], []]


async def test_a_partition_whose_disk_refuses_is_tried_until_it_works_and_the_others_once(client, monkeypatch):
    producer = await started(client, 0, 1, 2)
    with monkeypatch.context() as full_disk:
        refuse_appends(client.partition(1), full_disk)
        assert (await client.end(producer)).error_code == 0
        await until(lambda: client.partitions_of() == {TopicPartition("t", 1)})
        for _ in range(20):
            await trio.sleep(0.001)
        assert client.status() is TransactionStatus.PREPARE_COMMIT
        assert [len(client.markers(index)) for index in range(3)] == [1, 0, 1]
    await client.completed()
    assert [len(client.markers(index)) for index in range(3)] == [1, 1, 1]


async def test_a_completion_that_the_log_refuses_is_tried_again_without_more_markers(client, monkeypatch):
    producer = await started(client, 0)
    with monkeypatch.context() as full_disk:
        refuse_appends(client.state_partition(), full_disk, after=1)
        assert (await client.end(producer)).error_code == 0
        await until(lambda: len(client.markers()) == 1)
        for _ in range(20):
            await trio.sleep(0.001)
        assert client.status() is TransactionStatus.PREPARE_COMMIT
    await client.completed()
    assert len(client.markers()) == 1


async def test_an_end_that_the_log_refuses_ends_nothing(client, monkeypatch):
    producer = await started(client, 0)
    with monkeypatch.context() as full_disk:
        refuse_appends(client.state_partition(), full_disk)
        assert (await client.end(producer)).error_code == ErrorCode.NOT_COORDINATOR
        assert client.status() is TransactionStatus.ONGOING
    assert (await client.end(producer)).error_code == 0
    await client.completed()


async def test_a_deleted_topic_does_not_hold_up_the_end(client):
    await client.wire.create_topic("gone")
    producer = await started(client, 0)
    await client.add(producer, 0, topic="gone")
    await client.wire.services.controller.delete_topics([TopicTarget(name="gone")])
    await client.end(producer)
    await client.completed()
    assert len(client.markers(0)) == 1


async def test_the_topic_of_offsets_may_be_deleted_in_a_transaction(client):
    producer = await started(client, 0)
    await client.add_group(producer)
    await client.commit_offset(producer, 42)
    await client.wire.services.controller.delete_topics([TopicTarget(name=CONSUMER_OFFSETS_TOPIC)])
    await client.end(producer)
    await client.completed()
    await client.wire.services.groups.find("g")
    await until(lambda: not client.wire.services.groups.statistics().loading)
    assert await committed(client) == {}


async def test_a_topic_that_is_deleted_while_its_marker_is_missing_does_not_hold_up_the_end(client, monkeypatch):
    producer = await started(client, 0)
    refuse_appends(client.partition(0), monkeypatch)
    await client.end(producer)
    await trio.testing.wait_all_tasks_blocked()
    assert client.status() is TransactionStatus.PREPARE_COMMIT
    await client.wire.services.controller.delete_topics([TopicTarget(name="t")])
    await client.completed()


async def test_markers_of_a_coordinator_that_never_was_do_not_hold_up_the_end(client):
    """An administrator's request may name any coordinator epoch, as may a log that was another broker's."""
    producer = await client.begin()
    await client.add(producer, 0)
    await client.add_group(producer)
    assert await client.write_marker(producer, coordinator_epoch=2**31 - 1) == 0
    assert await client.write_marker(producer, topic=CONSUMER_OFFSETS_TOPIC, coordinator_epoch=9) == 0
    assert await client.write_marker(producer, coordinator_epoch=9) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await client.produce(producer) == 0
    assert await client.commit_offset(producer, 5) == 0
    await client.end(producer)
    await client.completed()
    assert client.contents(0)[-1] == (producer.producer_id, producer.epoch, True)
    assert client.partition(0).last_stable_offset == client.partition(0).log_end_offset
    known = client.partition(0).log.producers.producers[producer.producer_id]
    assert known.coordinator_epoch == 2**31 - 1


@pytest.mark.parametrize("version", [4, SECOND_PROTOCOL])
@pytest.mark.parametrize("commits", [True, False])
async def test_the_next_end_is_put_off_while_the_markers_of_the_last_are_written(client, monkeypatch, commits, version):
    """A producer that aborts before anything of its next transaction has arrived is no zombie."""
    producer = await started(client, 0)
    append = client.partition(0).log.append
    refuse_appends(client.partition(0), monkeypatch)
    ended = await client.end(producer, commits=commits, version=version)
    next_one = producer
    if version == SECOND_PROTOCOL:
        next_one = ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch)
    for next_commits in (False, True):
        code = (await client.end(next_one, commits=next_commits, version=version)).error_code
        assert code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (await client.end(producer, commits=next_commits, version=version)).error_code == code
    assert await client.add(next_one, 1) == {1: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert await client.add_group(next_one) == ErrorCode.CONCURRENT_TRANSACTIONS
    going_on = {"producer_id": next_one.producer_id, "producer_epoch": next_one.epoch}
    assert (await client.init("id", **going_on)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    monkeypatch.setattr(client.partition(0).log, "append", append)
    await client.completed()
    assert await client.add(next_one, 1) == {1: 0}
    assert client.markers(0) == [(producer.producer_id, next_one.epoch, commits)]


async def at_the_last_epoch(client: TransactionClient) -> ProducerIdAndEpoch:
    """The producer of ``id``, whose next epoch is that of nobody."""
    producer = await client.begin()
    transactions = client.coordinator._shard("id").machine.transactions
    transactions["id"] = attrs.evolve(transactions["id"], producer_epoch=MAX_EPOCH - 1)
    return ProducerIdAndEpoch(producer.producer_id, MAX_EPOCH - 1)


async def test_what_is_committed_after_an_abort_at_the_last_epoch_is_not_lost(memory_path, autojump_clock):
    async with running_transactions(memory_path) as client:
        producer = await at_the_last_epoch(client)
        assert await client.produce(producer, version=PRODUCE_SECOND_PROTOCOL) == 0
        client.wire.clock.advance(60)
        await trio.sleep(60)
        await client.completed()
        aborted = await client.end(producer, commits=False, version=SECOND_PROTOCOL)
        renewed = ProducerIdAndEpoch(aborted.producer_id, aborted.producer_epoch)
        assert (renewed.producer_id != producer.producer_id, renewed.epoch) == (True, 0)
        assert await client.produce(renewed, version=PRODUCE_SECOND_PROTOCOL) == 0
        assert (await client.end(renewed, version=SECOND_PROTOCOL)).error_code == 0
        await client.completed()
        markers = [(producer.producer_id, MAX_EPOCH, False), (renewed.producer_id, 1, True)]
        assert client.markers() == markers
        assert client.partition().last_stable_offset == client.partition().log_end_offset
    async with running_transactions(memory_path) as client:
        assert client.markers() == markers


async def test_the_end_is_not_complete_while_no_id_can_be_allocated_and_then_it_is(client, monkeypatch):
    producer = await at_the_last_epoch(client)
    assert await client.produce(producer, version=PRODUCE_SECOND_PROTOCOL) == 0
    allocate, failures = client.coordinator._producer_ids.next, 0

    async def refuse() -> int:
        nonlocal failures
        failures += 1
        raise OSError(errno.ENOSPC, "no space left on device")

    state = client.coordinator.describe("id").metadata
    await client.coordinator.abort_transaction("id", producer, state.start_ms, lambda phase: None)
    monkeypatch.setattr(client.coordinator._producer_ids, "next", refuse)
    await until(lambda: failures > 1)
    assert client.status() is TransactionStatus.PREPARE_ABORT
    monkeypatch.setattr(client.coordinator._producer_ids, "next", allocate)
    await client.completed()
    assert client.markers() == [(producer.producer_id, MAX_EPOCH, False)]


async def test_a_partition_that_refuses_the_marker_and_has_the_transaction_open_is_not_counted_as_ended(client, caplog):
    producer = await started(client, 0, 1)
    # The partition knows of a later epoch than the coordinator: none of this broker's doing.
    later = attrs.evolve(client.partition(1).log.producers.producers[producer.producer_id], producer_epoch=7)
    client.partition(1).log.producers.producers[producer.producer_id] = later
    await client.end(producer)
    await until(lambda: "INVALID_PRODUCER_EPOCH" in caplog.text)
    assert client.status() is TransactionStatus.PREPARE_COMMIT
    assert client.partitions_of() == {TopicPartition("t", 1)}
    assert (client.markers(0), client.markers(1)) == ([(producer.producer_id, 0, True)], [])


async def test_no_marker_comes_into_the_log_of_the_coordinator_itself(client):
    """It has no transactional records, and a start would meet the marker there."""
    producer = await client.begin()
    assert set((await client.add(producer, 0, topic="t")).values()) == {0}
    state_end = client.partition(0, TRANSACTION_STATE_TOPIC).log_end_offset
    code = await client.write_marker(producer, topic=TRANSACTION_STATE_TOPIC)
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.partition(0, TRANSACTION_STATE_TOPIC).log_end_offset == state_end


async def test_a_transaction_with_the_log_of_the_coordinator_in_it_is_ended(client):
    """A broker's request may add it, as in Kafka."""
    producer = await client.begin()
    state = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[AddPartitionsToTxnTopic(name=state.topic, partitions=[state.partition])],
    )
    await client.wire.ask(AddPartitionsToTxnRequest(transactions=[transaction]), ADD_BATCHED)
    assert client.partitions_of() == {state}
    await client.end(producer)
    await client.completed()


async def test_a_producer_that_is_replaced_has_its_transaction_aborted_everywhere(client):
    producer = await started(client, 0, 1)
    assert (await client.init("id")).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    await client.completed()
    successor = await client.begin()
    assert successor.producer_id == producer.producer_id
    for index in (0, 1):
        [(producer_id, epoch, commits)] = client.markers(index)
        assert (producer_id, commits) == (producer.producer_id, False)
        assert producer.epoch < epoch < successor.epoch
    assert await client.produce(producer, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await client.add(producer, 0) == {0: ErrorCode.PRODUCER_FENCED}
    assert await client.add(successor, 0) == {0: 0}
    assert await client.produce(successor) == 0


async def test_a_transaction_that_takes_too_long_is_aborted_everywhere(memory_path, autojump_clock):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0, 1)
        client.wire.clock.advance(60)
        await trio.sleep(61)
        assert client.status() is TransactionStatus.COMPLETE_ABORT
        assert [marker[2] for index in (0, 1) for marker in client.markers(index)] == [False, False]
        assert (await client.end(producer)).error_code == ErrorCode.PRODUCER_FENCED


# ---- over restarts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("pending_markers", [(0, 1, 2), (1,), (0, 2)])
async def test_a_restart_writes_the_markers_that_are_missing(memory_path, pending_markers, commits):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0, 1, 2)
        refuse_markers(client, *pending_markers)
        assert (await client.end(producer, commits=commits)).error_code == 0
        await until(lambda: client.partitions_of() == {TopicPartition("t", index) for index in pending_markers})
    async with running_transactions(memory_path) as client:
        await client.completed()
        marker = (producer.producer_id, producer.epoch, commits)
        for index in range(3):
            assert set(client.markers(index)) == {marker}
            assert client.partition(index).last_stable_offset == client.partition(index).log_end_offset
        expected = TransactionStatus.COMPLETE_COMMIT if commits else TransactionStatus.COMPLETE_ABORT
        assert client.status() is expected
        assert (await client.end(producer, commits=commits)).error_code == 0, "the client may ask again"


async def test_a_restart_completes_a_transaction_that_lacks_no_more_than_that(memory_path, monkeypatch):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
        with monkeypatch.context() as full_disk:
            refuse_appends(client.state_partition(), full_disk, after=1)
            await client.end(producer)
            await until(lambda: len(client.markers()) == 1)
    async with running_transactions(memory_path) as client:
        await client.completed()
        assert client.status() is TransactionStatus.COMPLETE_COMMIT
        assert client.partition().last_stable_offset == client.partition().log_end_offset


async def test_a_transaction_goes_on_after_a_restart(memory_path):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
    async with running_transactions(memory_path) as client:
        assert client.status() is TransactionStatus.ONGOING
        assert await client.produce(producer, sequence=1) == 0
        assert await client.produce(producer, 1) == ErrorCode.TRANSACTION_ABORTABLE
        await client.add(producer, 1)
        assert await client.produce(producer, 1) == 0
        await client.end(producer)
        await client.completed()
        marker = (producer.producer_id, producer.epoch, True)
        assert [client.contents(index) for index in range(2)] == [[1, 1, marker], [1, marker]]


async def test_a_transaction_that_took_too_long_while_the_broker_was_down_is_aborted(memory_path):
    async with running_transactions(memory_path) as client:
        await started(client, 0)
    clock = client.wire.clock
    clock.advance(60)
    async with running_transactions(memory_path, clock) as client:
        await client.completed()
        assert client.status() is TransactionStatus.COMPLETE_ABORT


# ---- a shard that is loaded anew -------------------------------------------------------------------------------------


async def give_up(client: TransactionClient, monkeypatch) -> None:
    """Let a bug close the shard of ``id``, and wait until another one has its log."""
    monkeypatch.setattr(barrier, "FIRST_PAUSE_SECONDS", 0.0)
    client.coordinator._shard("id")._give_up(RuntimeError("a bug"), ())
    await client.coordinator.runtime.wait_until_loaded()
    for _ in range(20):
        await trio.sleep(0.001)


async def test_a_shard_that_is_loaded_anew_while_markers_are_written_writes_no_second_ones(durable_client, monkeypatch):
    client = durable_client
    producer = await started(client, 0, 1)
    async with held_syncs(client.partition(1), monkeypatch):
        assert (await client.end(producer)).error_code == 0
        await trio.testing.wait_all_tasks_blocked(0.01)
        await give_up(client, monkeypatch)
        assert client.status() is TransactionStatus.PREPARE_COMMIT
    await client.completed()
    marker = (producer.producer_id, producer.epoch, True)
    assert (client.markers(0), client.markers(1)) == ([marker], [marker])


async def test_markers_that_wait_for_a_try_are_written_once_by_a_shard_that_is_loaded_anew(client, monkeypatch):
    producer = await started(client, 0, 1)
    with monkeypatch.context() as full_disk:
        refuse_appends(client.partition(1), full_disk)
        assert (await client.end(producer)).error_code == 0
        await until(lambda: client.partitions_of() == {TopicPartition("t", 1)})
        await give_up(client, monkeypatch)
        assert client.status() is TransactionStatus.PREPARE_COMMIT
    await client.completed()
    marker = (producer.producer_id, producer.epoch, True)
    assert set(client.markers(0)) == {marker}
    assert client.markers(1) == [marker]


# ---- partitions without a record of their leader epoch ---------------------------------------------------------------


async def test_the_leader_epochs_of_partitions_begin_side_by_side_when_they_are_added(client, monkeypatch):
    require_side_by_side(monkeypatch, 3)
    producer = await client.begin()
    assert set((await client.add(producer, 0, 1, 2)).values()) == {0}
    assert not any(client.partition(index).writer.needs_epoch_entry for index in range(3))


async def test_the_leader_epochs_of_partitions_whose_first_batch_is_a_marker_begin_side_by_side(client, monkeypatch):
    producer = await client.begin()
    with monkeypatch.context() as without:
        without.setattr(LeaderAppends, "ready_steps", lambda *arguments: iter(()))
        await client.add(producer, 0, 1, 2)
    require_side_by_side(monkeypatch, 3)
    assert (await client.end(producer)).error_code == 0
    await client.completed()
    assert [len(client.markers(index)) for index in range(3)] == [1, 1, 1]


# ---- which batches are let in ----------------------------------------------------------------------------------------


async def test_a_batch_that_waits_while_its_transaction_ends_is_refused(client):
    """The first records of a transaction wait behind a slow batch of another; the marker waits behind them."""
    for (produce_version, end_version), code in zip(
        PROTOCOLS, (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_PRODUCER_EPOCH), strict=True
    ):
        producer = await client.begin()
        await client.add(producer, 0)
        before, gate = client.contents(), trio.Event()
        answered: list[int] = []

        async def produce(producer=producer, version=produce_version, answered=answered) -> None:
            answered.append(await client.produce(producer, version=version))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.partition().writer.execute, gate.wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(produce)
            await trio.testing.wait_all_tasks_blocked()
            assert not answered
            assert (await client.end(producer, commits=False, version=end_version)).error_code == 0
            gate.set()
        assert answered == [code]
        await client.completed()
        [marker] = client.contents()[len(before) :]
        assert isinstance(marker, tuple)
        assert client.partition().last_stable_offset == client.partition().log_end_offset


@pytest.mark.parametrize("version", [PRODUCE_FIRST_PROTOCOL, PRODUCE_SECOND_PROTOCOL])
async def test_a_batch_is_let_in_only_when_it_is_durable_that_its_partition_was_added(
    durable_client, monkeypatch, version
):
    client = durable_client
    producer = await client.begin()
    answered: dict[str, int] = {}

    async def add() -> None:
        answered.update({"add": (await client.add(producer, 0))[0]})

    async def produce() -> None:
        answered["produce"] = await client.produce(producer, version=version)

    async with trio.open_nursery() as nursery, held_syncs(client.state_partition(), monkeypatch):
        nursery.start_soon(add)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(produce)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert client.partitions_of() == {TopicPartition("t", 0)}
        assert (client.contents(), answered) == ([], {})
    assert answered == {"add": 0, "produce": 0}
    assert client.contents() == [1]


@pytest.mark.parametrize("end_version", [4, SECOND_PROTOCOL])
async def test_what_waits_for_the_disk_while_its_transaction_ends_is_refused(durable_client, monkeypatch, end_version):
    """Batch and offset are verified, and wait until what is known of the transaction is durable: so is then its end."""
    client = durable_client
    producer = await client.begin()
    await client.add(producer, 0)
    await client.add_group(producer)
    answered: dict[str, int] = {}

    async def extend() -> None:
        answered.update({"add": (await client.add(producer, 1))[1]})

    async def produce() -> None:
        answered["produce"] = await client.produce(producer)

    async def commit() -> None:
        answered["commit"] = await client.commit_offset(producer, 42)

    async def end() -> None:
        answered["end"] = (await client.end(producer, version=end_version)).error_code

    async with trio.open_nursery() as nursery:
        async with held_syncs(client.state_partition(), monkeypatch):
            for request in (extend, produce, commit, end):
                nursery.start_soon(request)
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert (client.status(), answered) == (TransactionStatus.PREPARE_COMMIT, {})
        await client.completed()
    refusals = (
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH)
        if end_version == SECOND_PROTOCOL
        else (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)
    )
    assert answered == {"add": 0, "produce": refusals[0], "commit": refusals[1], "end": 0}
    [marker] = client.contents()
    assert isinstance(marker, tuple)
    assert not client.wire.services.groups.machine("g").offsets.has_pending_in("g")


async def test_a_batch_of_an_ended_transaction_that_comes_late_is_refused(client):
    for produce_version, end_version in PROTOCOLS:
        producer = await client.begin()
        await client.add(producer, 0)
        assert await client.produce(producer, version=produce_version) == 0
        await client.end(producer, version=end_version)
        await client.completed()
        contents = client.contents()
        late = await client.produce(producer, sequence=1, version=PRODUCE_FIRST_PROTOCOL)
        is_fenced = end_version == SECOND_PROTOCOL
        assert late == (ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.TRANSACTION_ABORTABLE)
        assert client.contents() == contents


# ---- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("produce_version", "end_version"), PROTOCOLS)
async def test_transactions_of_many_ids_do_not_mix(client, produce_version, end_version):
    rounds, ids = 3, [f"id-{number}" for number in range(12)]
    outcomes: dict[tuple[int, int], bool] = {}

    async def run(transactional_id: str, number: int) -> None:
        producer, sequence = await client.begin(transactional_id), 0
        for turn in range(rounds):
            commits = (number + turn) % 3 > 0
            if produce_version == PRODUCE_FIRST_PROTOCOL:
                await until_added(client, producer, transactional_id)
            for partition in (0, 1):
                code = await client.produce(
                    producer, partition, sequence=sequence, transactional_id=transactional_id, version=produce_version
                )
                assert code == 0
            response = await client.end(
                producer, commits=commits, transactional_id=transactional_id, version=end_version
            )
            assert response.error_code == 0
            if end_version == SECOND_PROTOCOL:
                producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                outcomes[producer.producer_id, producer.epoch] = commits
                await client.completed(transactional_id)
            else:
                sequence += 1

    async with trio.open_nursery() as nursery:
        for number, transactional_id in enumerate(ids):
            nursery.start_soon(run, transactional_id, number)
    await client.completed(*ids)
    for index in (0, 1):
        markers = client.markers(index)
        assert len(markers) == len(ids) * rounds
        assert client.partition(index).last_stable_offset == client.partition(index).log_end_offset
        for producer_id, epoch, commits in markers:
            assert outcomes.get((producer_id, epoch), commits) == commits


async def until_added(client: TransactionClient, producer: ProducerIdAndEpoch, transactional_id: str) -> None:
    """Add partitions 0 and 1, as a client does: again while the transaction before is ending."""
    with fail_after(10):
        while set((await client.add(producer, 0, 1, transactional_id=transactional_id)).values()) != {0}:
            await trio.lowlevel.checkpoint()


# ---- offsets and records ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
async def test_records_and_offsets_of_a_transaction_count_together_also_after_a_restart(memory_path, commits):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
        assert await client.add_group(producer) == 0
        assert await client.commit_offset(producer, 42) == 0
        assert client.partitions_of() == {TopicPartition("t", 0), TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)}
        assert await committed(client) == {}
        await client.end(producer, commits=commits)
        await client.completed()
        expected = {"t": {0: 42}} if commits else {}
        assert await committed(client) == expected
        marker = (producer.producer_id, producer.epoch, commits)
        assert (client.markers(), client.markers(0, CONSUMER_OFFSETS_TOPIC)) == ([marker], [marker])
    async with running_transactions(memory_path) as client:
        assert await committed(client) == expected


async def test_offsets_count_once_their_marker_is_written_after_a_restart(memory_path, monkeypatch):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
        await client.add_group(producer)
        await client.commit_offset(producer, 42)
        with monkeypatch.context() as full_disk:
            refuse_appends(client.partition(0, CONSUMER_OFFSETS_TOPIC), full_disk)
            await client.end(producer)
            await until(lambda: client.partitions_of() == {TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)})
            assert await committed(client) == {}
    async with running_transactions(memory_path) as client:
        await client.completed()
        assert await committed(client) == {"t": {0: 42}}


# ---- the next transaction --------------------------------------------------------------------------------------------


@attrs.frozen
class GatedMarkers:
    """Writes markers once it may."""

    writer: MarkerChannel
    may_write: trio.Event

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        yield self.may_write.wait
        return (yield from self.writer.write_steps(end, partitions, release_handler))


async def test_a_partition_is_added_when_the_last_marker_of_the_transaction_before_is_written(raced_client):
    """At whatever moment of the wait for it."""
    client = raced_client
    coordinator, writer, partitions = client.coordinator, client.coordinator.markers, [TopicPartition("t", 0)]
    producers = [(f"id{number}", await client.begin(f"id{number}")) for number in range(RACES)]
    for transactional_id, producer in producers:
        assert await client.add(producer, 0, transactional_id=transactional_id) == {0: 0}

    async def new_race() -> Race[None]:
        transactional_id, producer = producers.pop()
        gate = trio.Event()
        coordinator.markers = GatedMarkers(writer, gate)
        assert (await client.end(producer, transactional_id=transactional_id)).error_code == 0
        adding = coordinator.add_partitions_steps(transactional_id, producer, partitions, 0, THE_BROKER, ignore_release)
        return Race(begun(adding), gate.set)

    await outcomes(new_race, shortest_missed=transaction_coordinator.ENDING_SECONDS)
    assert not coordinator._awaited_ends


# ---- the internal topic ----------------------------------------------------------------------------------------------


async def test_transactional_ids_begin_anew_when_the_topic_of_their_states_was_deleted(client):
    producer = await started(client, 0)
    await client.wire.services.controller.delete_topics([TopicTarget(name=TRANSACTION_STATE_TOPIC)])
    assert (await client.end(producer)).error_code == ErrorCode.NOT_COORDINATOR
    await client.coordinator.runtime._create_topic()
    await until(lambda: all(shard.is_active for shard in client.coordinator.runtime.shards.values()))
    assert (await client.end(producer)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    successor = await client.begin()
    assert successor.producer_id != producer.producer_id
    await client.add(successor, 1)
    assert await client.produce(successor, 1) == 0
    await client.end(successor)
    await client.completed()


# ---- a disk that fills up anywhere -----------------------------------------------------------------------------------

WRITTEN = ("t", CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
APPENDS = 12
"""Of the transaction below: four states until its end is decided, two batches, an offset, three markers and the
completion; all are made with one more."""


def refuse_all_appends(monkeypatch, *, after: int) -> None:
    """Let the disk be full after some more batches, but for the metadata log."""
    batches = iter(range(after))

    def until_full(append: Callable[..., Any], log: Log, *arguments: Any, **keywords: Any) -> Any:
        if log.topic_partition.topic in WRITTEN and next(batches, None) is None:
            raise OSError(errno.ENOSPC, "no space left on device")
        return append(log, *arguments, **keywords)

    for append in (Log.append, Log.append_prepared):
        monkeypatch.setattr(Log, append.__name__, partialmethod(partial(until_full, append)))


@pytest.mark.parametrize("version", [4, SECOND_PROTOCOL])
@pytest.mark.parametrize("appends", range(APPENDS))
async def test_wherever_the_disk_fills_up_all_partitions_agree_after_a_restart(
    memory_path, monkeypatch, appends, version
):
    answer = -1
    async with running_transactions(memory_path) as client:
        with monkeypatch.context() as full_disk:
            refuse_all_appends(full_disk, after=appends)
            response = await client.init("id")
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            await client.add(producer, 0, 1)
            for partition in (0, 1):
                await client.produce(producer, partition)
            await client.add_group(producer)
            await client.commit_offset(producer, 42)
            answer = (await client.end(producer, version=version)).error_code
            await trio.testing.wait_all_tasks_blocked()
    async with running_transactions(memory_path) as client:
        if "id" in client.coordinator.runtime.shard_for("id").machine.transactions:
            if client.status() is TransactionStatus.ONGOING:
                assert (await client.init("id")).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            await until(lambda: not client.coordinator.describe("id").metadata.is_prepared)
        outcomes = {
            commits
            for topic, index in (("t", 0), ("t", 1), (CONSUMER_OFFSETS_TOPIC, 0))
            for _, _, commits in client.markers(index, topic)
        }
        # A success may be answered only for what is decided, and what is refused may have been decided all the same.
        assert outcomes == {True} if answer == 0 else len(outcomes) <= 1
        assert await committed(client) == ({"t": {0: 42}} if outcomes == {True} else {})
        assert not client.wire.services.groups.machine("g").offsets.has_pending_in("g")
        for index in (0, 1):
            assert client.partition(index).last_stable_offset == client.partition(index).log_end_offset
        await started(client, 0, 1)
