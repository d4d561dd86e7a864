"""What the cluster decides about the replicas of this broker: deletes, then leaders, then followers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NODE_ID, TOPIC_ID, add_topic, batch, followed, led, make_replicas
from trio_broker.config.resource_config import topic_config
from trio_broker.partition.leader_and_isr import LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.remote_replicas import FollowerFetch


async def apply(replicas, *, name: str = "orders", deletes=(), leaders=None, followers=None) -> None:
    config = topic_config({}, replicas.config)
    topic = LocalTopicChanges(name, TOPIC_ID, config, deletes, leaders or {}, followers or {})
    await replicas.apply_local_changes(LocalReplicaChanges(topics=[topic]))


async def test_a_leadership_that_was_lost_is_not_gone_on_with(replicas):
    [partition] = await add_topic(replicas)
    await apply(replicas, followers={0: followed(1)})
    assert (partition.state.is_leader, partition.state.leader) == (False, 2)
    with pytest.raises(KafkaError) as refused:
        await append_to_leader(replicas, partition, batch(b"a"))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await apply(replicas, leaders={0: led(2, 2)})
    await append_to_leader(replicas, partition, batch(b"a"))
    assert partition.log.latest_epoch == 2


async def test_a_broker_leads_before_it_asks_others_and_waits_for_none_that_is_busy(replicas):
    """Clients and followers that have read of it before come while it does so."""
    led_before_fetching: list[bool] = []

    class Fetchers:
        async def apply_local_changes(self, changes: LocalReplicaChanges) -> None:
            led_before_fetching.extend(each.state.is_leader for each in replicas.topic("orders").partitions.values())
            is_synced.set()

    await apply(replicas, followers={index: followed(1) for index in range(3)})
    replicas.fetchers = Fetchers()
    is_synced = trio.Event()
    partitions = replicas.topic("orders").partitions
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partitions[1].writer.execute, is_synced.wait)
        await trio.testing.wait_all_tasks_blocked()
        await apply(replicas, leaders={0: led(2, 2), 1: led(2, 2)}, followers={2: followed(2)})
    assert led_before_fetching == [True, False, False]
    assert [each.state.is_leader for each in partitions.values()] == [True, True, False]


async def test_a_follower_begins_no_epoch_of_its_own(replicas):
    await apply(replicas, followers={0: followed(7), 1: followed(7, leader=-1)})
    partitions = replicas.topic("orders").partitions
    assert [each.log.latest_epoch for each in partitions.values()] == [None, None]
    assert [each.state.leader for each in partitions.values()] == [2, -1]


async def test_partitions_that_have_moved_to_other_brokers_go_with_their_files(replicas):
    first, _ = await add_topic(replicas, partitions=2)
    await append_to_leader(replicas, first, batch(b"a"))
    await apply(replicas, deletes=[0])
    assert sorted(replicas.topic("orders").partitions) == [1]
    assert first.failure is not None
    assert first.failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not Path(first.log.directory).exists()
    await apply(replicas, deletes=[1])
    assert "orders" not in replicas.topics
    assert replicas.topics_by_id == {}
    await apply(replicas, deletes=[0, 1, 2])


async def test_applying_the_same_twice_changes_nothing(replicas):
    [partition] = await add_topic(replicas)
    await append_to_leader(replicas, partition, batch(b"a"))
    for _ in range(2):
        await apply(replicas, leaders={0: led(0)})
    assert replicas.topic("orders").partitions == {0: partition}
    assert (partition.state.is_leader, partition.high_watermark) == (True, 1)


@pytest.mark.parametrize(
    ("decided", "high_watermark"),
    [(led(1), 2), (led(1, 2), 1), (led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 2), (followed(1), 1)],
    ids=["alone", "with others in sync", "alone in sync", "as a follower"],
)
async def test_with_other_replicas_a_start_shows_no_more_than_was_written_down(tmp_path, decided, high_watermark):
    """What is behind the high watermark another leader may have in another way."""
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache")
    await apply(replicas, leaders={0: led(0, 2)})
    partition = replicas.topic("orders").partitions[0]
    for value in (b"a", b"b"):
        await append_to_leader(replicas, partition, batch(value))
    partition.writer.follower_fetched(FollowerFetch(2, -1, 1, 0, 2, 0.0))
    assert partition.high_watermark == 1
    assert replicas.replicated_high_watermarks() == {partition.topic_partition: 1}
    replicas.log_manager.close(high_watermarks=replicas.replicated_high_watermarks())
    again = make_replicas(tmp_path / "data", log_durability="page-cache")
    is_led = decided.leader == NODE_ID
    await apply(again, leaders={0: decided} if is_led else {}, followers={} if is_led else {0: decided})
    assert again.topic("orders").partitions[0].high_watermark == high_watermark
    again.log_manager.close(clean=False)
