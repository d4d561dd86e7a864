"""The keys that operators read show the image, by the controller alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from kafka_wire.stored.metadata import PartitionChangeRecord, RemoveTopicRecord, TopicRecord
from tests.cluster.etcd.etcd_world import World, late_etcd
from tests.cluster.etcd_stores import LAYOUT
from tests.fakes.images import broker_record, image_after, image_of, partition_record
from trio_broker.cluster.etcd.layout import end_of_prefix
from trio_broker.cluster.etcd.messages import RangeRequest
from trio_broker.cluster.etcd.view import EtcdView, keep_view
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_store import ClaimLost

TOPIC = b"t".ljust(16, b"\0")


def shown(world: World) -> dict[str, Any]:
    request = RangeRequest(key=LAYOUT.view, range_end=end_of_prefix(LAYOUT.view))
    kvs = world.etcd.state.range(request).kvs
    return {kv.key.removeprefix(LAYOUT.view).decode(): json.loads(kv.value) for kv in kvs}


def image_of_partitions(count):
    topic = TopicRecord(name="t", topic_id=TOPIC)
    return image_of(broker_record(1), topic, *(partition_record(TOPIC, index) for index in range(count)))


async def test_brokers_topics_and_partitions_are_shown_and_the_offset(autojump_clock, world):
    store = await world.broker()
    image = image_of_partitions(1)
    await EtcdView(store.transactions, await store.claim(1)).show(image)
    assert shown(world) == {
        "brokers/ids/1": {"endpoints": [], "epoch": 0, "fenced": False, "rack": None},
        "brokers/topics/t": {"topic_id": "dAAAAAAAAAAAAAAAAAAAAA", "partitions": {"0": [1]}},
        "brokers/topics/t/partitions/0/state": {"leader": 1, "leader_epoch": 0, "isr": [1], "partition_epoch": 0},
        "offset": image.offset,
    }


async def test_what_has_changed_is_shown_and_what_is_gone_is_not(autojump_clock, world):
    store = await world.broker()
    view = EtcdView(store.transactions, await store.claim(1))
    image = image_of_partitions(300)
    await view.show(image)
    revision = world.etcd.state.revision
    changed = image_after(image, PartitionChangeRecord(topic_id=TOPIC, partition_id=7, leader=-1))
    await view.show(changed)
    assert world.etcd.state.revision == revision + 2, "one key, and the offset"
    assert shown(world)["brokers/topics/t/partitions/7/state"]["leader"] == -1
    await view.show(image_after(changed, RemoveTopicRecord(topic_id=TOPIC)))
    assert set(shown(world)) == {"brokers/ids/1", "offset"}


async def test_the_next_controller_goes_on_from_the_keys_that_are_there(autojump_clock, world):
    store = await world.broker()
    first = await store.claim(1)
    image = image_of_partitions(700)
    await EtcdView(store.transactions, first).show(image)
    second = await store.claim(1)
    revision = world.etcd.state.revision
    changed = image_after(image, PartitionChangeRecord(topic_id=TOPIC, partition_id=650, leader=-1))
    await EtcdView(store.transactions, second).show(changed)
    assert world.etcd.state.revision == revision + 2
    with pytest.raises(ClaimLost):
        await EtcdView(store.transactions, first).show(image)
    assert shown(world)["offset"] == changed.offset


async def test_a_change_that_is_made_late_undoes_nothing(autojump_clock, world):
    store = await world.broker()
    view = EtcdView(store.transactions, await store.claim(1))
    late_etcd(store).late_key = LAYOUT.view + b"brokers/topics/t/partitions/0/state"
    image = image_of_partitions(1)
    await view.show(image)
    await view.show(image_after(image, PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=-1)))
    late_etcd(store).carry_out()
    assert shown(world)["brokers/topics/t/partitions/0/state"]["leader"] == -1


async def test_the_controller_alone_keeps_the_keys_up_to_date(autojump_clock, world):
    store = await world.broker()
    cache = MetadataCache(image_of_partitions(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_view, store, cache)
        await trio.testing.wait_all_tasks_blocked()
        assert shown(world) == {}
        await store.claim(1)
        cache.set_image(image_of_partitions(2))
        await trio.sleep(5)
        assert len(shown(world)) == 5
        cache.set_image(image_after(cache.image, RemoveTopicRecord(topic_id=TOPIC)))
        await trio.sleep(5)
        assert set(shown(world)) == {"brokers/ids/1", "offset"}
        nursery.cancel_scope.cancel()
