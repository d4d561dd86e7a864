"""The store on a real etcd that is killed under it."""

from __future__ import annotations

from contextlib import suppress

import trio

from kafka_wire.stored.metadata import TopicRecord
from tests.cluster.etcd_stores import CLUSTER_ID, LAYOUT
from tests.etcd_server import etcd_client, etcd_server
from tests.waits import fail_after
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.metadata_store import AppendUnknown, ClaimLost, PreparedBatch
from trio_broker.runtime.clock import SystemClock

APPENDS = 60
WAIT_SECONDS = 60.0


async def test_every_append_is_there_once_though_etcd_is_killed_again_and_again(tmp_path):
    async with etcd_server(tmp_path) as server, etcd_client(server.addresses) as client:
        store = EtcdMetadataStore(client, LAYOUT, CLUSTER_ID, SystemClock())
        await store.join()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            with fail_after(WAIT_SECONDS):
                claim = await store.claim(1)
                for number in range(APPENDS):
                    if number % 20 == 10:
                        nursery.start_soon(kill_and_start, server)
                    batch = await PreparedBatch.of([topic(number)], now_ms=1)
                    claim = await appended(store, claim, batch)
                names = []
                async for committed in store.tail(0):
                    names += [record.name for record in committed.records]
                    if len(names) == APPENDS:
                        break
            nursery.cancel_scope.cancel()
    assert names == [topic(number).name for number in range(APPENDS)]


async def appended(store, claim, batch):
    """Append at the end; return the claim under which it was. A claim that is lost did not append."""
    while True:
        with suppress(ClaimLost, TimeoutError):
            end = await store.end_offset()
            while True:
                with suppress(AppendUnknown):
                    await store.append(batch, claim=claim, expected_end=end)
                    return claim
        claim = await store.claim(1)


async def kill_and_start(server):
    server.kill()
    await trio.sleep(0.2)
    server.start()


def topic(number):
    return TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))
