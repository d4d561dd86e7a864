"""A metadata log that broker 1 leads, without a store around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from kafka_wire.records.batch import read_batch_header
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot, SnapshotId
from trio_broker.cluster.metadata_store import PreparedBatch
from trio_broker.runtime.runtime import Runtime


def leading_log(data_directory: PurePath, runtime: Runtime) -> MetadataLog:
    """The log of ``data_directory`` in a new leader epoch."""
    log = MetadataLog.open(data_directory, runtime)
    log.begin_epoch(1)
    return log


async def append(log: MetadataLog, records: Sequence[Any]) -> int:
    """Append ``records`` as one batch; return the offset of the first."""
    batch = await PreparedBatch.of(records, now_ms=0)
    return read_batch_header(await log.append(batch)).base_offset


def take_snapshot(log: MetadataLog, records: Iterable[Any], last_timestamp_ms: int = 0) -> SnapshotId:
    """Replace the whole log by ``records``."""
    snapshot_id = SnapshotId(log.log_end_offset, log.leader_epoch)
    log.take_snapshot(MetadataSnapshot.of(snapshot_id, records, last_timestamp_ms=last_timestamp_ms, now_ms=0))
    return snapshot_id
