"""What ``trio-broker fsck`` may change in a partition: make derived files anew, and accept the loss of damaged ones.

Both open the log as a start after a crash does, and close it as a clean stop does, so there is one way to make an index
and one way to cut a log. No byte of a record is unlinked: a damaged segment is first copied to a name that no loader
looks at, and what recovery takes out of service it puts aside itself.

Source: docs/commands.md, fsck; docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import KEEP_FOR_EVER, CleanupPolicy, LogConfig
from trio_broker.runtime.disk import Disk, sync_file
from trio_broker.storage import checkpoints, file_names, partition_metadata
from trio_broker.storage.directory_check import PartitionTask
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.findings import FindingKind, StorageFinding
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.partition_check import PartitionReport
from trio_broker.storage.recovery import open_log

_LOSSES = frozenset({FindingKind.BATCH, FindingKind.LOST_BATCHES, FindingKind.RECORD})


def rebuild(disk: Disk, task: PartitionTask, report: PartitionReport, now_ms: int) -> bool:
    """Make the derived files anew in which ``report`` found damage; return whether that was possible.

    It is not where the log itself is damaged: its loss has to be accepted first.

    Raises:
        OSError: the disk refused.
    """
    kinds = {finding.kind for finding in report.findings}
    if not all(kind.is_derived for kind in kinds):
        return False
    for finding in report.findings:
        # Recovery reads both and believes what it can read.
        if finding.kind in (FindingKind.SNAPSHOT, FindingKind.LEADER_EPOCHS):
            disk.unlink(finding.path, missing_ok=True)
    if FindingKind.LEADER_EPOCHS in kinds:
        read_from = 0
    else:
        bases = (_base_offset(finding.path) for finding in report.findings)
        read_from = min((base for base in bases if base is not None), default=0)
    end_offset, _ = _recover(disk, task, read_from, task.bounds.log_start_offset or 0, now_ms, may_have_gaps=True)
    if FindingKind.CHECKPOINT in kinds:
        _change_offset(disk, task, file_names.HIGH_WATERMARK_CHECKPOINT, end_offset)
    return True


def accept_loss(disk: Disk, task: PartitionTask, report: PartitionReport, now_ms: int) -> list[PurePath]:
    """Take a damaged partition back into service, without what is damaged. Returns the files that were put aside.

    The log ends before the first damage then, as after the recovery from a crash; the checkpoints of its directory
    follow.

    Raises:
        OSError: the disk refused.
        CorruptCheckpoint: nothing says whose partition this is.
    """
    damaged = {finding.path for finding in report.findings if finding.kind in _LOSSES}
    logs = sorted(path for path in damaged if path.name.endswith(file_names.LOG_SUFFIX))
    aside = [_copy_aside(disk, path, now_ms) for path in logs]
    if any(finding.path.name == file_names.PARTITION_METADATA for finding in report.findings):
        if task.bounds.topic_id is None:
            raise CorruptCheckpoint(f"{task.directory}: the metadata log has no topic id for it")
        path = task.directory / file_names.PARTITION_METADATA
        aside.append(_copy_aside(disk, path, now_ms))
        partition_metadata.write(disk, task.directory, task.bounds.topic_id)
    for finding in reversed(report.findings):
        if finding.kind in (FindingKind.SNAPSHOT, FindingKind.LEADER_EPOCHS):
            disk.unlink(finding.path, missing_ok=True)
        if _is_gap_within_segment(finding):
            # By its checksum the batch behind the gap is good, and recovery would let the log go on there.
            file = LogFile(disk, finding.path)
            file.truncate(finding.position or 0)
            file.sync()
    is_start_wrong = any(finding.kind is FindingKind.LOG_START_CHECKPOINT for finding in report.findings)
    log_start = 0 if is_start_wrong else task.bounds.log_start_offset or 0
    if is_start_wrong:
        _change_offset(disk, task, file_names.LOG_START_OFFSET_CHECKPOINT, None)
    end_offset, put_aside = _recover(disk, task, 0, log_start, now_ms, may_have_gaps=task.bounds.may_have_gaps)
    for name in (file_names.RECOVERY_POINT_CHECKPOINT, file_names.HIGH_WATERMARK_CHECKPOINT):
        _change_offset(disk, task, name, end_offset)
    return list(dict.fromkeys([*aside, *put_aside]))


def _is_gap_within_segment(finding: StorageFinding) -> bool:
    """Whether offsets are missing between two batches of one segment, or before its first one."""
    base_offset = file_names.offset_of(finding.path.name, file_names.LOG_SUFFIX)
    if finding.kind is not FindingKind.LOST_BATCHES or finding.position is None or finding.offset is None:
        return False
    return base_offset is not None and finding.offset >= base_offset


def _copy_aside(disk: Disk, path: PurePath, now_ms: int) -> PurePath:
    target = path.with_name(f"{path.name}.corrupt-{now_ms}")
    disk.copy(path, target)
    # Before the original is cut: until then it is the only copy.
    sync_file(disk, target)
    disk.sync_directory(path.parent)
    return target


def _recover(
    disk: Disk, task: PartitionTask, read_from: int, log_start_offset: int, now_ms: int, *, may_have_gaps: bool
) -> tuple[int, list[PurePath]]:
    """Open the log as after a crash and close it; return where it ends, and what recovery put aside."""
    config = LogConfig(
        retention_ms=KEEP_FOR_EVER,
        retention_bytes=KEEP_FOR_EVER,
        cleanup_policy=CleanupPolicy(delete=not may_have_gaps, compact=may_have_gaps),
    )
    opened = open_log(
        disk,
        task.directory,
        task.topic_partition,
        None if disk.exists(task.directory / file_names.PARTITION_METADATA) else task.bounds.topic_id,
        config,
        recovery_point=read_from,
        compacted_before=task.bounds.recovery_point,
        log_start_offset=log_start_offset,
        clean=False,
        now_ms=now_ms,
    )
    end_offset = opened.log.log_end_offset
    opened.log.close()
    return end_offset, opened.report.kept_aside


def _base_offset(path: PurePath) -> int | None:
    return file_names.offset_of(path.name, path.suffix) if path.suffix else None


def _change_offset(disk: Disk, task: PartitionTask, name: str, offset: int | None) -> None:
    """Set a partition's offset in a checkpoint that has one; None removes it. One that cannot be read is left."""
    path = task.directory.parent / name
    try:
        offsets: Mapping[TopicPartition, int] = checkpoints.read_offsets(disk, path)
    except CorruptCheckpoint:
        return
    if task.topic_partition not in offsets:
        return
    changed = dict(offsets)
    del changed[task.topic_partition]
    if offset is not None:
        changed[task.topic_partition] = offset
    checkpoints.write_offsets(disk, path, changed)
