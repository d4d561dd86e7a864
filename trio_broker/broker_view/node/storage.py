"""The disks of a running broker, for the admin app.

The report looks at every partition: sizes in turns on the event loop, the ages of segments in a worker thread, since
they may have to be read from an index. So it is made once for all who ask within some seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from heapq import nlargest
from pathlib import PurePath

import attrs

from broker_admin.views.node.storage import (
    CleanerSummary,
    DamageFound,
    DirectoryReport,
    DirtyLog,
    LogProblem,
    RecoverySummary,
    RetentionOutlook,
    ScrubberSummary,
    StorageReport,
    SyncBucket,
    SyncSummary,
    TopicSize,
    UncleanableLog,
)
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.common.histogram import HistogramSnapshot, upper_bound_ns
from trio_broker.common.topic_names import is_internal_topic
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.disk_usage import forecast_disk
from trio_broker.partition.flusher import FlusherStatistics
from trio_broker.partition.log_cleaner import LogCleanerStatistics
from trio_broker.partition.log_scrubber import LogScrubberStatistics
from trio_broker.partition.partition import Partition
from trio_broker.storage.log_checkpoints import parent_text
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.log_manager import LoadReport
from trio_broker.storage.recovery_progress import RecoveryProgress
from trio_broker.storage.retention import expired_segments

REPORT_SECONDS = 5.0
"""How long a report is kept: disks change slowly, and a look at 10,000 partitions takes tenths of a second."""

SIZES_SECONDS = 2.0
"""How long sizes and rates are kept, which need no files. While there is no record at all the next look may be the one
that finds the first."""

SIZES_PAUSE_FACTOR = 49
"""Sizes that took a tenth of a second to count are kept for five: that takes a fiftieth of the event loop's time."""

LARGEST_TOPICS = 20
"""Topics that are named; the page of topics lists all of them."""

MAX_PROBLEMS = 100
"""Problems of the last start that are kept apart; the log has all of them."""

SYNC_BOUNDS_MS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""From a disk's write cache to one that is overloaded."""


@attrs.frozen
class PartitionSizes:
    """What is on the disks, as counted at one go. ``failed`` partitions cannot be read.

    ``busiest_topics`` are those that carry most bytes; clients have written to them or to others if ``has_records``.
    """

    log_bytes: Counter[PurePath]
    partitions: Counter[PurePath]
    largest_topics: tuple[TopicSize, ...]
    busiest_topics: tuple[TopicSize, ...]
    topics: int
    failed: int
    has_records: bool


class LiveStorageView:
    """The part of the admin app's view that is about disks."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self._report = CachedReport(self._measured, services.clock, seconds=REPORT_SECONDS)
        self._sizes = CachedReport(self._count, services.clock, seconds=SIZES_SECONDS, pause_factor=SIZES_PAUSE_FACTOR)

    async def report(self) -> StorageReport:
        return await self._report.get()

    async def _measured(self) -> StorageReport:
        services, replicas = self.services, self.services.replicas
        maintenance, log_manager = replicas.log_maintenance, replicas.log_manager
        sizes = await self.sizes()
        outlook = partial(
            retention_outlook,
            [each for each in replicas.partitions() if each.failure is None],
            next_check_at_ms=maintenance.retention_due_at_ms,
        )
        return StorageReport(
            made_at_ms=services.clock.now_ms(),
            directories=await self.directories(),
            topics=sizes.topics,
            log_bytes=sizes.log_bytes.total(),
            largest_topics=sizes.largest_topics,
            retention=await maintenance.run_in_thread(outlook),
            cleaner=cleaner_summary(
                maintenance.log_cleaner.statistics(),
                enabled=services.config.log_manager.log_cleaner_enable,
                threads=services.config.log_manager.log_cleaner_threads,
            ),
            scrubber=scrubber_summary(
                maintenance.log_scrubber.statistics(),
                services.config.log_manager.log_scrubber_io_max_bytes_per_second,
            ),
            syncs=sync_summary(replicas.flusher.statistics(), services.config.node.log_durability),
            recovery=recovery_summary(
                log_manager.load_report, was_clean=all(each.was_clean for each in log_manager.directories)
            ),
        )

    def recovery(self) -> RecoveryProgress:
        return self.services.replicas.log_manager.load_report.progress

    async def sizes(self) -> PartitionSizes:
        """Sizes and rates of all topics, which may be some seconds old."""
        return await self._sizes.get()

    async def _count(self) -> PartitionSizes:
        replicas = self.services.replicas
        # By text: a path of each of ten thousand partitions would take most of the time of this walk.
        log_bytes: Counter[str] = Counter()
        partitions: Counter[str] = Counter()
        topics: list[TopicSize] = []
        failed, has_records = 0, False
        async for local in InTurns(list(replicas.topics.values())):
            size_bytes, is_internal = 0, is_internal_topic(local.name)
            failed += len(local.failures)
            for partition in local.partitions.values():
                size = partition.log.size_bytes
                directory = parent_text(partition.log.directory)
                size_bytes += size
                log_bytes[directory] += size
                partitions[directory] += 1
                failed += partition.failure is not None
                has_records |= not is_internal and partition.log_end_offset > 0
            rates = replicas.topic_stats.rates(local.partitions.values())
            topics.append(
                TopicSize(
                    topic=local.name,
                    internal=is_internal,
                    partitions=len(local.partitions),
                    size_bytes=size_bytes,
                    records_in_per_second=rates.records_in,
                    bytes_in_per_second=rates.bytes_in,
                    bytes_out_per_second=rates.bytes_out,
                )
            )
        self._sizes.seconds = SIZES_SECONDS if has_records else 0.0
        return PartitionSizes(
            log_bytes=Counter({PurePath(directory): size for directory, size in log_bytes.items()}),
            partitions=Counter({PurePath(directory): count for directory, count in partitions.items()}),
            largest_topics=tuple(nlargest(LARGEST_TOPICS, topics, key=lambda each: each.size_bytes)),
            busiest_topics=tuple(
                nlargest(LARGEST_TOPICS, topics, key=lambda each: each.bytes_in_per_second + each.bytes_out_per_second)
            ),
            topics=len(topics),
            failed=failed,
            has_records=has_records,
        )

    async def directories(self) -> tuple[DirectoryReport, ...]:
        """The data directories, with the space on their volumes as it is now."""
        sizes = await self.sizes()
        directories = self.services.replicas.log_manager.directories
        return tuple([await self._directory(each, sizes) for each in directories])

    async def _directory(self, directory: LogDirectory, sizes: PartitionSizes) -> DirectoryReport:
        maintenance = self.services.replicas.log_maintenance
        total_bytes = usable_bytes = None
        failure = directory.failure
        if failure is None:
            try:
                space = await maintenance.run_in_thread(directory.volume_space)
            except OSError as error:
                failure = error
            else:
                total_bytes, usable_bytes = space.total_bytes, space.usable_bytes
        forecast = forecast_disk(maintenance.disk_usage.samples(directory), usable_bytes or 0)
        return DirectoryReport(
            path=directory.absolute_path,
            failure=None if failure is None else str(failure),
            partitions=sizes.partitions[directory.path],
            log_bytes=sizes.log_bytes[directory.path],
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
            growth=forecast.growth.value,
            sampled_seconds=forecast.sampled_seconds,
            growth_bytes_per_second=forecast.bytes_per_second,
            log_growth_bytes_per_second=forecast.log_bytes_per_second,
            full_in_seconds=None if usable_bytes is None else forecast.full_in_seconds,
        )


def retention_outlook(partitions: Sequence[Partition], *, next_check_at_ms: int | None) -> RetentionOutlook:
    """What the check at ``next_check_at_ms`` takes of ``partitions`` if nothing is written until then. Blocks."""
    if next_check_at_ms is None:
        return RetentionOutlook(
            next_check_at_ms=None, segments=0, size_bytes=0, partitions=0, then_due_at_ms=None, then_partition=None
        )
    segments = size_bytes = affected = 0
    then_due_at_ms, then_partition = None, None
    for partition in partitions:
        # One of its own, which loads what it needs and is forgotten.
        log = partition.log.reader()
        facts = log.segment_facts()
        try:
            expired = expired_segments(
                facts,
                log.config,
                now_ms=next_check_at_ms,
                high_watermark=partition.high_watermark,
                log_start_offset=log.log_start_offset,
            )
            segments += len(expired)
            size_bytes += sum(each.size_bytes for each in expired)
            affected += bool(expired)
            if len(expired) < len(facts) and log.config.cleanup_policy.delete and log.config.retention_ms >= 0:
                next_one = facts[len(expired)]
                due_at_ms = next_one.timestamp_ms() + log.config.retention_ms
                if next_one.size_bytes and (then_due_at_ms is None or due_at_ms < then_due_at_ms):
                    then_due_at_ms, then_partition = due_at_ms, str(log.topic_partition)
        except OSError:
            continue  # Its files are being removed, or cannot be read: retention will say so.
    return RetentionOutlook(
        next_check_at_ms=next_check_at_ms,
        segments=segments,
        size_bytes=size_bytes,
        partitions=affected,
        then_due_at_ms=then_due_at_ms,
        then_partition=then_partition,
    )


def cleaner_summary(statistics: LogCleanerStatistics, *, enabled: bool, threads: int) -> CleanerSummary:
    return CleanerSummary(
        enabled=enabled,
        threads=threads,
        rounds=statistics.rounds,
        bytes_read=statistics.bytes_read,
        bytes_written=statistics.bytes_written,
        records_read=statistics.records_read,
        records_kept=statistics.records_kept,
        under_way=tuple(map(str, statistics.under_way)),
        dirtiest=tuple(
            DirtyLog(str(each.topic_partition), each.dirty_ratio, each.dirty_bytes) for each in statistics.dirtiest
        ),
        uncleanable=tuple(UncleanableLog(str(each.topic_partition), each.reason) for each in statistics.uncleanable),
    )


def scrubber_summary(statistics: LogScrubberStatistics, bytes_per_second: float) -> ScrubberSummary:
    return ScrubberSummary(
        enabled=statistics.enabled,
        bytes_per_second=bytes_per_second,
        passes=statistics.passes,
        segments=statistics.segments,
        bytes_read=statistics.bytes_read,
        under_way=None if statistics.under_way is None else str(statistics.under_way),
        last_pass_ended_ms=statistics.last_pass_ended_ms,
        damaged=tuple(
            DamageFound(str(each.topic_partition), each.path.name, each.position, each.offset, each.reason)
            for each in statistics.damaged[:MAX_PROBLEMS]
        ),
    )


def sync_summary(statistics: FlusherStatistics, durability: str) -> SyncSummary:
    times = statistics.sync_times
    return SyncSummary(
        durability=durability,
        threads=statistics.threads,
        syncs=statistics.syncs,
        failures=statistics.failures,
        p50_ms=times.quantile_ms(0.5),
        p99_ms=times.quantile_ms(0.99),
        max_ms=times.max_ms,
        buckets=sync_buckets(times),
    )


def sync_buckets(times: HistogramSnapshot) -> tuple[SyncBucket, ...]:
    """``times`` in a few wide buckets; each narrow one goes where its end lies."""
    counts: Counter[float] = Counter()
    for bucket, count in times.counts.items():
        end_ms = upper_bound_ns(bucket) / 1e6
        counts[next((bound for bound in SYNC_BOUNDS_MS if end_ms <= bound), math.inf)] += count
    return (*(SyncBucket(bound, counts[bound]) for bound in SYNC_BOUNDS_MS), SyncBucket(None, counts[math.inf]))


def recovery_summary(report: LoadReport, *, was_clean: bool) -> RecoverySummary:
    recovered = [each for each in report.recovered if not each.was_clean]
    problems = [
        LogProblem(str(each.topic_partition), problem) for each in report.recovered for problem in each.problems
    ]
    unopened = [LogProblem(str(partition), str(reason)) for partition, reason in report.failures.items()]
    return RecoverySummary(
        was_clean=was_clean,
        seconds=report.progress.seconds,
        logs=len(report.recovered),
        recovered_logs=len(recovered),
        recovered_segments=sum(each.recovered_segments for each in report.recovered),
        cut_bytes=sum(each.cut_bytes for each in report.recovered),
        strays=tuple(map(str, report.strays[:MAX_PROBLEMS])),
        unopened=tuple(unopened[:MAX_PROBLEMS]),
        problems=tuple(problems[:MAX_PROBLEMS]),
        problem_count=len(problems),
    )
