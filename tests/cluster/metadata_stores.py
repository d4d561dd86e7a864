"""The stores that ``test_metadata_store`` holds to the contract, each as several brokers see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import PurePath
from typing import Protocol
from uuid import uuid4

import attrs

from kafka_wire.stored.metadata import TopicRecord
from tests.cluster.etcd_stores import modelled_etcd_store, real_etcd_store
from trio_broker.cluster.local_metadata_store import LocalMetadataStore
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_store import Claim, MetadataStore, PreparedBatch
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.workers import Workers


def topic(name: str) -> TopicRecord:
    """A record with an id of its own."""
    return TopicRecord(name=name, topic_id=uuid4().bytes)


async def batch_of(*names: str) -> PreparedBatch:
    """A batch that creates topics."""
    return await PreparedBatch.of([topic(name) for name in names], now_ms=1234)


async def append(store: MetadataStore, claim: Claim, *names: str) -> int:
    """Append topics of these names at the end; return the offset behind them."""
    end = await store.end_offset()
    return await store.append(await batch_of(*names), claim=claim, expected_end=end) + len(names)


class StoreUnderTest(Protocol):
    """One store."""

    def of(self, node_id: int) -> MetadataStore:
        """The store as one broker sees it, always the same object for a broker."""
        ...

    async def kill(self, node_id: int) -> None:
        """Have a broker die without a word; return once its claim has run out, if it had it."""
        ...

    def lose_answer(self, node_id: int) -> None:
        """Have the next append of a broker raise ``AppendUnknown``, though it is done, where the store knows that."""
        ...


@attrs.define
class LocalStore:
    """A log on a disk of this process, which all brokers share."""

    store: LocalMetadataStore

    def of(self, node_id: int) -> MetadataStore:
        return self.store

    async def kill(self, node_id: int) -> None:
        self.store.expire(node_id)

    def lose_answer(self, node_id: int) -> None:
        """Whether an append is on the disk is always known."""


@asynccontextmanager
async def local_store(workers: Workers | None = None) -> AsyncIterator[StoreUnderTest]:
    """One in memory, with threads or other ``workers``."""
    clock = ManualClock()
    runtime = attrs.evolve(real_runtime(clock), disk=SimulatedDisk(clock))
    if workers is not None:
        runtime = attrs.evolve(runtime, workers=workers)
    directory = PurePath("/metadata")
    runtime.disk.make_directory(directory)
    log = MetadataLog.open(directory, runtime)
    try:
        yield LocalStore(LocalMetadataStore(log, runtime.workers))
    finally:
        log.close()


STORES: dict[str, Callable[[], AbstractAsyncContextManager[StoreUnderTest]]] = {
    "local": local_store,
    "etcd": real_etcd_store,
    "modelled etcd": modelled_etcd_store,
}
"""By name, what opens an empty store. One that needs a program that is not there skips its tests."""
