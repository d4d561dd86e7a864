"""What partitions need now and then: retention, removal of files, checkpoints, expiry, flushes by time.

What changes a partition is a command of its ``PartitionWriter``. What changes the data directories, which are shared
by all, is done by ``change_directories``, one after the other.

Source: Kafka's LogManager; the intervals are Kafka's, by their keys.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import PurePath
from typing import TypeVar

import trio

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background
from trio_broker.concurrency.scheduled_task import NEVER_MS, ScheduledTask, start_scheduled
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.command_queue import CommandQueue
from trio_broker.partition.disk_usage import DISK_USAGE_INTERVAL_MS, DiskUsageHistory
from trio_broker.partition.log_cleaner import LogCleaner, PartitionOwner
from trio_broker.partition.log_commands import InThread
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_scrubber import LogScrubber
from trio_broker.partition.partition import Partition
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.deleted_logs import remove_expired
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

T = TypeVar("T")

MAINTENANCE_THREADS = 2
"""Worker threads for retention, checkpoints and deletions: enough that a slow directory does not hold up the rest, few
enough that they never crowd the disk."""

DELETED_AT_ONCE = 100
"""Logs that are deleted between two looks at what else wants to change the directories. For each such number, the
directories are synced and the checkpoints of all logs are written once; releasing them takes the loop some ms."""

REMOVAL_INTERVAL_MS = 30_000
"""How often deleted files are looked for whose ``file.delete.delay.ms`` is over."""

PRODUCER_EXPIRY_INTERVAL_MS = 600_000
"""Kafka's ``producer.id.expiration.check.interval.ms``."""


class LogMaintenance:
    """Does the tasks of all partitions. Its worker threads are its own: no produce or fetch waits for one of them."""

    def __init__(
        self,
        replicas: PartitionOwner,
        log_manager: LogManager,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        failures: LogDirFailures,
    ) -> None:
        self.replicas = replicas
        self._failures = failures
        self.log_manager = log_manager
        self.config = config
        self.clock = runtime.clock
        self.expiry_clock = runtime.expiry_clock
        self._workers = runtime.workers
        self.limiter = trio.CapacityLimiter(MAINTENANCE_THREADS)
        self.disk_usage = DiskUsageHistory(log_manager.directories, log_manager.log_bytes)
        self.retention_due_at_ms = self._next_retention_ms(config.log_manager.log_initial_task_delay_ms)
        self._directory_commands = CommandQueue()
        # Up to where each log was when its files were last found in their place.
        self._ends_in_place: dict[TopicPartition, int] = {}
        self.log_cleaner = LogCleaner(
            replicas,
            log_manager,
            config,
            runtime,
            change_directories=self.change_directories,
            failures=failures,
        )
        self.log_scrubber = LogScrubber(
            replicas,
            log_manager,
            config,
            runtime,
            change_directories=self.change_directories,
        )

    def start(self, nursery: trio.Nursery) -> None:
        """Do every task at its own interval, and compact what is due, until ``nursery`` is cancelled."""
        start_background(nursery, "log cleaner", self.log_cleaner.run)
        start_background(nursery, "log scrubber", self.log_scrubber.run)
        for task in self.tasks():
            start_scheduled(nursery, task)

    def tasks(self) -> list[ScheduledTask]:
        """Everything to be done again and again, each at its own interval."""
        config = self.config.log_manager
        delayed = partial(ScheduledTask, initial_delay_ms=config.log_initial_task_delay_ms)
        return [
            delayed("retention", lambda: config.log_retention_check_interval_ms, self.apply_retention),
            delayed("disk usage", lambda: DISK_USAGE_INTERVAL_MS, self.sample_disk_usage),
            delayed("removing deleted files", lambda: REMOVAL_INTERVAL_MS, self.remove_expired_files),
            delayed("flushing", lambda: config.log_flush_scheduler_interval_ms, self.flush_due),
            delayed("recovery points", lambda: config.log_flush_offset_checkpoint_interval_ms, self.write_checkpoints),
            # Not delayed, as in Kafka, whose ReplicaManager does it: it is what finds out that files are gone.
            ScheduledTask(
                "high watermarks",
                lambda: config.replica_high_watermark_checkpoint_interval_ms,
                self.write_high_watermarks,
            ),
            delayed("producer expiry", lambda: PRODUCER_EXPIRY_INTERVAL_MS, self.expire_producers),
        ]

    def _next_retention_ms(self, delay_ms: int = 0) -> int | None:
        """When retention looks next, None for never."""
        interval_ms = self.config.log_manager.log_retention_check_interval_ms
        return None if interval_ms >= NEVER_MS else self.clock.now_ms() + delay_ms + interval_ms

    async def sample_disk_usage(self) -> None:
        """Keep how full the disks of the data directories are, and keep space back where that was given up."""
        await self.run_in_thread(partial(self.disk_usage.sample, self.clock.now_ms()))
        await self.change_directories(self.log_manager.restore_reserves)

    async def apply_retention(self) -> None:
        """Retire the segments whose time is over, one partition after another."""
        self.retention_due_at_ms = self._next_retention_ms()
        async for partition in InTurns(list(self.replicas.partitions())):
            if partition.failure is None and not self.log_cleaner.is_compacting(partition):
                try:
                    await partition.writer.delete_expired_segments(self.expiry_clock.now_ms())
                except OSError as error:
                    self._failures.storage_failed(partition, error)
        # A full disk has room again now, and not at the next look for such files.
        await self.remove_expired_files()

    async def remove_expired_files(self) -> None:
        """Remove the files of deleted segments and partitions whose delay is over; on a full disk, all of them.

        What was kept back there is kept back again.
        """
        await self._remove_files(await self._full_directories())

    async def _remove_files(self, full: Collection[PurePath]) -> None:
        """As ``remove_expired_files``, where ``full`` are the directories whose disk is."""
        expired = self.log_manager.take_expired_files(self.expiry_clock.now_ms(), full)
        await self.run_in_thread(partial(remove_expired, self.log_manager.disk, expired))
        if full and expired:
            await self.change_directories(self.log_manager.restore_reserves)

    async def _full_directories(self) -> frozenset[PurePath]:
        return await self.run_in_thread(self.log_manager.full_directories)

    async def removal_delay_ms(self, logs: Collection[Log]) -> int:
        """How long the files of what is deleted from ``logs`` now stay: not at all on a full disk."""
        full = await self._full_directories()
        return max((each.config.file_delete_delay_ms for each in logs if each.directory.parent not in full), default=0)

    async def remove_deleted_segments(self, partitions: Collection[Partition]) -> None:
        """Retire the segments before the log starts of ``partitions``, which have just moved; otherwise as
        ``remove_expired_files``.

        In a full directory that takes the active segments too: there may be no others.
        """
        full = await self._full_directories()
        now_ms = self.expiry_clock.now_ms()
        async for partition in InTurns(partitions):
            if partition.failure is not None or self.log_cleaner.is_compacting(partition):
                continue
            log, directory = partition.log, partition.log.directory.parent
            retire = partial(log.retire_deleted_segments, now_ms, with_active=directory in full)
            if directory in full:
                retire = partial(self.log_manager.with_reserve, directory, retire)
            try:
                await partition.writer.remove_segments(retire, now_ms)
            except OSError as error:
                self._failures.storage_failed(partition, error)
        await self._remove_files(full)

    async def flush_due(self) -> None:
        """Have those partitions synced whose oldest unsynced record has waited for ``flush.ms``."""
        async for partition in InTurns(list(self.replicas.partitions())):
            partition.writer.flush_if_due(self.clock.now_ms())

    async def write_checkpoints(self) -> dict[PurePath, OSError]:
        """Write recovery points and log start offsets down; return the log directories where that failed, and why.

        What is kept back on a full disk is for deletions, and not for these.
        """
        return await self.change_directories(partial(self.log_manager.checkpoints.write, with_reserve=False))

    async def write_deletions(self) -> dict[PurePath, OSError]:
        """As ``write_checkpoints``, after records were deleted."""
        return await self.change_directories(self.log_manager.checkpoints.write)

    async def write_high_watermarks(self) -> None:
        """Write the high watermarks down, from where Kafka's own tools would read them.

        Of what was appended since the last time it is seen that the next start finds it. Behind the checkpoints, which
        find out whether a whole directory is gone.
        """
        partitions = InTurns(list(self.replicas.partitions()))
        high_watermarks = {each.topic_partition: each.high_watermark async for each in partitions}
        await self.change_directories(partial(self.log_manager.checkpoints.write_high_watermarks, high_watermarks))
        await self._check_places()

    async def _check_places(self) -> None:
        """Take partitions offline whose files are no longer where the next start looks for them.

        Of each log that was appended to since the last check, the name of its active segment is looked at. Removing and
        renaming by commands comes in between: what looks gone is looked at again where no such command is under way.
        """
        before, self._ends_in_place = self._ends_in_place, {}
        appended = []
        async for each in InTurns(list(self.replicas.partitions())):
            self._ends_in_place[each.topic_partition] = each.log_end_offset
            if each.failure is None and before.get(each.topic_partition) != each.log_end_offset:
                appended.append(each)
        suspects = await self.run_in_thread(partial(_out_of_place, appended)) if appended else []
        for partition in suspects:
            try:
                await partition.writer.require_in_place()
            except OSError as error:
                self._failures.storage_failed(partition, error)

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for ``producer.id.expiration.ms``."""
        async for each in InTurns(list(self.log_manager.logs.values())):
            each.producers.remove_expired(self.expiry_clock.now_ms(), each.config.producer_id_expiration_ms)

    async def change_directories(self, work: Callable[[], T]) -> T:
        """Have ``work`` create or delete logs, or write checkpoints, in a worker thread, behind all that came before.

        So no two threads write the same files, or an older state over a newer one. A directory that turns out to be
        gone, or whose disk fails, is taken offline.
        """
        return await self._directory_commands.execute(partial(self._change_directories, work))

    async def with_directories(self, command: Callable[[InThread], Awaitable[None]]) -> None:
        """Await ``command``, in which the data directories stand still, but for what it has done in threads itself."""
        await self._directory_commands.execute(partial(command, self._change_directories))

    async def _change_directories(self, work: Callable[[], T]) -> T:
        try:
            return await self.run_in_thread(work)
        finally:
            for path, error in self.log_manager.checkpoints.take_failures().items():
                self._failures.take_directory_offline("checkpoints", path, error)

    async def delete_logs(self, partitions: Sequence[TopicPartition]) -> None:
        """Have logs deleted: their directories are renamed now and removed later.

        A failure is only logged: the log is forgotten nevertheless.
        """
        for at in range(0, len(partitions), DELETED_AT_ONCE):
            some = partitions[at : at + DELETED_AT_ONCE]
            await self._directory_commands.execute(partial(self._delete_logs, some))
        await self.remove_expired_files()

    async def _delete_logs(self, partitions: Sequence[TopicPartition]) -> None:
        taken = self.log_manager.take_logs(partitions)
        marked = await self._change_directories(partial(self.log_manager.deleted_logs.mark, taken))
        self.log_manager.deleted_logs.note_marked(marked.files)
        for topic_partition, error in marked.failures.items():
            log.error("%s: its files could not be removed: %s", topic_partition, error)

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Do ``work`` in one of the worker threads that no client waits for."""
        return await self._workers.run(work, limiter=self.limiter)


def _out_of_place(partitions: Iterable[Partition]) -> list[Partition]:
    """Return the partitions whose files do not seem to be in their place. Blocks."""
    found = []
    for each in partitions:
        try:
            each.log.require_in_place()
        except OSError:
            found.append(each)
    return found
