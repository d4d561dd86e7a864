"""Brokers on a modelled etcd, some of whose calls to it are carried out late."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import trio

from tests.cluster.etcd_stores import CLUSTER_ID, LAYOUT
from tests.fakes.modelled_etcd import ModelledEtcd, ModelledEtcdClient
from trio_broker.cluster.etcd.errors import EtcdUnknown
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.messages import Compare, RequestOp, TxnRequest, TxnResponse
from trio_broker.runtime.clock import ManualClock


class World:
    """An etcd, and brokers that can be made on it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.etcd = ModelledEtcd(Random(1))
        self.lives: dict[EtcdMetadataStore, trio.CancelScope] = {}

    async def broker(self, cluster_id: str = CLUSTER_ID) -> EtcdMetadataStore:
        store = EtcdMetadataStore(LateEtcd(self.etcd), LAYOUT, cluster_id, ManualClock())
        await store.join()
        self.nursery.start_soon(self._live, store)
        return store

    async def _live(self, store: EtcdMetadataStore) -> None:
        with trio.CancelScope() as self.lives[store]:
            await store.run()


class LateEtcd(ModelledEtcdClient):
    """A way to etcd. The next transaction that puts ``late_key`` is not answered, and ``carry_out`` carries it out."""

    def __init__(self, etcd: ModelledEtcd) -> None:
        super().__init__(etcd)
        self.late_key: bytes | None = None
        self.late: list[TxnRequest] = []

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        if any(op.put is not None and op.put.key == self.late_key for op in success):
            self.late_key = None
            self.late.append(TxnRequest(compare=compare, success=success, failure=failure))
            raise EtcdUnknown("no answer")
        return await super().txn(compare, success, failure)

    def carry_out(self) -> None:
        for request in self.late:
            self._etcd.state.txn(request)
        self._etcd.note_change()


def late_etcd(store: EtcdMetadataStore) -> LateEtcd:
    etcd = store.transactions.etcd
    assert isinstance(etcd, LateEtcd)
    return etcd
