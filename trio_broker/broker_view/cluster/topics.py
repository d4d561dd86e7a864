"""The topics of a running broker, for the admin app.

The list of all topics is a report, made in turns on the event loop and kept for a while; see ``groups``. One topic is
read as it is now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import attrs

from broker_admin.views.cluster.topics import (
    PartitionDetail,
    TopicConsumer,
    TopicDetail,
    TopicRatePoint,
    TopicRates,
    TopicSummary,
)
from kafka_wire.primitives import uuid_text
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.broker_view.cluster.groups import REPORT_PAUSE_FACTOR, REPORT_SECONDS
from trio_broker.broker_view.cluster.topic_lags import TopicLags
from trio_broker.cluster.metadata_image import TopicImage
from trio_broker.common.topic_names import is_internal_topic
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.entries import ConfigEntry
from trio_broker.config.resource_config import topic_entries
from trio_broker.coordinator.reporting.lag import UnconsumedRecord, batch_timestamps
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupTopicLag
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.broker_topic_stats import SNAPSHOT_SECONDS, TrafficRates
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition


class LiveTopicsView:
    """The part of the admin app's view that reads topics."""

    def __init__(self, services: BrokerServices, lag_report: Callable[[], Awaitable[GroupLagReport]]) -> None:
        self.services = services
        self.topic_lags = TopicLags(lag_report, services.runtime.workers)
        self._summaries = CachedReport(
            self._summarize_all, services.clock, seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR
        )
        self._summarized_offset = -1
        # When the files of partitions were last written that nothing was appended to since the broker's start; None
        # where they are empty.
        self._written_before: WeakKeyDictionary[Partition, int | None] = WeakKeyDictionary()

    # ---- all of them ----

    def names(self) -> Sequence[str]:
        return tuple(self.services.metadata_cache.image.topics)

    def _local(self, topic: TopicImage) -> LocalTopic | None:
        local = self.services.replicas.topics.get(topic.name)
        return local if local is not None and local.topic_id == topic.topic_id else None

    async def summaries(self) -> Sequence[TopicSummary]:
        # A topic that was created, changed or deleted shows at once.
        if (offset := self.services.metadata_cache.image.offset) != self._summarized_offset:
            self._summarized_offset = offset
            self._summaries.expire()
        return await self._summaries.get()

    async def _summarize_all(self) -> Sequence[TopicSummary]:
        by_topic = await self.topic_lags.by_topic()
        await self._learn_last_writes(self.services.replicas.partitions())
        image = self.services.metadata_cache.image
        topics = sorted(image.topics.values(), key=lambda topic: topic.name)
        return [self._summary(topic, by_topic.get(topic.name, ())) async for topic in InTurns(topics)]

    def _summary(self, topic: TopicImage, groups: Sequence[GroupTopicLag]) -> TopicSummary:
        local = self._local(topic)
        partitions = partitions_of(local)
        config = self.services.config.log if local is None else local.config
        rates = self.services.replicas.topic_stats.rates(partitions)
        behind = max((each for each in groups if each.lag_seconds is not None), key=lag_seconds_of, default=None)
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
        return TopicSummary(
            name=topic.name,
            topic_id=uuid_text(topic.topic_id),
            internal=is_internal_topic(topic.name),
            partition_count=len(topic.partitions),
            unavailable_partition_count=len(topic.partitions) - available,
            record_count=records,
            size_bytes=size_bytes,
            records_in_per_second=rates.records_in,
            bytes_in_per_second=rates.bytes_in,
            records_out_per_second=rates.records_out,
            bytes_out_per_second=rates.bytes_out,
            cleanup_policy=str(config.cleanup_policy),
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            group_count=len(groups),
            most_behind_group=None if behind is None else behind.group.group.group_id,
            lag_seconds=None if behind is None else behind.lag_seconds,
            last_append_at_ms=last_append_ms or None,
        )

    # ---- one of them ----

    async def get(self, name: str) -> TopicDetail | None:
        by_topic = await self.topic_lags.by_topic()
        local = self.services.replicas.topics.get(name)
        await self._learn_last_writes(partitions_of(local))
        topic = self._image_of(name)
        if topic is None:
            return None
        local = self._local(topic)
        config = self.services.config.log if local is None else local.config
        return TopicDetail(
            summary=self._summary(topic, by_topic.get(name, ())),
            replication_factor=len(topic.partitions[0].replicas),
            min_in_sync_replicas=config.min_insync_replicas,
            configs=dict(topic.configs),
        )

    def _image_of(self, name: str) -> TopicImage | None:
        return self.services.metadata_cache.image.topics.get(name)

    def rates(self, name: str) -> TopicRates | None:
        topic = self._image_of(name)
        if topic is None:
            return None
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

    async def consumers(self, name: str) -> Sequence[TopicConsumer] | None:
        return None if self._image_of(name) is None else await self.topic_lags.consumers(name)

    def configs(self, name: str) -> Sequence[ConfigEntry] | None:
        topic = self._image_of(name)
        return None if topic is None else topic_entries(topic.configs, self.services.config)

    def config_defaults(self) -> Sequence[ConfigEntry]:
        return topic_entries({}, self.services.config)

    # ---- its partitions ----

    async def partitions(self, name: str) -> Sequence[PartitionDetail] | None:
        topic = self._image_of(name)
        if topic is None:
            return None
        local = self._local(topic)
        partitions = partitions_of(local)
        await self._learn_last_writes(partitions)
        rates = {each: self.services.replicas.topic_stats.rates([each]) async for each in InTurns(partitions)}
        totals = TopicTotals(
            sum(each.log.size_bytes for each in partitions), sum(each.bytes_in for each in rates.values())
        )
        details = []
        async for index in InTurns(sorted(topic.partitions)):
            detail = self._partition_detail(topic, local, index)
            partition = local_partition(local, index)
            if partition in rates and not detail.error:
                detail = self._with_log(detail, partition, rates[partition], totals)
            details.append(detail)
        return details

    async def oldest_records(self, name: str, partitions: Collection[int]) -> Mapping[int, int]:
        topic = self._image_of(name)
        local = None if topic is None else self._local(topic)
        found = [local_partition(local, index) for index in partitions]
        heads = [
            UnconsumedRecord(each, each.log_start_offset)
            for each in found
            if each is not None and each.failure is None and each.log_start_offset < each.high_watermark
        ]
        times = await self.services.replicas.run_in_io_thread(partial(batch_timestamps, heads))
        return {
            head.partition.topic_partition.partition: at_ms
            for head, at_ms in zip(heads, times, strict=True)
            if at_ms is not None
        }

    def _partition_detail(self, topic: TopicImage, local: LocalTopic | None, index: int) -> PartitionDetail:
        image = topic.partitions[index]
        return PartitionDetail(
            partition=index,
            leader=image.leader,
            leader_epoch=image.leader_epoch,
            replicas=image.replicas,
            in_sync_replicas=image.isr,
            error=error_of(local, index),
        )

    def _with_log(
        self, detail: PartitionDetail, partition: Partition, rates: TrafficRates, totals: TopicTotals
    ) -> PartitionDetail:
        size_bytes = partition.log.size_bytes
        return attrs.evolve(
            detail,
            log_start_offset=partition.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end_offset,
            size_bytes=size_bytes,
            segment_count=len(partition.log.segments),
            last_append_at_ms=self._last_append_ms(partition),
            records_in_per_second=rates.records_in,
            bytes_in_per_second=rates.bytes_in,
            records_out_per_second=rates.records_out,
            bytes_out_per_second=rates.bytes_out,
            size_share=size_bytes / totals.size_bytes if totals.size_bytes else None,
            bytes_in_share=rates.bytes_in / totals.bytes_in_per_second if totals.bytes_in_per_second else None,
        )

    # ---- last writes ----

    def _last_append_ms(self, partition: Partition) -> int | None:
        return partition.last_append_ms or self._written_before.get(partition)

    async def _learn_last_writes(self, partitions: Iterable[Partition]) -> None:
        """Ask the file system about the partitions that nothing was appended to since the start; once for each."""
        unknown = [each for each in partitions if not each.last_append_ms and each not in self._written_before]
        if unknown:
            times = await self.services.replicas.run_in_io_thread(partial(write_times_ms, unknown))
            self._written_before.update(zip(unknown, times, strict=True))


@attrs.frozen
class TopicTotals:
    """What the shares of partitions are shares of."""

    size_bytes: int
    bytes_in_per_second: float


def lag_seconds_of(lag: GroupTopicLag) -> float:
    return lag.lag_seconds or 0.0


def partitions_of(local: LocalTopic | None) -> list[Partition]:
    """The partitions that are here, in order."""
    return [] if local is None else [partition for _, partition in sorted(local.partitions.items())]


def local_partition(local: LocalTopic | None, index: int) -> Partition | None:
    return None if local is None else local.partitions.get(index)


def error_of(local: LocalTopic | None, index: int) -> str | None:
    """Why a partition cannot be read, if it cannot."""
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
