"""An append as Produce makes it, awaited in the calling task."""

from __future__ import annotations

from trio_broker.concurrency.steps import run_steps
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.append import AppendInfo


async def append_to_leader(
    replicas: ReplicaManager, partition: Partition, records: memoryview, *, produce_version: int = 9
) -> AppendInfo:
    """Append one batch; see ``LeaderAppends.append_steps``."""
    return await run_steps(replicas.appends.append_steps(partition, records, produce_version=produce_version))
