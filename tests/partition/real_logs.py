"""Partitions and replica managers over real logs in a temporary directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import attrs
import trio

from kafka_wire.records.batch import build_batch
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from tests.storage.managed_logs import load_logs
from tests.waits import scaled
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.partition import Durability, Partition
from trio_broker.partition.remote_replicas import RemoteReplicas
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.writer import PartitionWriter
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.leader_epochs import EpochEntry, LeaderEpochs
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.recovery import open_log

LONG_WAITS = {
    "replica_fetch_wait_max_ms": "3600000",
    "replica_socket_timeout_ms": "7200000",
    "replica_lag_time_max_ms": "7200000",
}
"""Settings with which a follower learns nothing by the end of a wait of its Fetch."""

NOW_MS = 1_700_000_000_000
NODE_ID = BrokerConfig({}).node.node_id
TOPIC_ID = bytes(range(16))


@attrs.define
class FakeBrokers:
    """Brokers by their epochs, for the leaders of partitions."""

    epochs: dict[int, int] = attrs.field(factory=dict)
    stopping: set[int] = attrs.field(factory=set)
    fenced: set[int] = attrs.field(factory=set)

    def registered_epoch(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)

    def alive_epoch(self, broker_id: int) -> int | None:
        return None if broker_id in self.fenced else self.epochs.get(broker_id)

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self.stopping


NO_BROKERS = FakeBrokers()


def batch(*values: bytes, timestamp: int = NOW_MS, **options) -> memoryview:
    """One batch of a producer, writable as a request's frame is."""
    records = [NewRecord(timestamp=timestamp, key=None, value=value, headers=()) for value in values or (b"value",)]
    return memoryview(bytearray(build_batch(records, **options)))


def make_log(directory: Path, index: int = 0, topic: str = "orders", config: LogConfig | None = None) -> Log:
    """A new log, or the one that is there."""
    topic_partition = TopicPartition(topic, index)
    return open_log(
        RealDisk(),
        directory / str(topic_partition),
        topic_partition,
        TOPIC_ID,
        config or LogConfig(),
        recovery_point=0,
        log_start_offset=0,
        clean=True,
        now_ms=NOW_MS,
    ).log


def make_partition(
    log: Log,
    durability: Durability = Durability.PAGE_CACHE,
    *,
    leader_epoch: int = 0,
    sync_soon: Callable[[PartitionWriter], None] = lambda writer: None,
) -> Partition:
    """The partition of ``log``, which is led here; the first entry of its leader epoch has yet to be written."""
    partition = Partition(
        log,
        RemoteReplicas(NODE_ID, NO_BROKERS, max_lag_seconds=30.0),
        high_watermark=log.log_end_offset,
        durability=durability,
        sync_soon=sync_soon,
        in_thread=trio.to_thread.run_sync,
    )
    partition.writer.lead_at_once(led(leader_epoch), 0.0)
    return partition


def led(leader_epoch: int, *others: int, **options: Any) -> LeaderAndIsr:
    """The decision that this broker leads, with ``others`` in sync."""
    replicas = (NODE_ID, *others)
    partition_epoch = options.pop("partition_epoch", leader_epoch)
    return LeaderAndIsr(
        leader=NODE_ID,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        **{"isr": replicas, "replicas": replicas, **options},
    )


def followed(leader_epoch: int, leader: int = 2) -> LeaderAndIsr:
    """The decision that another broker leads, or nobody."""
    return LeaderAndIsr(
        leader=leader, leader_epoch=leader_epoch, partition_epoch=leader_epoch, isr=(2,), replicas=(NODE_ID, 2)
    )


def write_epoch_entry(partition: Partition) -> None:
    """Write down where the leader epoch begins, as ``ready_to_append`` does in a thread."""
    partition.log.epochs.write()
    partition.writer.needs_epoch_entry = False


def require_side_by_side(monkeypatch, partitions: int) -> None:
    """Let no leader epoch be written down unless those of so many partitions are being written."""
    meeting, write = threading.Barrier(partitions, timeout=scaled(5)), LeaderEpochs.write_file

    def write_together(epochs: LeaderEpochs, entries: list[EpochEntry]) -> None:
        meeting.wait()
        write(epochs, entries)

    monkeypatch.setattr(LeaderEpochs, "write_file", write_together)


def sync(partition: Partition) -> None:
    """One sync, as the flusher does it."""
    partition.writer.sync()()


def commit(partition: Partition) -> None:
    """Write a marker as a coordinator would."""
    marker = build_control_batch(
        EndTransactionMarker(committed=True, coordinator_epoch=0), timestamp=NOW_MS, producer_id=9, producer_epoch=0
    )
    partition.writer.append(memoryview(bytearray(marker)), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def make_replicas(
    directory: PurePath,
    *,
    others: Sequence[PurePath] = (),
    runtime: Runtime | None = None,
    brokers: FakeBrokers | None = None,
    **settings: Any,
) -> ReplicaManager:
    """A replica manager over data directories, with the logs that are in them; ``settings`` with ``_`` for dots."""
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    runtime = runtime or real_runtime(ManualClock(NOW_MS))
    log_manager = LogManager(
        [directory, *others],
        disk=runtime.disk,
        random=runtime.random,
        node_id=1,
        clock=runtime.clock,
        sync_recovered=config.node.log_durability == "fsync",
    )
    log_manager.open()
    load_logs(log_manager, lambda partition, topic_id: topic_config({}, config))
    return ReplicaManager(
        log_manager, config, runtime, io_limiter=trio.CapacityLimiter(4), brokers=brokers or FakeBrokers()
    )


async def lead_topic(
    replicas: ReplicaManager, name: str, epochs: dict[int, int], config: LogConfig, topic_id: bytes = TOPIC_ID
) -> None:
    """Have partitions of a topic led here, in these epochs."""
    leaders = {index: led(epoch) for index, epoch in epochs.items()}
    changes = LocalTopicChanges(name, topic_id, config, leaders=leaders)
    await replicas.apply_local_changes(LocalReplicaChanges(topics=[changes]))


async def delete_topics(replicas: ReplicaManager, *names: str) -> None:
    """Have topics deleted."""
    await replicas.apply_local_changes(LocalReplicaChanges(deleted_topics=names))


async def add_topic(
    replicas: ReplicaManager,
    name: str = "orders",
    *,
    partitions: int = 1,
    leader_epoch: int = 0,
    topic_id: bytes = TOPIC_ID,
    configs: dict[str, str] | None = None,
) -> list[Partition]:
    """Assign a topic to the replica manager; returns its partitions."""
    config = topic_config(configs or {}, replicas.config)
    await lead_topic(replicas, name, dict.fromkeys(range(partitions), leader_epoch), config, topic_id)
    local = replicas.topic(name)
    return [local.partitions[index] for index in range(partitions)]
