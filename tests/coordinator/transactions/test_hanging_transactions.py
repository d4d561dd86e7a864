"""A transaction that a power cut leaves open, though it has ended or nobody knows its id, is ended once it is found."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.transactions import TransactionStatus
from tests.coordinator.transactions.open_transactions import SECOND_PROTOCOL, committed, refuse_appends, started
from tests.fakes.followed_metadata import elected, follow
from tests.handlers.transaction_client import PRODUCE_SECOND_PROTOCOL, TransactionClient, running_transactions
from tests.running_broker import until
from tests.storage.followed_log import truncate_log
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions import transaction_marker_channel_manager
from trio_broker.partition.leader_and_isr import LocalTopicChanges
from trio_broker.partition.leader_appends import LeaderAppends
from trio_broker.partition.local_partitions import LocalPartitions
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.storage.errors import StorageShortage


def lose(client: TransactionClient, end_offset: int, *, topic: str = "t", index: int = 0) -> None:
    """Cut a log, as a power cut does in page-cache mode."""
    manager, partition = client.wire.services.replicas.log_manager, TopicPartition(topic, index)
    truncate_log(manager, partition, end_offset, client.wire.clock.now_ms())


@pytest.mark.parametrize("commits", [True, False])
async def test_a_marker_that_was_lost_is_written_again_before_the_producer_goes_on(memory_path, commits):
    async with running_transactions(memory_path) as client:
        producer = await client.begin()
        for partition in (0, 1):
            assert await client.produce(producer, partition, version=PRODUCE_SECOND_PROTOCOL) == 0
        response = await client.end(producer, commits=commits, version=SECOND_PROTOCOL)
        await client.completed()
        lose(client, 1)
    async with running_transactions(memory_path) as client:
        await client.completed()
        raised = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        marker = (raised.producer_id, raised.epoch, commits)
        assert [client.contents(index) for index in (0, 1)] == [[1, marker], [1, marker]]
        assert await client.produce(raised, version=PRODUCE_SECOND_PROTOCOL) == 0


async def test_a_transaction_that_hangs_in_the_first_protocol_is_aborted_and_its_producer_fenced(memory_path):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0, 1)
        await client.end(producer)
        await client.completed()
        lose(client, 1)
    async with running_transactions(memory_path) as client:
        await client.completed()
        assert [commits for _, _, commits in client.markers(0)] == [False]
        assert client.partition(0).last_stable_offset == client.partition(0).log_end_offset
        assert await client.add(producer, 0) == {0: ErrorCode.PRODUCER_FENCED}


async def test_a_transaction_whose_id_was_lost_is_aborted(memory_path):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
        await client.add_group(producer)
        assert await client.commit_offset(producer, 42) == 0
        state = client.state_partition().topic_partition
        lose(client, 0, topic=state.topic, index=state.partition)
    async with running_transactions(memory_path) as client:
        for topic in ("t", CONSUMER_OFFSETS_TOPIC):
            await until(partial(client.markers, 0, topic))
            assert client.markers(0, topic) == [(producer.producer_id, producer.epoch, False)]
        assert await committed(client) == {}
        assert await client.add(producer, 0) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def test_no_transaction_is_aborted_as_nobodys_while_not_all_ids_are_known(client):
    """A partition of the coordinator's log could not be opened, for instance."""
    await started(client, 0)
    partition = client.state_partition().topic_partition.partition
    shard = client.coordinator.runtime.shards.pop(partition)
    client.coordinator.topic_opened("another")
    await client.coordinator.hanging.end()
    assert client.markers() == []
    client.coordinator.runtime.shards[partition] = shard
    shard.machine.transactions.clear()
    # A topic may be opened any number of times.
    for _ in range(2):
        client.coordinator.topic_opened(TRANSACTION_STATE_TOPIC)
        await until(client.markers)
        await trio.testing.wait_all_tasks_blocked()
        assert len(client.markers()) == 1


async def test_what_is_not_led_yet_is_no_error_and_what_hangs_is_ended_once_it_is(client, caplog):
    """A broker whose metadata are elsewhere leads nothing until it is unfenced."""
    services, producer = client.wire.services, await started(client, 0)
    state = client.state_partition().topic_partition
    await follow(services, elected(services, state.topic, NO_LEADER, state.partition))
    lose(client, 0, topic=state.topic, index=state.partition)
    client.coordinator.topic_opened("another")
    await trio.testing.wait_all_tasks_blocked()
    await follow(services, elected(services, state.topic, services.node.node_id, state.partition))
    await until(client.markers)
    assert client.markers() == [(producer.producer_id, producer.epoch, False)]
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_what_is_open_when_the_topic_of_states_is_deleted_is_left_to_an_operator(client):
    await started(client, 0)
    await client.wire.services.controller.delete_topics([TopicTarget(name=TRANSACTION_STATE_TOPIC)])
    await client.coordinator.runtime._create_topic()
    await client.begin("another")
    await trio.testing.wait_all_tasks_blocked()
    assert client.markers() == []


async def test_a_shard_that_is_loaded_anew_does_not_end_the_look_for_what_hangs(client, autojump_clock, monkeypatch):
    # The clock jumps for a minute, in which it would be tried thousands of times.
    monkeypatch.setattr(transaction_marker_channel_manager, "MARKER_RETRY_SECONDS", 1.0)
    runtime = client.coordinator.runtime
    await started(client, 0)
    with pytest.MonkeyPatch.context() as full_disk:
        refuse_appends(client.partition(0), full_disk)
        await client.wire.services.controller.delete_topics([TopicTarget(name=TRANSACTION_STATE_TOPIC)])
        await runtime._create_topic()
        client.coordinator.topic_opened(TRANSACTION_STATE_TOPIC)
        await trio.sleep(1)
        shard = runtime.shards[0]
        shard.close(ErrorCode.NOT_COORDINATOR)
        runtime._load(shard.log.partition, shard.leader_epoch, shard.backoff, pause_seconds=10)
        await trio.sleep(60)
        assert runtime.is_complete
    await trio.sleep(60)
    assert len(client.markers()) == 1


async def test_what_was_open_at_the_start_and_has_ended_is_not_taken_for_what_hangs(memory_path):
    """The shard of its id is loaded once more, in the next transaction."""
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
    async with running_transactions(memory_path) as client:
        await client.end(producer)
        await client.completed()
        assert set((await client.add(producer, 1)).values()) == {0}
        assert await client.produce(producer, 1) == 0
        index = client.state_partition().topic_partition.partition
        client.coordinator.runtime.shards.pop(index).close(ErrorCode.NOT_COORDINATOR)
        client.coordinator.topic_opened(TRANSACTION_STATE_TOPIC)
        await client.coordinator.runtime.wait_until_loaded()
        await trio.testing.wait_all_tasks_blocked()
        assert client.status() is TransactionStatus.ONGOING
        assert (len(client.markers(0)), client.markers(1)) == (1, [])


async def test_a_restart_aborts_no_transaction_that_goes_on(memory_path):
    for turn in range(3):
        async with running_transactions(memory_path) as client:
            if not turn:
                producer = await started(client, 0)
                await client.add_group(producer)
            assert await client.produce(producer, sequence=turn + 1) == 0
            assert await client.commit_offset(producer, 42) == 0
            assert client.status() is TransactionStatus.ONGOING
            assert (client.markers(), client.markers(0, CONSUMER_OFFSETS_TOPIC)) == ([], [])


def keep_closed(monkeypatch, index: int) -> None:
    """Let a partition of ``t`` lack descriptors when it is to be opened."""
    open_missing = LocalPartitions._open_missing

    async def open_others(opener: LocalPartitions, local: LocalTopic, changes: LocalTopicChanges) -> None:
        is_short = local.name == "t"
        leaders = {each: decided for each, decided in changes.leaders.items() if not (is_short and each == index)}
        await open_missing(opener, local, attrs.evolve(changes, leaders=leaders))
        if is_short:
            local.note_unopened(index, changes.leaders[index], StorageShortage("too many open files"))

    monkeypatch.setattr(LocalPartitions, "_open_missing", open_others)


@pytest.mark.parametrize("refuses", [False, True])
async def test_what_hangs_in_a_partition_that_is_opened_later_is_ended_before_its_producer_goes_on(
    memory_path, monkeypatch, refuses
):
    async with running_transactions(memory_path) as client:
        producer = await client.begin()
        assert await client.produce(producer, version=PRODUCE_SECOND_PROTOCOL) == 0
        response = await client.end(producer, version=SECOND_PROTOCOL)
        await client.completed()
        lose(client, 1)
    raised = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    with monkeypatch.context() as shortage:
        keep_closed(shortage, 0)
        async with running_transactions(memory_path) as client:
            assert client.status() is TransactionStatus.COMPLETE_COMMIT
            assert await client.produce(raised, version=PRODUCE_SECOND_PROTOCOL) == ErrorCode.KAFKA_STORAGE_ERROR
            await client.end(raised, commits=False, version=SECOND_PROTOCOL)
            await client.completed()
            raised = client.coordinator.describe("id").metadata.producer
            shortage.undo()
            with monkeypatch.context() as full_disk:
                if refuses:
                    refuse_appends(client.state_partition(), full_disk)
                await client.wire.services.replicas.retry_after_shortage()
                for _ in range(20):
                    await trio.sleep(0.001)
                assert bool(client.markers()) is not refuses
            await until(client.markers)
            await client.completed()
            assert client.partition().last_stable_offset == client.partition().log_end_offset


async def test_what_hangs_of_nobody_in_a_partition_that_is_opened_later_is_aborted(memory_path, monkeypatch):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0)
        state = client.state_partition().topic_partition
        lose(client, 0, topic=state.topic, index=state.partition)
    with monkeypatch.context() as shortage:
        keep_closed(shortage, 0)
        async with running_transactions(memory_path) as client:
            await trio.testing.wait_all_tasks_blocked()
            shortage.undo()
            await client.wire.services.replicas.retry_after_shortage()
            await until(client.markers)
            assert client.markers() == [(producer.producer_id, producer.epoch, False)]


async def test_a_transaction_that_goes_on_is_none_of_those_that_hang_in_a_partition_that_is_opened_later(
    memory_path, monkeypatch
):
    async with running_transactions(memory_path) as client:
        producer = await started(client, 0, 1)
    with monkeypatch.context() as shortage:
        keep_closed(shortage, 0)
        async with running_transactions(memory_path) as client:
            assert await client.produce(producer, 1, sequence=1) == 0
            shortage.undo()
            await client.wire.services.replicas.retry_after_shortage()
            await trio.testing.wait_all_tasks_blocked()
            assert client.status() is TransactionStatus.ONGOING
            assert await client.produce(producer, 0, sequence=1) == 0
            await client.end(producer)
            await client.completed()
            marker = (producer.producer_id, producer.epoch, True)
            assert [client.contents(index) for index in (0, 1)] == [[1, 1, marker], [1, 1, marker]]


async def test_topics_are_created_while_a_disk_refuses_to_end_what_hangs_there(memory_path, monkeypatch):
    async with running_transactions(memory_path) as client:
        await started(client, 0)
        state = client.state_partition().topic_partition
        lose(client, 0, topic=state.topic, index=state.partition)
    refused = []

    def refuse(*arguments: Any, **keywords: Any) -> None:
        refused.append(arguments)
        raise KafkaError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(LeaderAppends, "append_end", refuse)
    async with running_transactions(memory_path) as client:
        await until(lambda: len(refused) > 1)
        await client.wire.create_topic("another")
        client.coordinator.topic_opened(TRANSACTION_STATE_TOPIC)
        await client.wire.create_topic("yet-another")
        assert client.markers() == []
