"""A follower's log in one thread, where nobody else reads it: truncation and appends, each with all of its steps."""

from __future__ import annotations

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.storage.append import AppendInfo
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager

NO_LIMIT = 2**31 - 1
"""A leader epoch that no batch is above."""


def truncate(log: Log, offset: int, now_ms: int, *, begins_anew: bool = False) -> None:
    """Cut ``log`` at ``offset``, which is before its end, or have it begin anew there."""
    plan = log.plan_truncation(offset, begins_anew=begins_anew).result
    log.note_cut(log.sync_cut(log.cut(plan), now_ms), now_ms)
    log.epochs.write()


def truncate_log(manager: LogManager, partition: TopicPartition, offset: int, now_ms: int) -> None:
    """As ``truncate``, with the recovery point on the disk lowered before."""
    log = manager.logs[partition]
    log.lower_recovery_point(offset)
    if error := manager.checkpoints.write().get(log.directory.parent):
        raise error
    truncate(log, offset, now_ms)


def append_as_follower(log: Log, data: bytes | bytearray, now_ms: int, *, leader_epoch: int = NO_LIMIT) -> AppendInfo:
    """Append what a leader has sent."""
    records = memoryview(data)
    batches = log.check_replicated(records, leader_epoch)
    log.begin_epochs_of(batches)
    if (unwritten := log.epochs.unwritten) is not None:
        log.write_epochs(unwritten)
        log.epochs.note_written(unwritten)
    return log.append_as_follower(batches, records, now_ms)
