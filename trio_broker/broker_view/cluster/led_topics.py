"""What a running broker leads, by topic, for the admin app: the part of each topic that it alone knows.

The list of all topics is a report, made in turns on the event loop and kept for a while; see ``groups``. One topic is
read as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import attrs

from broker_admin.views.cluster.topics import LedTopic, PartitionDetail, TopicRatePoint, TopicRates
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.broker_view.cluster.groups import REPORT_PAUSE_FACTOR, REPORT_SECONDS
from trio_broker.broker_view.cluster.replica_details import partition_detail, replica_details
from trio_broker.cluster.metadata_image import TopicImage
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.coordinator.reporting.lag import UnconsumedRecord, batch_timestamps
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.broker_topic_stats import SNAPSHOT_SECONDS
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition


class TopicsLedHere:
    """The topics of which this broker leads partitions."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self._report = CachedReport(self._all, services.clock, seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR)
        self._reported_offset = -1
        # When the files of partitions were last written that nothing was appended to since the broker's start; None
        # where they are empty.
        self._written_before: WeakKeyDictionary[Partition, int | None] = WeakKeyDictionary()

    # ---- all of them ----

    async def report(self) -> Sequence[LedTopic]:
        """All of them, from a report that may be some seconds old."""
        # A topic that was created, changed or deleted shows at once.
        if (offset := self.services.metadata_cache.image.offset) != self._reported_offset:
            self._reported_offset = offset
            self._report.expire()
        return await self._report.get()

    async def _all(self) -> Sequence[LedTopic]:
        topics = self.services.metadata_cache.image.topics.values()
        await self._learn_last_writes(self.services.replicas.partitions())
        return [each async for topic in InTurns(topics) if (each := self._led(topic)).partition_count]

    async def of(self, topic: TopicImage) -> LedTopic:
        """What is led of one topic."""
        await self._learn_last_writes(self._led_of(topic))
        return self._led(topic)

    def _led(self, topic: TopicImage) -> LedTopic:
        partitions = self._led_of(topic)
        rates = self.services.replicas.topic_stats.rates(partitions)
        available = records = size_bytes = last_append_ms = 0
        # One walk: of ten thousand partitions each further one takes milliseconds of the event loop.
        for each in partitions:
            log = each.log
            available += each.failure is None
            records += each.high_watermark - log.log_start_offset
            size_bytes += log.size_bytes
            appended_ms = self._last_append_ms(each)
            if appended_ms is not None and appended_ms > last_append_ms:
                last_append_ms = appended_ms
        return LedTopic(
            name=topic.name,
            partition_count=available,
            record_count=records,
            size_bytes=size_bytes,
            records_in_per_second=rates.records_in,
            bytes_in_per_second=rates.bytes_in,
            records_out_per_second=rates.records_out,
            bytes_out_per_second=rates.bytes_out,
            last_append_at_ms=last_append_ms or None,
        )

    def local(self, topic: TopicImage) -> LocalTopic | None:
        """What is here of a topic."""
        local = self.services.replicas.topics.get(topic.name)
        return local if local is not None and local.topic_id == topic.topic_id else None

    def _led_of(self, topic: TopicImage) -> list[Partition]:
        """The partitions that are led here, in order."""
        local = self.local(topic)
        if local is None:
            return []
        return [each for _, each in sorted(local.partitions.items()) if each.state.is_leader]

    # ---- one of them ----

    def rates(self, topic: TopicImage) -> TopicRates:
        """What was carried of a topic in the last hour."""
        points = self.services.replicas.topic_stats.history(topic.topic_id)
        return TopicRates(
            interval_ms=round(SNAPSHOT_SECONDS * 1000),
            points=tuple(
                TopicRatePoint(
                    at_ms=point.at_ms,
                    records_in_per_second=point.rates.records_in,
                    bytes_in_per_second=point.rates.bytes_in,
                    records_out_per_second=point.rates.records_out,
                    bytes_out_per_second=point.rates.bytes_out,
                )
                for point in points
            ),
        )

    async def partitions(self, topic: TopicImage, *, oldest_records: bool) -> Sequence[PartitionDetail]:
        """Those that this broker leads, and those whose log could not be opened here."""
        image, own_id = self.services.metadata_cache.image, self.services.node.node_id
        local, replicas, led = self.local(topic), self.services.replicas, self._led_of(topic)
        await self._learn_last_writes(led)
        oldest = await self._oldest_records(led) if oldest_records else {}
        now, details = self.services.clock.monotonic(), []
        async for index, state in InTurns(sorted(topic.partitions.items())):
            if state.leader != own_id:
                continue
            detail = partition_detail(index, state)
            partition = None if local is None else local.partitions.get(index)
            if error := error_of(local, index):
                detail = attrs.evolve(detail, error=error)
            elif partition is not None:
                rates = replicas.topic_stats.rates([partition])
                detail = attrs.evolve(
                    detail,
                    min_in_sync_replicas=partition.state.min_in_sync_replicas,
                    replica_details=replica_details(image, state, partition, now),
                    log_start_offset=partition.log_start_offset,
                    last_stable_offset=partition.last_stable_offset,
                    high_watermark=partition.high_watermark,
                    log_end_offset=partition.log_end_offset,
                    size_bytes=partition.log.size_bytes,
                    segment_count=len(partition.log.segments),
                    oldest_record_at_ms=oldest.get(index),
                    last_append_at_ms=self._last_append_ms(partition),
                    records_in_per_second=rates.records_in,
                    bytes_in_per_second=rates.bytes_in,
                    records_out_per_second=rates.records_out,
                    bytes_out_per_second=rates.bytes_out,
                )
            details.append(detail)
        return details

    async def _oldest_records(self, partitions: Sequence[Partition]) -> dict[int, int]:
        """The timestamp (ms) of the first batch of each partition that has one. Reads the head of logs."""
        heads = [
            UnconsumedRecord(each, each.log_start_offset)
            for each in partitions
            if each.failure is None and each.log_start_offset < each.high_watermark
        ]
        times = await self.services.replicas.run_in_io_thread(partial(batch_timestamps, heads))
        return {
            head.partition.topic_partition.partition: at_ms
            for head, at_ms in zip(heads, times, strict=True)
            if at_ms is not None
        }

    # ---- last writes ----

    def _last_append_ms(self, partition: Partition) -> int | None:
        return partition.last_append_ms or self._written_before.get(partition)

    async def _learn_last_writes(self, partitions: Iterable[Partition]) -> None:
        """Ask the file system about the partitions that nothing was appended to since the start; once for each."""
        unknown = [each for each in partitions if not each.last_append_ms and each not in self._written_before]
        if unknown:
            times = await self.services.replicas.run_in_io_thread(partial(write_times_ms, unknown))
            self._written_before.update(zip(unknown, times, strict=True))


def error_of(local: LocalTopic | None, index: int) -> str | None:
    """Why a partition that is led here cannot be read, if it cannot."""
    if local is None:
        return "its topic is not here yet"
    partition = local.partitions.get(index)
    if partition is None:
        return str(local.missing(index))
    return None if partition.failure is None else str(partition.failure)


def write_times_ms(partitions: Sequence[Partition]) -> list[int | None]:
    """When each log was last written, by the file of its last batch. Blocks: runs in a worker thread."""
    return [write_time_ms(partition) for partition in partitions]


def write_time_ms(partition: Partition) -> int | None:
    for segment in reversed(partition.log.segments):
        if segment.size:
            try:
                return segment.disk.status(segment.file.path).modified_ns // 1_000_000
            except OSError:
                # Deleted meanwhile, or a bad disk, which is for those requests to report that need the records.
                return None
    return None
