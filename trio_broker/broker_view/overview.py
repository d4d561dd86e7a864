"""A few of everything of a running broker, for the overview of the admin app.

Only what is in memory, and what others have counted: the readings of lag that are taken every few seconds anyway, and
sizes that the page of disks shares. So an open overview costs the event loop some milliseconds a second, however many
topics and groups there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_admin.views.overview import LaggingGroup, OverviewReadings
from broker_admin.views.storage import TopicSize
from kafka_wire.apis import ApiKey
from kafka_wire.errors import KafkaError
from trio_broker.broker_view.storage import LiveStorageView
from trio_broker.broker_view.transactions import LiveTransactionsView
from trio_broker.coordinator.reporting.snapshot import GroupLagReading, LagTrend
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.latency import latency_summary
from trio_broker.network.request_metrics import RequestChannelMetrics

LISTED = 5
"""Lines of each list: what can be taken in at a glance. The pages of the lists have the others."""

BEHIND_SECONDS = 10.0
"""A lag below is of records whose processing is not committed yet: clients commit every five seconds by default."""


class LiveOverviewView:
    """The part of the admin app's view that is about everything at once."""

    def __init__(
        self,
        services: BrokerServices,
        metrics: RequestChannelMetrics,
        storage: LiveStorageView,
        transactions: LiveTransactionsView,
    ) -> None:
        self.services = services
        self.transactions = transactions
        self.metrics = metrics
        self.storage = storage

    async def readings(self) -> OverviewReadings:
        sizes = await self.storage.sizes()
        directories = await self.storage.directories()
        statistics = await self.transactions.statistics()
        lags = sorted(self.services.groups.latest_lags(), key=by_growth)
        cleaner = self.services.replicas.log_maintenance.log_cleaner
        return OverviewReadings(
            read_at_ms=self.services.clock.now_ms(),
            has_records=sizes.has_records,
            topics=sizes.topics,
            partitions=sizes.partitions.total(),
            unreadable_partitions=sizes.failed,
            uncleanable_partitions=len(cleaner.statistics().uncleanable),
            damaged_segments=len(self.services.replicas.log_maintenance.log_scrubber.statistics().damaged),
            groups=sum(self.services.groups.statistics().groups.values()),
            groups_falling_behind=sum(map(falls_behind, lags)),
            produce_p99_ms=self._p99_ms(ApiKey.PRODUCE),
            fetch_p99_ms=self._p99_ms(ApiKey.FETCH),
            directories=directories,
            lagging_groups=self._groups(lags),
            largest_topics=first_topics(sizes.largest_topics, lambda topic: topic.size_bytes),
            busiest_topics=first_topics(sizes.busiest_topics, bytes_per_second),
            errors=tuple(self.metrics.recent_errors.latest_first()),
            overdue_transactions=statistics.overdue,
            hanging_transactions=statistics.hanging_transactions,
        )

    def _p99_ms(self, api_key: ApiKey) -> float | None:
        # Not by index, which would add the API.
        requests = self.metrics.by_api.get(api_key)
        if requests is None or not (times := requests.last_minute()).count:
            return None
        return latency_summary(times.active).p99_ms

    def _groups(self, lags: Iterable[GroupLagReading]) -> tuple[LaggingGroup, ...]:
        """The first of ``lags`` whose groups are still there."""
        groups: list[LaggingGroup] = []
        for lag in lags:
            if len(groups) == LISTED:
                break
            try:
                machine = self.services.groups.machine(lag.group_id, allow_empty=True)
                group = machine.snapshot(lag.group_id, with_members=False)
            except KafkaError:
                continue  # Deleted since the reading.
            groups.append(
                LaggingGroup(
                    group_id=lag.group_id,
                    state=group.state,
                    member_count=group.member_count,
                    lag_records=lag.lag_records,
                    lag_seconds=lag.lag_seconds,
                    rates=lag.rates,
                    falls_behind=falls_behind(lag),
                )
            )
        return tuple(groups)


def falls_behind(lag: GroupLagReading) -> bool:
    """Whether a group's lag grows, and is older than what single commits explain; how old may not be known."""
    grows = lag.rates is not None and lag.rates.trend is LagTrend.GROWING
    return grows and bool(lag.lag_records) and (lag.lag_seconds is None or lag.lag_seconds >= BEHIND_SECONDS)


def by_growth(lag: GroupLagReading) -> tuple[float, int]:
    """The sort key that puts first what falls behind fastest, then the largest lag."""
    growth = lag.rates.lag_change_per_second if lag.rates is not None and falls_behind(lag) else 0.0
    return (-growth, -(lag.lag_records or 0))


def bytes_per_second(topic: TopicSize) -> float:
    return topic.bytes_in_per_second + topic.bytes_out_per_second


def first_topics(topics: Iterable[TopicSize], measure: Callable[[TopicSize], float]) -> tuple[TopicSize, ...]:
    """The first of ``topics`` that clients made and that have anything of what is measured."""
    return tuple(topic for topic in topics if not topic.internal and measure(topic) > 0)[:LISTED]
