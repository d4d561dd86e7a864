"""Data directories as brokers leave them, stopped or killed, and what is read of them."""

from __future__ import annotations

from pathlib import Path

from tests.spark.log_files import ORDERS, LogFiles, read
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.files.file_planning import plan_files
from trio_broker.spark.files.offline import OfflineLogs
from trio_broker.spark.options.selection import Subscribe
from trio_broker.spark.ranges import OffsetRange
from trio_broker.storage import checkpoints, file_names

NAMES = {
    "recovery_point": file_names.RECOVERY_POINT_CHECKPOINT,
    "log_start_offset": file_names.LOG_START_OFFSET_CHECKPOINT,
    "high_watermark": file_names.HIGH_WATERMARK_CHECKPOINT,
}


def write_checkpoints(directory: Path, **offsets: int) -> None:
    for name, offset in offsets.items():
        checkpoints.write_offsets(RealDisk(), directory / NAMES[name], {ORDERS: offset})


def stopped(files: LogFiles, **offsets: int) -> OfflineLogs:
    """The directory as a broker leaves it that stops properly."""
    files.log.close()
    (files.data_directory / file_names.CLEAN_SHUTDOWN_MARKER).write_text('{"version":0,"brokerEpoch":1}')
    write_checkpoints(files.data_directory, **offsets)
    return OfflineLogs([str(files.data_directory)])


def killed(files: LogFiles, **offsets: int) -> OfflineLogs:
    """The directory as a broker leaves it that is killed."""
    files.log.release()
    write_checkpoints(files.data_directory, **offsets)
    return OfflineLogs([str(files.data_directory)])


def read_all(logs: OfflineLogs, *, read_committed: bool = True) -> list[tuple[int, bytes | None]]:
    """Every row of the topic ``orders``, each partition after the other."""
    partitions = logs.partitions(Subscribe(("orders",)))
    start, end = logs.earliest(partitions), logs.latest(partitions)
    tasks = plan_files([OffsetRange(each, start[each], end[each]) for each in partitions], logs)
    return [row for task in tasks for row in read(task.transport, task.offsets, read_committed=read_committed)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
