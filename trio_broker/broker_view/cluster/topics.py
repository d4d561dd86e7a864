"""The topics of a cluster, for the admin app: what each broker leads, put together.

What topics and partitions there are, and who leads them, is in this broker's metadata; their sizes, offsets and rates
are asked of the leaders. What the leader of a partition does not tell is left out, and said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import attrs

from broker_admin.node_addresses import NODE_API
from broker_admin.views.cluster.topics import (
    LedPartitions,
    LedTopic,
    LedTopics,
    PartitionDetail,
    TopicConsumer,
    TopicDetail,
    TopicRatePoint,
    TopicRates,
    TopicSummary,
)
from kafka_wire.primitives import uuid_text
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.broker_view.cluster import led_topics
from trio_broker.broker_view.cluster.groups import REPORT_PAUSE_FACTOR, REPORT_SECONDS
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.broker_view.cluster.replica_details import partition_detail
from trio_broker.broker_view.cluster.topic_lags import TopicLags
from trio_broker.cluster.metadata_image import NO_LEADER, TopicImage
from trio_broker.common.topic_names import is_internal_topic
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.entries import ConfigEntry
from trio_broker.config.log_config import LogConfig
from trio_broker.config.resource_config import topic_config, topic_entries
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupTopicLag
from trio_broker.handlers.support.services import BrokerServices

LED_TOPICS: Final = f"{NODE_API}/led-topics"

NOBODY_LEADS: Final = "nobody leads it"


def led_address(topic: str, what: str) -> str:
    """The address of what a broker leads of one topic."""
    return f"{NODE_API}/led-topics/{quote(topic, safe='')}/{what}"


class LiveTopicsView:
    """The part of the admin app's view that reads topics."""

    def __init__(
        self,
        services: BrokerServices,
        peers: LivePeersView,
        lag_report: Callable[[], Awaitable[GroupLagReport]],
    ) -> None:
        self.services = services
        self.peers = peers
        self.led_topics = led_topics.TopicsLedHere(services)
        self.topic_lags = TopicLags(lag_report, services.runtime.workers)
        self._summaries = CachedReport(
            self._summarize_all, services.clock, seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR
        )
        self._summarized_offset = -1

    # ---- all of them ----

    def names(self) -> Sequence[str]:
        return tuple(self.services.metadata_cache.image.topics)

    async def summaries(self) -> Sequence[TopicSummary]:
        # A topic that was created, changed or deleted shows at once.
        if (offset := self.services.metadata_cache.image.offset) != self._summarized_offset:
            self._summarized_offset = offset
            self._summaries.expire()
        return await self._summaries.get()

    async def _summarize_all(self) -> Sequence[TopicSummary]:
        by_topic = await self.topic_lags.by_topic()
        parts: defaultdict[str, list[LedTopic]] = defaultdict(list)
        own = await self.led_topics.report()
        others = await self.peers.fetch_each(LED_TOPICS, LedTopics)
        for led in (own, *(each.topics for each in others.values.values())):
            async for part in InTurns(led):
                parts[part.name].append(part)
        topics = sorted(self.services.metadata_cache.image.topics.values(), key=lambda topic: topic.name)
        return [
            self._summary(topic, parts.get(topic.name, ()), by_topic.get(topic.name, ()))
            async for topic in InTurns(topics)
        ]

    def _summary(self, topic: TopicImage, parts: Sequence[LedTopic], groups: Sequence[GroupTopicLag]) -> TopicSummary:
        config = self._config_of(topic)
        behind = max((each for each in groups if each.lag_seconds is not None), key=lag_seconds_of, default=None)
        count = len(topic.partitions)
        return TopicSummary(
            name=topic.name,
            topic_id=uuid_text(topic.topic_id),
            internal=is_internal_topic(topic.name),
            partition_count=count,
            # A leader that has just been elected may be counted by both for a moment.
            unavailable_partition_count=max(0, count - sum(each.partition_count for each in parts)),
            under_replicated_partition_count=sum(each.is_under_replicated for each in topic.partitions.values()),
            record_count=sum(each.record_count for each in parts),
            size_bytes=sum(each.size_bytes for each in parts),
            records_in_per_second=sum(each.records_in_per_second for each in parts),
            bytes_in_per_second=sum(each.bytes_in_per_second for each in parts),
            records_out_per_second=sum(each.records_out_per_second for each in parts),
            bytes_out_per_second=sum(each.bytes_out_per_second for each in parts),
            cleanup_policy=str(config.cleanup_policy),
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            group_count=len(groups),
            most_behind_group=None if behind is None else behind.group.group.group_id,
            lag_seconds=None if behind is None else behind.lag_seconds,
            last_append_at_ms=max((each.last_append_at_ms or 0 for each in parts), default=0) or None,
        )

    def _config_of(self, topic: TopicImage) -> LogConfig:
        local = self.led_topics.local(topic)
        # Resolved already where the topic is here: to resolve ten thousand takes long.
        return topic_config(topic.configs, self.services.config, topic.name) if local is None else local.config

    async def led(self) -> Sequence[LedTopic]:
        return await self.led_topics.report()

    # ---- one of them ----

    def _image_of(self, name: str) -> TopicImage | None:
        return self.services.metadata_cache.image.topics.get(name)

    def leader(self, name: str, partition: int) -> int | None:
        topic = self._image_of(name)
        state = None if topic is None else topic.partitions.get(partition)
        return None if state is None or state.leader == NO_LEADER else state.leader

    async def get(self, name: str) -> TopicDetail | None:
        topic = self._image_of(name)
        if topic is None:
            return None
        by_topic = await self.topic_lags.by_topic()
        others = await self.peers.fetch_each(f"{LED_TOPICS}?name={quote(name, safe='')}", LedTopics, leaders_of(topic))
        parts = [await self.led_topics.of(topic), *(part for each in others.values.values() for part in each.topics)]
        return TopicDetail(
            summary=self._summary(topic, parts, by_topic.get(name, ())),
            replication_factor=len(topic.partitions[0].replicas),
            min_in_sync_replicas=self._config_of(topic).min_insync_replicas,
            configs=dict(topic.configs),
        )

    async def rates(self, name: str) -> TopicRates | None:
        topic = self._image_of(name)
        if topic is None:
            return None
        own = self.led_topics.rates(topic)
        others = await self.peers.fetch_each(led_address(name, "rates"), TopicRates, leaders_of(topic))
        return summed_rates([own, *others.values.values()])

    def led_rates(self, name: str) -> TopicRates | None:
        topic = self._image_of(name)
        return None if topic is None else self.led_topics.rates(topic)

    async def consumers(self, name: str) -> Sequence[TopicConsumer] | None:
        return None if self._image_of(name) is None else await self.topic_lags.consumers(name)

    def configs(self, name: str) -> Sequence[ConfigEntry] | None:
        topic = self._image_of(name)
        return None if topic is None else topic_entries(topic.configs, self.services.config)

    def config_defaults(self) -> Sequence[ConfigEntry]:
        return topic_entries({}, self.services.config)

    # ---- its partitions ----

    async def partitions(self, name: str, *, oldest_records: bool = False) -> Sequence[PartitionDetail] | None:
        topic = self._image_of(name)
        if topic is None:
            return None
        address = f"{led_address(name, 'partitions')}?oldest_records={str(oldest_records).lower()}"
        others = await self.peers.fetch_each(address, LedPartitions, leaders_of(topic))
        own = await self.led_topics.partitions(topic, oldest_records=oldest_records)
        answers = [own, *(each.partitions for each in others.values.values())]
        known = {detail.partition: detail for answer in answers for detail in answer}
        details = [
            known.get(index) or attrs.evolve(partition_detail(index, state), error=untold(state.leader, others.missing))
            for index, state in sorted(topic.partitions.items())
        ]
        size_bytes = sum(each.size_bytes or 0 for each in details)
        bytes_in = sum(each.bytes_in_per_second or 0.0 for each in details)
        return [with_shares(each, size_bytes, bytes_in) for each in details]

    async def led_partitions(self, name: str, *, oldest_records: bool) -> Sequence[PartitionDetail] | None:
        topic = self._image_of(name)
        return None if topic is None else await self.led_topics.partitions(topic, oldest_records=oldest_records)


def leaders_of(topic: TopicImage) -> set[int]:
    """The brokers that lead partitions of ``topic``."""
    return {each.leader for each in topic.partitions.values()} - {NO_LEADER}


def untold(leader: int, missing: Mapping[int, str]) -> str:
    """Why nothing is known of a partition but its metadata."""
    if leader == NO_LEADER:
        return NOBODY_LEADS
    reason = missing.get(leader, "it has just been elected")
    return f"its leader, broker {leader}, does not tell: {reason}"


def with_shares(detail: PartitionDetail, size_bytes: int, bytes_in_per_second: float) -> PartitionDetail:
    """``detail`` with its shares of the whole topic."""
    if detail.size_bytes is None or detail.bytes_in_per_second is None:
        return detail
    return attrs.evolve(
        detail,
        size_share=detail.size_bytes / size_bytes if size_bytes else None,
        bytes_in_share=detail.bytes_in_per_second / bytes_in_per_second if bytes_in_per_second else None,
    )


def summed_rates(parts: Sequence[TopicRates]) -> TopicRates:
    """What several brokers have carried, by intervals, which each of them ends at times of its own."""
    interval_ms = parts[0].interval_ms
    by_interval: defaultdict[int, list[TopicRatePoint]] = defaultdict(list)
    for part in parts:
        for point in part.points:
            by_interval[point.at_ms // interval_ms].append(point)
    points = [
        TopicRatePoint(
            at_ms=max(each.at_ms for each in together),
            records_in_per_second=sum(each.records_in_per_second for each in together),
            bytes_in_per_second=sum(each.bytes_in_per_second for each in together),
            records_out_per_second=sum(each.records_out_per_second for each in together),
            bytes_out_per_second=sum(each.bytes_out_per_second for each in together),
        )
        for _, together in sorted(by_interval.items())
    ]
    return TopicRates(interval_ms=interval_ms, points=tuple(points))


def lag_seconds_of(lag: GroupTopicLag) -> float:
    return lag.lag_seconds or 0.0
