"""Several replica managers in one event loop, whose fetchers ask one another without a network in between.

Everything is in memory: disks, threads, time. A Fetch is answered by the leader's handler.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePath
from typing import Any

import attrs
import trio
import trio.lowlevel

from kafka_wire.errors import KafkaError
from kafka_wire.messages.fetch import FetchRequest
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    SpecialTimestamp,
)
from tests.fakes.inline_workers import InlineWorkers
from tests.handlers.handler_client import Client
from tests.leader_append import append_to_leader
from tests.partition.real_logs import TOPIC_ID, FakeBrokers, batch
from tests.storage.log_content import found_values
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.handlers.fetch import fetch
from trio_broker.network.errors import RequestNotSent, ResponseLost
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.partition import Partition
from trio_broker.partition.remote_leader_endpoint import Follower
from trio_broker.partition.replica_fetcher_manager import ReplicaFetcherManager
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.cpu_clock import ManualCpuClock
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_network import SimulatedNetwork
from trio_broker.storage.log_manager import LogManager

EPOCHS = {1: 101, 2: 102, 3: 103}
"""The broker epoch of each."""


@attrs.define(eq=False)
class ReplicatingBroker:
    """One of them. While ``is_away`` nobody reaches it; ``seen`` are the requests that have."""

    node_id: int
    replicas: ReplicaManager
    fetchers: ReplicaFetcherManager
    disk: SimulatedDisk
    is_away: bool = False
    seen: list[Any] = attrs.field(factory=list)
    before_answer: Callable[[Any], Awaitable[None]] | None = None
    """Awaited behind the look at the logs, before the answer is on its way."""

    def partition(self, index: int = 0, topic: str = "orders") -> Partition:
        return self.replicas.topic(topic).partition(index)

    async def append(self, *values: bytes, index: int = 0, topic: str = "orders") -> None:
        """As the leader, one batch."""
        await append_to_leader(self.replicas, self.partition(index, topic), batch(*values))

    def values(self, index: int = 0, topic: str = "orders") -> list[bytes]:
        """Of all records in its log."""
        return found_values(self.partition(index, topic).log)

    # ---- as a leader

    async def answer(self, request: Any, client: Client) -> Any:
        if self.is_away:
            raise RequestNotSent(f"broker {self.node_id} is away")
        self.seen.append(request)
        if isinstance(request, FetchRequest):
            answer = await client.ask(fetch, request, request.VERSIONS.high)
        else:
            answer = self._list_offsets(request)
        if self.before_answer is not None:
            await self.before_answer(request)
        if self.is_away:
            raise ResponseLost(f"broker {self.node_id} is away")
        return answer

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        [topic] = request.topics
        [wanted] = topic.partitions
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[self._end_of(topic.name, wanted)])]
        )

    def _end_of(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            partition = self.partition(wanted.partition_index, topic)
            partition.require_leader(wanted.current_leader_epoch)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
        is_end = wanted.timestamp == SpecialTimestamp.LATEST
        offset = partition.log_end_offset if is_end else partition.log_start_offset
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, offset=offset)


@attrs.define
class DirectClient:
    """See ``LeaderClient``: it calls the other broker."""

    broker: ReplicatingBroker
    in_flight: Client | None = None

    async def send(self, message: Any, *, timeout_seconds: float) -> Any:
        await trio.lowlevel.checkpoint()
        if self.in_flight is not None:
            self.in_flight.send_more()
        with trio.move_on_after(timeout_seconds):
            self.in_flight = Client(self.broker.replicas)
            return await self.broker.answer(message, self.in_flight)
        raise ResponseLost("no answer in time")


@attrs.frozen
class DirectClients:
    """See ``LeaderClients``."""

    brokers: Mapping[int, ReplicatingBroker]
    clients: dict[int, DirectClient] = attrs.field(factory=dict)

    def client(self, broker_id: int) -> DirectClient:
        return self.clients.setdefault(broker_id, DirectClient(self.brokers[broker_id]))

    async def run(self) -> None:
        await trio.sleep_forever()


@attrs.define(eq=False)
class ReplicatingBrokers:
    """All of them; ``settings`` with ``_`` for dots. ``run`` has their tasks."""

    clock: SimulatedClock
    settings: dict[str, str]
    brokers: dict[int, ReplicatingBroker] = attrs.field(factory=dict)
    partition_epoch: int = 0
    alive: FakeBrokers = attrs.field(factory=lambda: FakeBrokers(EPOCHS))

    def __attrs_post_init__(self) -> None:
        for node_id in (1, 2, 3):
            self.brokers[node_id] = self._make(node_id)

    def __getitem__(self, node_id: int) -> ReplicatingBroker:
        return self.brokers[node_id]

    def _make(self, node_id: int) -> ReplicatingBroker:
        settings = {name.replace("_", "."): value for name, value in self.settings.items()}
        config = BrokerConfig({"node.id": str(node_id), **settings})
        disk = SimulatedDisk(self.clock, node_id)
        runtime = runtime_in_memory(self.clock, disk, node_id)
        log_manager = LogManager(
            [PurePath("/data")],
            disk=disk,
            random=runtime.random,
            node_id=node_id,
            clock=self.clock,
            sync_recovered=config.node.log_durability == "fsync",
        )
        log_manager.open()
        replicas = ReplicaManager(log_manager, config, runtime, io_limiter=trio.CapacityLimiter(4), brokers=self.alive)
        fetchers = ReplicaFetcherManager(
            config,
            follower=Follower(node_id, lambda: EPOCHS[node_id]),
            find=lambda partition: replicas.find(partition),
            appends=replicas.follower_appends,
            make_clients=lambda: DirectClients(self.brokers),
        )
        replicas.fetchers = fetchers
        return ReplicatingBroker(node_id, replicas, fetchers, disk)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            for each in self.brokers.values():
                await nursery.start(each.replicas.run)
            task_status.started()

    # ---- the controller

    async def decide(
        self,
        leader: int,
        leader_epoch: int,
        *,
        isr: tuple[int, ...] = (1, 2),
        replicas: tuple[int, ...] = (1, 2),
        partitions: int = 1,
        topic: str = "orders",
        topic_id: bytes = TOPIC_ID,
        on: tuple[int, ...] | None = None,
        **configs: str,
    ) -> None:
        """Have partitions led by ``leader``, and followed by the others; only those in ``on`` have read of it.
        ``configs`` are the topic's, with ``_`` for dots."""
        self.partition_epoch += 1
        decided = LeaderAndIsr(
            leader=leader,
            leader_epoch=leader_epoch,
            isr=isr,
            replicas=replicas,
            partition_epoch=self.partition_epoch,
        )
        overrides = {"internal_segment_bytes": "2000", **configs}
        overrides = {name.replace("_", "."): value for name, value in overrides.items()}
        for node_id in on or replicas:
            broker = self.brokers[node_id]
            of_all = dict.fromkeys(range(partitions), decided)
            role = {"leaders": of_all} if node_id == leader else {"followers": of_all}
            config = topic_config(overrides, broker.replicas.config)
            changes = LocalReplicaChanges(topics=[LocalTopicChanges(topic, topic_id, config, **role)])
            await broker.replicas.apply_local_changes(changes)


def runtime_in_memory(clock: SimulatedClock, disk: SimulatedDisk, seed: int) -> Runtime:
    """That of a broker on a simulated disk, without threads and sockets."""
    return Runtime(
        clock=clock,
        random=random.Random(seed),
        disk=disk,
        workers=InlineWorkers(),
        network=SimulatedNetwork().host("broker"),
        cpu_clock=ManualCpuClock(),
    )


def epochs_of(partition: Partition) -> list[tuple[int, int]]:
    return [(each.epoch, each.start_offset) for each in partition.log.epochs.entries]
