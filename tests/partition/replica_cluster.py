"""The ReplicaManagers of several brokers in one loop, connected by the handlers of each, with a controller that agrees
to all it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from kafka_wire.messages.fetch import FetchRequest
from kafka_wire.messages.list_offsets import ListOffsetsRequest
from kafka_wire.records.batch import read_batches
from tests.handlers.handler_client import Client
from tests.leader_append import append_to_leader
from tests.partition.real_logs import TOPIC_ID, FakeBrokers, batch, make_replicas
from tests.running_broker import until
from trio_broker.config.resource_config import topic_config
from trio_broker.handlers.fetch import fetch
from trio_broker.handlers.list_offsets import list_offsets
from trio_broker.network.errors import RequestNotSent
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager

TOPIC = "orders"
HANDLERS = {FetchRequest: fetch, ListOffsetsRequest: list_offsets}
SHORT_WAITS = {"replica_fetch_backoff_ms": "10", "replica_fetch_wait_max_ms": "20"}
VERSIONS = {FetchRequest: 18, ListOffsetsRequest: 11}


@attrs.define(eq=False)
class ReplicaCluster:
    """One partition with replicas on all of the brokers."""

    nursery: trio.Nursery
    managers: dict[int, ReplicaManager] = attrs.field(factory=dict)
    leader: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    cut_off: set[int] = attrs.field(factory=set)
    """Brokers that nobody reaches, and that reach nobody."""
    altered: list[tuple[int, ...]] = attrs.field(factory=list)
    """The in-sync replicas as leaders have asked for them."""

    def decided(self) -> LeaderAndIsr:
        return LeaderAndIsr(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            replicas=tuple(self.managers),
            partition_epoch=self.partition_epoch,
        )

    async def elect(self, leader: int, *, isr: Sequence[int] | None = None) -> Partition:
        """Have a broker lead; all that are not cut off follow it."""
        self.leader, self.leader_epoch = leader, self.leader_epoch + 1
        self.partition_epoch += 1
        self.isr = tuple(isr or self.isr or self.managers)
        for broker_id in self.managers:
            if broker_id not in self.cut_off:
                await self.publish(broker_id)
        return self.partition(leader)

    async def publish(self, broker_id: int) -> None:
        """Have a broker read what was decided."""
        manager, decided = self.managers[broker_id], {0: self.decided()}
        leads = broker_id == self.leader
        config = topic_config({"min.insync.replicas": "1"}, manager.config)
        topic = LocalTopicChanges(
            TOPIC, TOPIC_ID, config, leaders=decided if leads else {}, followers={} if leads else decided
        )
        await manager.apply_local_changes(LocalReplicaChanges(topics=[topic]))

    async def append(self, *values: bytes) -> None:
        """Append to the leader as a producer does, a batch for each value."""
        manager = self.managers[self.leader]
        for value in values:
            await append_to_leader(manager, self.partition(self.leader), batch(value))

    def partition(self, broker_id: int) -> Partition:
        return self.managers[broker_id].topic(TOPIC).partition(0)

    def values(self, broker_id: int) -> list[bytes]:
        """The records of a broker's log."""
        log, found = self.partition(broker_id).log, []
        offset = log.log_start_offset
        while (fetched := log.read(offset, 1 << 20, end_offset=log.log_end_offset)).size:
            data = fetched.records if isinstance(fetched.records, bytes) else fetched.records.read()
            found += [record.value or b"" for each in read_batches(memoryview(data)) for record in each.records()]
            offset = fetched.next_offset
        return found

    async def until_visible(self, offset: int) -> None:
        """Wait until the leader shows what is before ``offset``."""
        await until(lambda: self.partition(self.leader).high_watermark >= offset)

    def advance(self, seconds: float) -> None:
        """Let time pass, for all that goes by clocks."""
        for manager in self.managers.values():
            clock: Any = manager.clock
            clock.advance(seconds)

    def end_point(self, broker_id: int, leader_id: int, number: int) -> LeaderEndPoint:
        return LeaderEndPoint(self, broker_id, leader_id)

    def alter(self, broker_id: int, partition: Partition, pending: PendingPartitionChange) -> None:
        """The controller agrees, unless somebody else leads by now."""
        if broker_id not in self.cut_off and broker_id == self.leader:
            self.nursery.start_soon(self._alter, partition, pending)

    async def _alter(self, partition: Partition, pending: PendingPartitionChange) -> None:
        await trio.lowlevel.checkpoint()
        self.isr, self.partition_epoch = tuple(sorted(pending.wanted_isr)), self.partition_epoch + 1
        self.altered.append(self.isr)
        partition.writer.isr_altered(pending, self.decided(), self.managers[self.leader].clock.monotonic())


@attrs.frozen
class LeaderEndPoint:
    """The connection of a broker to a leader."""

    cluster: ReplicaCluster
    broker_id: int
    leader_id: int

    async def send(self, message: Any, *, timeout_seconds: float) -> Any:
        if {self.broker_id, self.leader_id} & self.cluster.cut_off:
            raise RequestNotSent(f"no connection to broker {self.leader_id}")
        client = Client(self.cluster.managers[self.leader_id])
        response = await client.ask(HANDLERS[type(message)], message, VERSIONS[type(message)])
        if {self.broker_id, self.leader_id} & self.cluster.cut_off:
            raise RequestNotSent(f"the connection to broker {self.leader_id} was lost")
        return response


@asynccontextmanager
async def replica_cluster(directory: Path, brokers: int = 2, **settings: str) -> AsyncIterator[ReplicaCluster]:
    """So many brokers, of which the first leads, all in sync."""
    async with trio.open_nursery() as nursery:
        cluster = ReplicaCluster(nursery)
        alive = FakeBrokers({broker_id: broker_id * 10 for broker_id in range(1, brokers + 1)})
        for broker_id in alive.epochs:
            options: dict[str, Any] = {
                "replica_fetch_backoff_ms": "10",
                "replica_fetch_wait_max_ms": "20",
                "node_id": str(broker_id),
            }
            manager = make_replicas(directory / str(broker_id), brokers=alive, **{**options, **settings})
            manager.leader_end_point = partial(cluster.end_point, broker_id)
            manager.alter_partition = partial(cluster.alter, broker_id)
            cluster.managers[broker_id] = manager
            await nursery.start(manager.run)
        await cluster.elect(1)
        yield cluster
        nursery.cancel_scope.cancel()
    for manager in cluster.managers.values():
        manager.log_manager.close(clean=False)
