"""Metadata stores in etcd, modelled and real, as several brokers see one."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import trio

from tests.etcd_server import etcd_server, ready
from tests.fakes.modelled_etcd import NO_FAULTS, EtcdFaults, ModelledEtcd
from trio_broker.cluster.etcd.client import Etcd, EtcdClient
from trio_broker.cluster.etcd.errors import EtcdUnknown
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import EtcdLayout
from trio_broker.cluster.etcd.messages import Compare, RequestOp, TxnResponse
from trio_broker.cluster.metadata_store import MetadataStore
from trio_broker.runtime.clock import ManualClock

LAYOUT = EtcdLayout(b"/trio-broker/test/")
CLUSTER_ID = "c1"
BROKERS = (1, 2)


@attrs.define
class ForgetfulEtcd:
    """An etcd whose next answer to a transaction that is not a mere read can be lost."""

    etcd: Etcd
    loses_answer: bool = False

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        response = await self.etcd.txn(compare, success, failure)
        if compare and self.loses_answer:
            self.loses_answer = False
            raise EtcdUnknown("the answer was lost")
        return response

    def __getattr__(self, name: str) -> object:
        return getattr(self.etcd, name)


@attrs.define
class EtcdStore:
    """One store in etcd: each broker has its own client."""

    clients: dict[int, ForgetfulEtcd] = attrs.field(factory=dict)
    stores: dict[int, EtcdMetadataStore] = attrs.field(factory=dict)
    lives: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    etcd: ModelledEtcd | None = None

    async def add(self, nursery: trio.Nursery, node_id: int, etcd: Etcd) -> None:
        client = self.clients[node_id] = ForgetfulEtcd(etcd)
        store = self.stores[node_id] = EtcdMetadataStore(client, LAYOUT, CLUSTER_ID, ManualClock())  # type: ignore[arg-type]
        await store.join()
        self.lives[node_id] = trio.CancelScope()
        nursery.start_soon(self._live, node_id)

    async def _live(self, node_id: int) -> None:
        with self.lives[node_id]:
            await self.stores[node_id].run()

    def of(self, node_id: int) -> MetadataStore:
        return self.stores[node_id]

    async def kill(self, node_id: int) -> None:
        self.lives[node_id].cancel()
        reading = self.stores[node_id].transactions
        while (holder := (await reading.state()).holder) is not None and holder.node_id == node_id:
            if self.etcd is not None:
                self.etcd.revoke(holder.lease)
            await trio.sleep(0.05)

    def lose_answer(self, node_id: int) -> None:
        self.clients[node_id].loses_answer = True


@asynccontextmanager
async def modelled_etcd_store(random: Random | None = None, faults: EtcdFaults = NO_FAULTS) -> AsyncIterator[EtcdStore]:
    async with trio.open_nursery() as nursery:
        etcd = ModelledEtcd(random or Random(1), faults)
        store = EtcdStore(etcd=etcd)
        await nursery.start(etcd.run)
        for node_id in BROKERS:
            await store.add(nursery, node_id, etcd.client())
        yield store
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def real_etcd_store() -> AsyncIterator[EtcdStore]:
    with tempfile.TemporaryDirectory() as directory:
        async with etcd_server(Path(directory)) as server, trio.open_nursery() as nursery:
            store = EtcdStore()
            for node_id in BROKERS:
                client = EtcdClient(server.addresses, trio.open_tcp_stream)
                await nursery.start(client.run)
                await ready(client)
                await store.add(nursery, node_id, client)
            yield store
            nursery.cancel_scope.cancel()
