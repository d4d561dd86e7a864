"""The coordinator of transactional ids goes to another broker and comes back; what it does meanwhile is refused."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.stored.transactions import TransactionStatus
from tests.coordinator.transactions.open_transactions import committed, started
from tests.fakes.followed_metadata import elected, follow, registered
from tests.handlers.transaction_client import TransactionClient
from tests.running_broker import until
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition

HERE, ELSEWHERE = 1, 2


@pytest.fixture
async def client(client: TransactionClient) -> TransactionClient:
    """A client of one of two brokers."""
    await follow(client.wire.services, registered(ELSEWHERE, 9093))
    return client


async def lead(client: TransactionClient, leader: int, topic: str = TRANSACTION_STATE_TOPIC, index: int = 0) -> None:
    await follow(client.wire.services, elected(client.wire.services, topic, leader, index))


def index_of(client: TransactionClient) -> int:
    return client.coordinator.runtime.partition_of("id").partition


async def test_a_transaction_goes_on_when_its_coordinator_has_come_back(client):
    producer = await started(client, 0)
    index = index_of(client)
    await lead(client, ELSEWHERE, index=index)
    assert (await client.end(producer)).error_code == ErrorCode.NOT_COORDINATOR
    assert client.markers() == []
    await lead(client, HERE, index=index)
    await client.coordinator.runtime.wait_until_loaded()
    assert client.status() is TransactionStatus.ONGOING
    assert (await client.end(producer)).error_code == 0
    await client.completed()
    assert client.markers() == [(producer.producer_id, producer.epoch, True)]


async def test_the_offsets_of_a_transaction_count_when_its_group_has_come_back_in_the_midst_of_it(client):
    producer = await client.begin()
    assert await client.add_group(producer) == 0
    assert await client.commit_offset(producer, 42) == 0
    await lead(client, ELSEWHERE, CONSUMER_OFFSETS_TOPIC)
    assert await client.commit_offset(producer, 43) == ErrorCode.NOT_COORDINATOR
    await lead(client, HERE, CONSUMER_OFFSETS_TOPIC)
    await client.wire.services.groups.runtime.wait_until_loaded()
    assert await committed(client) == {}
    assert (await client.end(producer)).error_code == 0
    await client.completed()
    assert await committed(client) == {"t": {0: 42}}


async def test_the_marker_of_a_coordinator_that_has_been_replaced_is_refused(client, caplog):
    """This broker does not know yet that another one coordinates the id, and has aborted the transaction."""
    producer = await started(client, 0)
    zombie = client.coordinator.runtime.shard_for("id")
    assert await client.write_marker(producer, coordinator_epoch=zombie.leader_epoch + 1) == 0
    assert await client.produce(producer, sequence=1) == 0
    assert (await client.end(producer)).error_code == 0
    await until(lambda: "TRANSACTION_COORDINATOR_FENCED" in caplog.text)
    assert client.markers() == [(producer.producer_id, producer.epoch, False)]
    assert client.status() is TransactionStatus.PREPARE_COMMIT
    await lead(client, ELSEWHERE, index=index_of(client))
    await until(lambda: not client.coordinator._marked)
    assert client.markers() == [(producer.producer_id, producer.epoch, False)]


async def test_nothing_is_taken_for_hanging_by_the_logs_of_one_of_several_brokers(client):
    """The ids of the producers may be known to the other broker alone."""
    await started(client, 0)
    index = index_of(client)
    client.coordinator.runtime.shards[index].machine.transactions.clear()
    await client.coordinator.hanging.end()
    client.coordinator.topic_opened("t")
    await trio.testing.wait_all_tasks_blocked()
    assert client.markers() == []


async def test_a_partition_of_a_deleted_topic_needs_no_marker_and_one_that_is_not_open_yet_does(client):
    missing = partial(client.coordinator._is_missing, producer_id=1, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert missing(client.partition(0).topic_partition)
    assert not missing(TopicPartition("gone", 0))
