"""Compaction of all partitions whose topics want it: which one next, in worker threads of its own, at a bounded pace.

A round goes over one partition. The next one is the dirtiest that is due; when none is, the cleaner looks again after
``log.cleaner.backoff.ms``. Reading and rewriting take their time in a worker thread, slice by slice; produce and fetch
go on meanwhile, on the same log. The swap of finished segments is two commands of the ``PartitionWriter``, with syncs
in threads around them. Retention passes over a partition while a round is under way.

A partition that cannot be compacted is left alone from then on, until it is deleted or the broker starts anew, and an
error says so: damage found in a segment is worth a human's look, and compaction must not be what loses the rest. Its
records stay readable as far as they are. A full disk is nothing of that kind; the round is tried again. A disk that
fails costs the data directory, as everywhere.

Source: Kafka's LogCleaner and LogCleanerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from heapq import nlargest
from pathlib import PurePath
from typing import Protocol, TypeVar

import attrs
import trio

from kafka_wire.errors import KafkaError
from trio_broker.common.busy_time import BusyTime
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_once
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.compaction_pace import BytesPerSecond, run_slice
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.partition import Partition
from trio_broker.runtime.measurement import perf_counter_ns
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.cleaner import Cleaning, CleaningStatistics
from trio_broker.storage.compaction_plan import CompactionRange, compaction_range, dirtiest
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.offset_map import SECRET_BYTES, OffsetMap
from trio_broker.storage.segment import Segment
from trio_broker.storage.segment_swap import SegmentSwap

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_DIRTIEST = 10
"""Partitions that are named with their dirty ratio."""

MIN_CHUNK_BYTES = 4096
"""What a thread reads and writes at a time at least, however many share ``log.cleaner.io.buffer.size``: with less than
a batch's header nothing could be read, and every log would look damaged."""


class PartitionOwner(Protocol):
    """What the cleaner needs of the ReplicaManager."""

    def partitions(self) -> Iterator[Partition]: ...


@attrs.frozen
class UncleanablePartition:
    """A partition that compaction leaves alone, and why."""

    topic_partition: TopicPartition
    reason: str


@attrs.frozen
class DirtyPartition:
    """A compacted partition as the cleaner saw it last."""

    topic_partition: TopicPartition
    dirty_ratio: float
    dirty_bytes: int


@attrs.frozen
class LogCleanerStatistics:
    """Counters only grow. ``max_dirty_ratio`` is that of the last look, over all compacted partitions, of which
    ``dirtiest`` has the first.

    ``busy_ns`` is the time in which at least one of its threads worked.
    """

    rounds: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    under_way: tuple[TopicPartition, ...]
    uncleanable: tuple[UncleanablePartition, ...]
    max_dirty_ratio: float
    dirtiest: tuple[DirtyPartition, ...]
    busy_ns: int


@attrs.define(eq=False)
class _Round:
    """A round that is under way."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)


class LogCleaner:
    """See the head of the file. ``change_directories`` is that of ``LogMaintenance``."""

    def __init__(
        self,
        replicas: PartitionOwner,
        log_manager: LogManager,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        change_directories: Callable[[Callable[[], dict[PurePath, OSError]]], Awaitable[dict[PurePath, OSError]]],
        failures: LogDirFailures,
    ) -> None:
        self.replicas = replicas
        self._failures = failures
        self.log_manager = log_manager
        self.config = config
        self.clock = runtime.clock
        self.expiry_clock = runtime.expiry_clock
        self._random = runtime.random
        self._workers = runtime.workers
        self._change_directories = change_directories
        self.limiter = trio.CapacityLimiter(config.log_manager.log_cleaner_threads)
        self._pace = BytesPerSecond(lambda: config.log_manager.log_cleaner_io_max_bytes_per_second)
        self._rounds: dict[Partition, _Round] = {}
        self._uncleanable: dict[Partition, str] = {}
        self._round_ended = trio.Event()
        self._finished_rounds = 0
        self._totals = CleaningStatistics()
        self._max_dirty_ratio = 0.0
        self._dirtiest: tuple[DirtyPartition, ...] = ()
        self._busy_time = BusyTime()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow ``log.cleaner.threads``."""
        threads = config.log_manager.log_cleaner_threads
        if threads != self.limiter.total_tokens:
            self.limiter.total_tokens = threads
            self._round_ended.set()

    # ---- which one next -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Compact what is due, until cancelled."""
        if not self.config.log_manager.log_cleaner_enable:
            log.warning("log.cleaner.enable is false: nothing is compacted, __consumer_offsets neither")
            return
        async with trio.open_nursery() as nursery:
            while True:
                self._round_ended = trio.Event()
                if await self._begin_round(nursery):
                    continue
                # Without a pause it would look all the time.
                with trio.move_on_after(max(self.config.log_manager.log_cleaner_backoff_ms, 1) / 1000):
                    await self._round_ended.wait()

    async def _begin_round(self, nursery: trio.Nursery) -> bool:
        """Start a round over what is due, if one may start and something is; return whether that was so."""
        if len(self._rounds) >= self.limiter.total_tokens:
            return False
        chosen = await self.choose()
        if chosen is None:
            return False
        partition, compacted = chosen
        # It may have been deleted while the others were looked at.
        if partition.failure is None and not partition.writer.rest.locked():
            self._rounds[partition] = _Round()
            start_once(nursery, "compaction", partial(self._perform, partition, compacted))
        return True

    async def choose(self) -> tuple[Partition, CompactionRange] | None:
        """Return the dirtiest partition that is due, and what to do there; None when none is."""
        partitions = list(self.replicas.partitions())
        self._uncleanable = {each: why for each, why in self._uncleanable.items() if each in partitions}
        candidates = [each for each in partitions if self._may_be_compacted(each)]
        if not candidates:
            return None
        stable_offsets = [each.last_stable_offset for each in candidates]
        ranges = await self._in_thread(partial(self._ranges, candidates, stable_offsets, self.expiry_clock.now_ms()))
        found = {each: outcome for each, outcome in ranges.items() if isinstance(outcome, CompactionRange)}
        for partition, outcome in ranges.items():
            if isinstance(outcome, Exception):
                self._note_failure(partition, outcome)
        self._max_dirty_ratio = max((each.dirty_ratio for each in found.values()), default=0.0)
        self._dirtiest = tuple(
            DirtyPartition(each.log.topic_partition, each.dirty_ratio, each.dirty_bytes)
            for each in nlargest(MAX_DIRTIEST, found.values(), key=lambda compacted: compacted.dirty_ratio)
        )
        chosen = dirtiest(found.values())
        if chosen is None:
            return None
        return next(each for each, compacted in found.items() if compacted is chosen), chosen

    def _may_be_compacted(self, partition: Partition) -> bool:
        if not partition.log.config.cleanup_policy.compact or partition.failure is not None:
            return False
        sealed_end = partition.log.active_segment.base_offset
        if partition.log.durable_stable_offset < min(partition.last_stable_offset, sealed_end):
            # What is not known to be on the disk is not compacted, and without appends nobody would find out.
            partition.writer.flush_soon()
        return partition not in self._rounds and partition not in self._uncleanable

    @staticmethod
    def _ranges(
        candidates: Sequence[Partition], stable_offsets: Sequence[int], now_ms: int
    ) -> dict[Partition, CompactionRange | Exception]:
        """What could be done in each partition, or why that is unknown. Blocks: runs in a worker thread."""
        outcomes: dict[Partition, CompactionRange | Exception] = {}
        for partition, stable_offset in zip(candidates, stable_offsets, strict=True):
            try:
                look = partial(compaction_range, stable_offset=stable_offset, now_ms=now_ms)
                outcomes[partition] = partition.log.read_with(look).result
            except Exception as error:
                outcomes[partition] = error
        return outcomes

    # ---- one round ------------------------------------------------------------------------------------------------

    async def _perform(self, partition: Partition, compacted: CompactionRange) -> None:
        """Do a round; whatever goes wrong there is the partition's own trouble."""
        this_round = self._rounds[partition]
        ended_well = False
        try:
            with this_round.scope:
                await self.compact(partition, compacted)
                ended_well = True
        except Exception as error:
            self._note_failure(partition, error)
        finally:
            del self._rounds[partition]
            this_round.done.set()
            if ended_well:
                # The next one is looked for at once; after a failure, only when its time has come.
                self._round_ended.set()

    def _note_failure(self, partition: Partition, error: Exception) -> None:
        if partition.failure is not None or partition.log.is_closed:
            return  # deleted, or its disk is known to have failed: the failure has been reported
        if isinstance(error, OSError):
            self._failures.storage_failed(partition, error)
            return
        log.error(
            "%s cannot be compacted and is left as it is from now on: %s",
            partition.topic_partition,
            error,
            exc_info=None if isinstance(error, KafkaError) else error,
        )
        self._uncleanable[partition] = str(error) or type(error).__name__

    async def compact(self, partition: Partition, compacted: CompactionRange) -> None:
        """Go over one partition as ``compacted`` says.

        Raises:
            CorruptRecordBatch, CorruptIndex: a segment is damaged; the partition's files are as they were, or some
                groups of segments are compacted and whole.
            KafkaError: the partition is out of use.
            OSError: the disk refused or failed.
        """
        threads = self.config.log_manager.log_cleaner_threads
        offset_map = OffsetMap(
            self.config.log_manager.log_cleaner_dedupe_buffer_size // threads,
            secret=self._random.randbytes(SECRET_BYTES),
            load_factor=self.config.log_manager.log_cleaner_io_buffer_load_factor,
            expected_keys=compacted.end_offset - compacted.first_dirty_offset,
        )
        cleaning = Cleaning(
            # A reader of its own, for the threads of the round.
            attrs.evolve(compacted, log=partition.log.reader()),
            offset_map,
            now_ms=self.expiry_clock.now_ms(),
            chunk_bytes=max(MIN_CHUNK_BYTES, self.config.log_manager.log_cleaner_io_buffer_size // threads // 2),
        )
        began = self.clock.monotonic()
        try:
            await self._in_slices(partition, cleaning.index())
            await self._write_recovery_point(partition)
            for group in await self._in_thread(cleaning.groups):
                await self._in_slices(partition, cleaning.rewrite(group))
                if not await self._swap(partition, group, cleaning):
                    return
            await self._finish(partition, cleaning)
            self._report(partition, cleaning, self.clock.monotonic() - began)
        finally:
            self._add_up(cleaning.statistics)
            offset_map.close()
            with trio.CancelScope(shield=True):
                if partition.log.failure is None:
                    await self._in_thread(partial(self._discard, cleaning))

    async def _write_recovery_point(self, partition: Partition) -> None:
        """Have the recovery point on the disk before a record goes: a start takes gaps behind it for damage.

        Raises:
            OSError: it could not be written.
        """
        if partition.log.directory.parent in await self._change_directories(self.log_manager.checkpoints.write):
            raise OSError(f"{partition.topic_partition}: the recovery point was not written, so nothing is compacted")

    async def _in_slices(self, partition: Partition, work: Iterator[int]) -> None:
        is_last = False
        while not is_last:
            partition.state.require_online()  # its disk may have failed
            done = await self._in_thread(partial(run_slice, work, self.clock))
            is_last = done.is_last
            # Paid outside the thread, so that a throttled round holds no worker thread.
            await self._pace.pay(done.size_bytes)

    async def _swap(self, partition: Partition, group: Sequence[Segment], cleaning: Cleaning) -> bool:
        """Put what was written into the place of ``group``; return False where that has gone meanwhile.

        Nobody can stop it in the middle: a few syncs, and then names and row agree again.
        """
        assert cleaning.cleaned is not None, "a group was rewritten"
        swap = SegmentSwap(partition.log, group, cleaning.cleaned)
        if partition.failure is not None or not swap.is_possible:
            return False
        with trio.CancelScope(shield=True):
            try:
                await self._in_thread(swap.commit)
                cleaning.pop_cleaned()
                await partition.writer.replace_segments(swap, self.expiry_clock.now_ms())
                await self._in_thread(swap.sync)
                await partition.writer.finish_rename(swap)
                await self._in_thread(swap.sync)
            except StorageFailed as error:
                partition.log.fail(error)
                raise
        return True

    async def _finish(self, partition: Partition, cleaning: Cleaning) -> None:
        """Write down how far the partition has been compacted. If that fails, the same is done again one day."""
        partition.log.first_dirty_offset = min(cleaning.end_offset, partition.log.log_end_offset)
        await self._change_directories(self.log_manager.checkpoints.write_cleaner_offsets)

    def _report(self, partition: Partition, cleaning: Cleaning, seconds: float) -> None:
        self._finished_rounds += 1
        done = cleaning.statistics
        log.info(
            "%s: compacted up to offset %d in %.1f s: %d of %d records kept, %d bytes read, %d written",
            partition.topic_partition,
            cleaning.end_offset,
            seconds,
            done.records_kept,
            done.records_read,
            done.bytes_read,
            done.bytes_written,
        )
        if done.records_without_key:
            log.warning(
                "%s: %d records without a key were dropped", partition.topic_partition, done.records_without_key
            )

    def _add_up(self, done: CleaningStatistics) -> None:
        totals = self._totals
        totals.bytes_read += done.bytes_read
        totals.bytes_written += done.bytes_written
        totals.records_read += done.records_read
        totals.records_kept += done.records_kept

    @staticmethod
    def _discard(cleaning: Cleaning) -> None:
        """Remove what was written and not swapped in. After a failed disk it stays, for the next start to remove."""
        try:
            cleaning.discard()
        except OSError as error:
            log.error("%s: what compaction left is not removed: %s", cleaning.log.topic_partition, error)

    # ---- what others ask ------------------------------------------------------------------------------------------

    def is_compacting(self, partition: Partition) -> bool:
        """Whether a round is under way there; its row of segments is to be left alone then."""
        return partition in self._rounds

    async def wait_idle(self, partition: Partition) -> None:
        """End the round that is under way in ``partition``, so that its files may be closed or cut. It has failed
        before, or is being cut, so that no other begins."""
        if (this_round := self._rounds.get(partition)) is not None:
            this_round.scope.cancel()
            await this_round.done.wait()

    def statistics(self) -> LogCleanerStatistics:
        return LogCleanerStatistics(
            rounds=self._finished_rounds,
            bytes_read=self._totals.bytes_read,
            bytes_written=self._totals.bytes_written,
            records_read=self._totals.records_read,
            records_kept=self._totals.records_kept,
            under_way=tuple(each.topic_partition for each in self._rounds),
            uncleanable=tuple(
                UncleanablePartition(each.topic_partition, reason) for each, reason in self._uncleanable.items()
            ),
            max_dirty_ratio=self._max_dirty_ratio,
            dirtiest=self._dirtiest,
            busy_ns=self._busy_time.busy_until(perf_counter_ns()),
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._busy_time.enter()
        try:
            return await self._workers.run(work, limiter=self.limiter)
        finally:
            self._busy_time.exit()
