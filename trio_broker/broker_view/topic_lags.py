"""The lag of groups by topic, and whether it grows.

Made of the report on all groups, in a worker thread. The records of earlier reports are kept for some minutes, so that
a page that stays open shows a trend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from broker_admin.views.topics import TopicConsumer
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupTopicLag

TREND_SECONDS = 60.0
"""The time over which a change of lag is reported, once readings reach so far back."""

MIN_TREND_SECONDS = 2.0
"""Readings closer together say more of the moments of commits than of a trend."""

MAX_READINGS = 31
"""Earlier readings kept: a report every two seconds for a minute."""


@attrs.frozen
class LagReading:
    """The lags in records of an earlier report, by topic and group."""

    taken_at: float
    lag_records: Mapping[tuple[str, str], int]


@attrs.define
class TopicLags:
    """The lags by topic of the newest report that ``lag_report`` gave."""

    lag_report: Callable[[], Awaitable[GroupLagReport]]
    _of_report: GroupLagReport | None = None
    _by_topic: Mapping[str, Sequence[GroupTopicLag]] = attrs.field(factory=dict)
    _readings: deque[LagReading] = attrs.field(factory=lambda: deque(maxlen=MAX_READINGS))

    async def by_topic(self) -> Mapping[str, Sequence[GroupTopicLag]]:
        """The groups of each topic, by id, from a report that may be some seconds old."""
        report = await self.lag_report()
        if report is not self._of_report:
            by_topic = await trio.to_thread.run_sync(lags_by_topic, report)
            self._of_report, self._by_topic = report, by_topic
            self._note(by_topic)
        return self._by_topic

    def _note(self, by_topic: Mapping[str, Sequence[GroupTopicLag]]) -> None:
        known = {
            (topic, each.group.group.group_id): each.lag_records
            for topic, groups in by_topic.items()
            for each in groups
            if each.lag_records is not None
        }
        self._readings.append(LagReading(trio.current_time(), known))

    async def consumers(self, topic: str) -> list[TopicConsumer]:
        """The groups of one topic."""
        groups = (await self.by_topic()).get(topic, ())
        return [self._consumer(topic, each) for each in groups]

    def _consumer(self, topic: str, lag: GroupTopicLag) -> TopicConsumer:
        group = lag.group.group
        newest = self._readings[-1]
        key = topic, group.group_id
        # The oldest that is no older than wanted, of those in which the group had a lag.
        earlier = next(
            (
                reading
                for reading in self._readings
                if MIN_TREND_SECONDS <= newest.taken_at - reading.taken_at <= TREND_SECONDS
                and key in reading.lag_records
            ),
            None,
        )
        change = seconds = None
        if earlier is not None and lag.lag_records is not None:
            seconds = newest.taken_at - earlier.taken_at
            change = (lag.lag_records - earlier.lag_records[key]) / seconds
        return TopicConsumer(
            group_id=group.group_id,
            type=group.type.value,
            state=group.state,
            member_count=group.member_count,
            partition_count=lag.partition_count,
            partitions_without_lag=lag.partitions_without_lag,
            lag_records=lag.lag_records,
            lag_seconds=lag.lag_seconds,
            lag_change_per_second=change,
            trend_seconds=seconds,
        )


def lags_by_topic(report: GroupLagReport) -> dict[str, list[GroupTopicLag]]:
    """The groups of each topic, by id."""
    by_topic: dict[str, list[GroupTopicLag]] = {}
    for each in report.topics:
        by_topic.setdefault(each.topic, []).append(each)
    return by_topic
