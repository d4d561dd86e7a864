"""What a start would declare in a cluster of several brokers, whose metadata are in etcd."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs

from kafka_wire.stored.metadata import TopicRecord
from tests.cluster.etcd_stores import CLUSTER_ID, LAYOUT
from tests.fakes.images import broker_record, partition_record
from tests.fakes.inline_workers import InlineWorkers
from tests.fakes.modelled_etcd import ModelledEtcdClient
from trio_broker.cluster.declaration_preview import preview_declaration
from trio_broker.cluster.etcd import opening
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.metadata_store import PreparedBatch
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.declaration.declaration_file import read_declaration
from trio_broker.declaration.plan import difference_lines
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime

CONFIG = BrokerConfig({"node.id": "1", "metadata.store": "etcd://127.0.0.1:1/x"})
DECLARED = read_declaration(
    "cluster.toml", b"[topics.orders]\nreplication_factor = 3\n[users.bob.quotas]\nrequest_percentage = 5"
)


async def test_a_preview_reads_the_metadata_in_etcd_and_changes_nothing(world, autojump_clock, monkeypatch):
    @asynccontextmanager
    async def opened_store(config, runtime, cluster_id):
        yield EtcdMetadataStore(ModelledEtcdClient(world.etcd), LAYOUT, cluster_id, ManualClock()), None

    runtime = attrs.evolve(real_runtime(), workers=InlineWorkers())

    async def lines(declared=DECLARED):
        revision = world.etcd.state.revision
        plans = await preview_declaration(declared, CONFIG, runtime)
        assert world.etcd.state.revision == revision
        return difference_lines(plans)

    monkeypatch.setattr(opening, "opened_store", opened_store)
    assert await lines(read_declaration("cluster.toml", b"[topics.new]")) == ["+ new"], "of a cluster that is not there"
    store = await world.broker(CLUSTER_ID)
    claim = await store.claim(2)
    brokers = [broker_record(node_id, broker_epoch=node_id, fenced=False) for node_id in (2, 3)]
    end = await append(store, claim, claim.end_offset, brokers)
    assert await lines() == ["+ orders: replication factor 3", "+ user bob: request_percentage 5"]
    topic_id = bytes(range(16))
    orders = [TopicRecord(name="orders", topic_id=topic_id), partition_record(topic_id, 0, [1, 2, 3], leader_epoch=0)]
    await append(store, claim, end, orders)
    assert await lines() == ["= orders", "+ user bob: request_percentage 5"]


async def append(store, claim, end, records):
    """Append ``records`` and return the offset behind them."""
    return await store.append(await PreparedBatch.of(records, 0), claim=claim, expected_end=end) + len(records)
