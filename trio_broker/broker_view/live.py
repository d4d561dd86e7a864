"""LiveBrokerView: a running broker, as the admin app sees it, answered from the broker's own statistics.

The one place that knows all areas. Each area takes what it needs and can stand alone; what needs several of them is
here. An area keeps only what the admin app needs and the broker does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trio_broker.broker_view.changes import LiveChangesView
from trio_broker.broker_view.clients import LiveClientsView
from trio_broker.broker_view.config import LiveConfigView
from trio_broker.broker_view.doctor import LiveDoctorView
from trio_broker.broker_view.events import LiveEventsView
from trio_broker.broker_view.group_changes import LiveGroupChangesView
from trio_broker.broker_view.groups import LiveGroupsView
from trio_broker.broker_view.latency import LiveLatencyView
from trio_broker.broker_view.loggers import LiveLoggersView
from trio_broker.broker_view.messages import LiveMessagesView
from trio_broker.broker_view.node import LiveNodeView
from trio_broker.broker_view.partition_readings import partition_readings
from trio_broker.broker_view.readings import LiveReadingsView
from trio_broker.broker_view.segments import LiveSegmentsView
from trio_broker.broker_view.storage import LiveStorageView
from trio_broker.broker_view.tasks import LiveTasksView
from trio_broker.broker_view.topic_changes import LiveTopicChangesView
from trio_broker.broker_view.topic_segments import LiveTopicSegmentsView
from trio_broker.broker_view.topics import LiveTopicsView
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import HistorySample
from trio_broker.metrics.latency import api_name
from trio_broker.network.socket_server import SocketServer
from trio_broker.yield_budget import InTurns


class LiveBrokerView(
    LiveNodeView,
    LiveConfigView,
    LiveLoggersView,
    LiveTopicsView,
    LiveMessagesView,
    LiveTopicSegmentsView,
    LiveTopicChangesView,
    LiveGroupsView,
    LiveGroupChangesView,
    LiveReadingsView,
    LiveChangesView,
    LiveLatencyView,
    LiveSegmentsView,
    LiveClientsView,
    LiveDoctorView,
    LiveStorageView,
    LiveTasksView,
    LiveEventsView,
):
    """One broker for the admin app.

    Each area is initialized by name with what it needs. Attributes of all areas share one namespace;
    ``tests/broker_view`` holds that no two areas use one name for two things.
    """

    def __init__(
        self,
        services: BrokerServices,
        server: SocketServer,
        is_stopping: Callable[[], bool],
    ) -> None:
        LiveEventsView.__init__(self)
        LiveNodeView.__init__(self, services, is_stopping)
        LiveConfigView.__init__(self, services, self.publish)
        LiveLoggersView.__init__(self, services)
        LiveMessagesView.__init__(self, services)
        LiveTopicsView.__init__(self, services, partial(self.lag_report, with_partitions=True))
        LiveTopicSegmentsView.__init__(self, services)
        LiveTopicChangesView.__init__(self, services, self.topic_consumers)
        LiveGroupsView.__init__(self, services.groups, services.clock.now_ms)
        LiveGroupChangesView.__init__(self, services)
        LiveReadingsView.__init__(self, services, server)
        LiveChangesView.__init__(self, services, self.samples)
        LiveLatencyView.__init__(self, services, server.channel.metrics, self.samples)
        LiveSegmentsView.__init__(self, services.replicas, services.node.cluster_id, services.node.node_id)
        LiveClientsView.__init__(self, services, server)
        LiveDoctorView.__init__(self, services, server)
        LiveStorageView.__init__(self, services)
        LiveTasksView.__init__(self, server, services.clock)
        self.samples.subscribe(self._sampled)

    def _sampled(self, sample: HistorySample) -> None:
        self.publish(sample)
        if (rebalanced := self.pop_rebalanced()) is not None:
            self.publish(rebalanced)

    async def prometheus_renderer(self) -> Callable[[], bytes]:
        # Imported here: prometheus_client is for those who are scraped.
        from trio_broker.metrics.prometheus import render
        from trio_broker.metrics.snapshot import MetricsSnapshot

        config = self.services.config.node
        names, per_partition = config.metrics_names, config.metrics_per_partition
        report = await self.new_lag_report() if per_partition or "kafka-exporter" in names else None
        partitions = await partition_readings(self.services) if per_partition or names else ()
        recent_requests = {
            api_name(api_key): metrics.last_minute()
            async for api_key, metrics in InTurns(list(self.request_metrics.by_api.items()))
            if "jmx-exporter" in names
        }
        node, replicas = self.node(), self.services.replicas
        snapshot = MetricsSnapshot(
            version=node.version,
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            durability=node.durability,
            address=next((f"{each.host}:{each.port}" for each in node.listeners), ""),
            uptime_seconds=node.uptime_seconds,
            log_size_bytes=sum(partition.log.size_bytes for partition in replicas.partitions()),
            server=self.server.statistics(),
            requests=self.request_times(),
            replicas=replicas.statistics(),
            cleaner=replicas.log_maintenance.log_cleaner.statistics(),
            groups=self.services.groups.statistics(),
            names=names,
            per_partition=per_partition,
            recent_requests=recent_requests,
            partitions=partitions,
            groups_with_lag=() if report is None else report.groups,
            lags=() if report is None else report.partitions,
        )
        return partial(render, snapshot)
