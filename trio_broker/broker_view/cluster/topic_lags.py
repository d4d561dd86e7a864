"""The lag of groups by topic, made of the report on all groups, in a worker thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import attrs

from broker_admin.views.cluster.topics import TopicConsumer
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupTopicLag
from trio_broker.runtime.workers import Workers


@attrs.define
class TopicLags:
    """The lags by topic of the newest report that ``lag_report`` gave."""

    lag_report: Callable[[], Awaitable[GroupLagReport]]
    workers: Workers
    _of_report: GroupLagReport | None = None
    _by_topic: Mapping[str, Sequence[GroupTopicLag]] = attrs.field(factory=dict)

    async def by_topic(self) -> Mapping[str, Sequence[GroupTopicLag]]:
        """The groups of each topic, by id, from a report that may be some seconds old."""
        report = await self.lag_report()
        if report is not self._of_report:
            by_topic = await self.workers.run(partial(lags_by_topic, report))
            self._of_report, self._by_topic = report, by_topic
        return self._by_topic

    async def consumers(self, topic: str) -> list[TopicConsumer]:
        """The groups of one topic."""
        groups = (await self.by_topic()).get(topic, ())
        return [topic_consumer(each) for each in groups]


def topic_consumer(lag: GroupTopicLag) -> TopicConsumer:
    group = lag.group.group
    return TopicConsumer(
        group_id=group.group_id,
        type=group.type.value,
        state=group.state,
        member_count=group.member_count,
        partition_count=lag.partition_count,
        partitions_without_lag=lag.partitions_without_lag,
        lag_records=lag.lag_records,
        lag_seconds=lag.lag_seconds,
        rates=lag.group.rates,
    )


def lags_by_topic(report: GroupLagReport) -> dict[str, list[GroupTopicLag]]:
    """The groups of each topic, by id."""
    by_topic: dict[str, list[GroupTopicLag]] = {}
    for each in report.topics:
        by_topic.setdefault(each.topic, []).append(each)
    return by_topic
