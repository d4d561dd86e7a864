"""Finds rot in sealed segments before a consumer does: reads them again and again, at a bounded pace.

A pass goes over all sealed segments below the recovery points, one after the other, in a worker thread of its own and
in slices, as compaction does. How far it has come in each partition is written to ``scrubber-offset-checkpoint`` in
its data directory, so that the next start goes on from there. The next pass begins ``log.scrubber.interval.ms`` after
the last one began.

What is found is an ERROR line, on the storage page and in metrics, and part of the broker's health. Nothing is changed:
the partition is served as before, and readers of the damaged batch notice by its checksum. A segment that compaction or
retention took away meanwhile is no finding, and one that a later pass finds whole is none any more.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import PurePath
from typing import TypeVar

import attrs
import trio

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.compaction_pace import BytesPerSecond, run_slice
from trio_broker.partition.log_cleaner import PartitionOwner
from trio_broker.partition.partition import Partition
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import checkpoints, file_names
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.segment import Segment
from trio_broker.storage.segment_scrub import SegmentScrub

log = logging.getLogger(__name__)

T = TypeVar("T")

SCRUBBER_THREADS = 1
"""One segment at a time: the pace is bounded anyhow, and a disk serves one more reader without noticing."""

CHECKPOINT_SECONDS = 60.0
"""How often the progress is written down: at most so much reading is done twice after a start."""


@attrs.frozen
class DamagedSegment:
    """A segment in which the scrubber found damage, at ``position`` in its file and about ``offset`` in the log."""

    topic_partition: TopicPartition
    path: PurePath
    position: int
    offset: int
    reason: str


@attrs.frozen
class LogScrubberStatistics:
    """Counters only grow. ``last_pass_ended_ms`` is None before the first pass of this start has ended."""

    enabled: bool = False
    passes: int = 0
    segments: int = 0
    bytes_read: int = 0
    under_way: TopicPartition | None = None
    last_pass_ended_ms: int | None = None
    damaged: tuple[DamagedSegment, ...] = ()


class LogScrubber:
    """See the head of the file. ``change_directories`` is that of ``LogMaintenance``."""

    def __init__(
        self,
        replicas: PartitionOwner,
        log_manager: LogManager,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        change_directories: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self.replicas = replicas
        self.log_manager = log_manager
        self.config = config
        self.clock = runtime.clock
        self.limiter = trio.CapacityLimiter(SCRUBBER_THREADS)
        self._workers = runtime.workers
        self._change_directories = change_directories
        self._pace = BytesPerSecond(lambda: config.log_manager.log_scrubber_io_max_bytes_per_second)
        # Up to where each partition was read in this pass.
        self._positions: dict[TopicPartition, int] = {}
        self._written_at = 0.0
        self._damaged: dict[PurePath, DamagedSegment] = {}
        self._passes = self._segments = self._bytes_read = 0
        self._under_way: TopicPartition | None = None
        self._last_pass_ended_ms: int | None = None

    async def run(self) -> None:
        """Read what is due, until cancelled."""
        settings = self.config.log_manager
        if not settings.log_scrubber_enable:
            return
        await trio.sleep(settings.log_initial_task_delay_ms / 1000)
        self._positions = await self._in_thread(self._read_positions)
        while True:
            began = trio.current_time()
            await self.finish_pass()
            await trio.sleep_until(began + settings.log_scrubber_interval_ms / 1000)

    async def finish_pass(self) -> None:
        """Read all that this pass has not read yet."""
        self._written_at = trio.current_time()
        async for partition in InTurns(list(self.replicas.partitions())):
            while (segment := self._next_segment(partition)) is not None:
                await self._scrub(partition, segment)
                if trio.current_time() >= self._written_at + CHECKPOINT_SECONDS:
                    await self._write_positions()
        self._passes += 1
        self._last_pass_ended_ms = self.clock.now_ms()
        self._positions = {}
        await self._write_positions()

    def _next_segment(self, partition: Partition) -> Segment | None:
        """The first sealed segment that is on the disk and was not read in this pass."""
        if partition.failure is not None or partition.log.is_closed:
            return None
        position = self._positions.get(partition.topic_partition, -1)
        sealed = partition.log.segments[:-1]
        return next(
            (
                each
                for each in sealed
                if each.base_offset >= position and each.next_offset <= partition.log.recovery_point and each.size
            ),
            None,
        )

    async def _scrub(self, partition: Partition, segment: Segment) -> None:
        """Read one segment and tell what is wrong with it."""
        scrub = SegmentScrub(segment.file.private_copy(), segment.base_offset, segment.next_offset, segment.size)
        work = scrub.steps()
        self._under_way = partition.topic_partition
        try:
            is_last = False
            while not is_last:
                done = await self._in_thread(partial(run_slice, work, self.clock))
                is_last = done.is_last
                self._bytes_read += done.size_bytes
                # Paid outside the thread, as compaction pays.
                await self._pace.pay(done.size_bytes)
            reason = scrub.problem
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
        except Exception as error:
            # A bug, and perhaps damage that nobody thought of; the other segments are read all the same.
            log.exception("%s: the scrubber failed in %s", partition.topic_partition, segment.file.path.name)
            reason = f"it cannot be checked: {error!r}"
        finally:
            self._under_way = None
        self._positions[partition.topic_partition] = segment.next_offset
        self._segments += 1
        path = segment.file.path
        # What was read under a name that has become another segment's, or nobody's, says nothing; nor of one that was
        # cut meanwhile.
        is_there = segment.size == scrub.size and any(each is segment for each in partition.log.segments)
        if partition.failure is None and is_there:
            if reason is None:
                self._damaged.pop(path, None)
            else:
                where = partition.topic_partition
                self._note_damage(DamagedSegment(where, path, scrub.position, scrub.next_offset, reason))

    def _note_damage(self, damaged: DamagedSegment) -> None:
        log.error(
            "%s: damage in %s at position %d, offset %d, found by the scrubber: %s",
            damaged.topic_partition,
            damaged.path.name,
            damaged.position,
            damaged.offset,
            damaged.reason,
        )
        self._damaged[damaged.path] = damaged

    def _read_positions(self) -> dict[TopicPartition, int]:
        """What the checkpoints say; one that cannot be read costs a pass from the beginning. Blocks."""
        positions: dict[TopicPartition, int] = {}
        for directory in self.log_manager.directories:
            try:
                found = checkpoints.read_offsets(directory.disk, directory.path / file_names.SCRUBBER_CHECKPOINT)
            except (CorruptCheckpoint, OSError) as error:
                log.warning("the scrubber begins anew: %s", error)
                continue
            positions.update(found)
        return positions

    async def _write_positions(self) -> None:
        self._written_at = trio.current_time()
        await self._change_directories(
            partial(self.log_manager.checkpoints.write_scrubber_positions, dict(self._positions))
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._workers.run(work, limiter=self.limiter)

    def statistics(self) -> LogScrubberStatistics:
        present = {each.log.directory for each in self.replicas.partitions()} if self._damaged else set()
        return LogScrubberStatistics(
            enabled=self.config.log_manager.log_scrubber_enable,
            passes=self._passes,
            segments=self._segments,
            bytes_read=self._bytes_read,
            under_way=self._under_way,
            last_pass_ended_ms=self._last_pass_ended_ms,
            damaged=tuple(each for each in self._damaged.values() if each.path.parent in present),
        )
