"""A few of everything of a running broker, for the overview of the admin app.

Only what is in memory, and what others have counted: the readings of lag that are taken every few seconds anyway, and
sizes that the page of disks shares. So an open overview costs the event loop some milliseconds a second, however many
topics and groups there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_admin.group_diagnosis import KEEPS_UP_SECONDS
from broker_admin.views.node.overview import LISTED, LaggingGroup, OverviewReadings, RestlessGroup
from broker_admin.views.node.storage import TopicSize
from kafka_wire.apis import ApiKey
from kafka_wire.errors import KafkaError
from trio_broker.broker_view.cluster.groups import LiveGroupsView
from trio_broker.broker_view.cluster.replication import LiveReplicationView
from trio_broker.broker_view.cluster.transactions import LiveTransactionsView
from trio_broker.broker_view.node.storage import LiveStorageView
from trio_broker.coordinator.reporting.snapshot import GroupLagReading, LagTrend
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.latency import latency_summary
from trio_broker.network.request_metrics import RequestChannelMetrics


class LiveOverviewView:
    """The part of the admin app's view that is about everything at once."""

    def __init__(
        self,
        services: BrokerServices,
        metrics: RequestChannelMetrics,
        storage: LiveStorageView,
        transactions: LiveTransactionsView,
        groups: LiveGroupsView,
        replication: LiveReplicationView,
    ) -> None:
        self.services = services
        self.replication = replication
        self.groups = groups
        self.transactions = transactions
        self.metrics = metrics
        self.storage = storage

    async def readings(self) -> OverviewReadings:
        sizes = await self.storage.sizes()
        directories = await self.storage.directories()
        statistics = await self.transactions.statistics()
        groups = self._groups(self.services.groups.latest_lags())
        present = sorted((each for each in groups if not each.is_abandoned), key=by_growth)
        abandoned = sorted((each for each in groups if each.is_abandoned), key=by_growth)
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
            groups_falling_behind=tuple(each.group_id for each in present if each.falls_behind),
            produce_p99_ms=self._p99_ms(ApiKey.PRODUCE),
            fetch_p99_ms=self._p99_ms(ApiKey.FETCH),
            directories=directories,
            lagging_groups=tuple(present[:LISTED]),
            groups_abandoned=len(abandoned),
            abandoned_groups=tuple(abandoned[:LISTED]),
            restless_groups=self._restless_groups(),
            largest_topics=first_topics(sizes.largest_topics, lambda topic: topic.size_bytes),
            busiest_topics=first_topics(sizes.busiest_topics, bytes_per_second),
            errors=tuple(self.metrics.recent_errors.latest_first()),
            overdue_transactions=statistics.overdue,
            hanging_transactions=statistics.hanging_transactions,
            cluster=await self.replication.report(),
        )

    def _p99_ms(self, api_key: ApiKey) -> float | None:
        # Not by index, which would add the API.
        requests = self.metrics.by_api.get(api_key)
        if requests is None or not (times := requests.last_minute()).count:
            return None
        # A Produce waits for other replicas, a Fetch for records that nobody has written.
        return latency_summary(times.total if api_key is ApiKey.PRODUCE else times.active).p99_ms

    def _groups(self, lags: Iterable[GroupLagReading]) -> list[LaggingGroup]:
        """Those of ``lags`` whose groups are still there."""
        groups: list[LaggingGroup] = []
        for lag in lags:
            try:
                machine = self.services.groups.machine(lag.group_id, allow_empty=True)
                group = machine.snapshot(lag.group_id, with_members=False)
            except KafkaError:
                continue  # Deleted since the reading.
            abandoned = is_abandoned(lag, group.member_count)
            groups.append(
                LaggingGroup(
                    group_id=lag.group_id,
                    state=group.state,
                    member_count=group.member_count,
                    lag_records=lag.lag_records,
                    lag_seconds=lag.lag_seconds,
                    rates=lag.rates,
                    falls_behind=falls_behind(lag) and not abandoned,
                    is_abandoned=abandoned,
                )
            )
        return groups

    def _restless_groups(self) -> tuple[RestlessGroup, ...]:
        found = ((group_id, self.groups.timeline(group_id)) for group_id in self.groups.restless_groups())
        return tuple(RestlessGroup(group_id, rebalances) for group_id, rebalances in found if rebalances)


def is_abandoned(lag: GroupLagReading, member_count: int) -> bool:
    """Whether nobody reads for a group, though records wait. Consumers that choose their partitions themselves are no
    members, and commit nevertheless.
    """
    commits = lag.rates is not None and lag.rates.consumed_per_second > 0
    return not member_count and bool(lag.lag_records) and not commits


def falls_behind(lag: GroupLagReading) -> bool:
    """Whether a group's lag grows, and is older than what single commits explain; how old may not be known."""
    grows = lag.rates is not None and lag.rates.trend is LagTrend.GROWING
    return grows and bool(lag.lag_records) and (lag.lag_seconds is None or lag.lag_seconds > KEEPS_UP_SECONDS)


def by_growth(group: LaggingGroup) -> tuple[float, int]:
    """The sort key that puts first what falls behind fastest, then the largest lag."""
    growth = group.rates.lag_change_per_second if group.rates is not None and group.falls_behind else 0.0
    return (-growth, -(group.lag_records or 0))


def bytes_per_second(topic: TopicSize) -> float:
    return topic.bytes_in_per_second + topic.bytes_out_per_second


def first_topics(topics: Iterable[TopicSize], measure: Callable[[TopicSize], float]) -> tuple[TopicSize, ...]:
    """The first of ``topics`` that clients made and that have anything of what is measured."""
    return tuple(topic for topic in topics if not topic.internal and measure(topic) > 0)[:LISTED]
