"""LiveBrokerView: a running broker, as the admin app sees it, answered from the broker's own statistics.

The one place that knows all areas. Each area takes what it needs and can stand alone. An area keeps only what the admin
app needs and the broker does not.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.view import BrokerView
from trio_broker.broker_view.alerts import LiveAlertsView
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
from trio_broker.broker_view.metrics import LiveMetricsView
from trio_broker.broker_view.node import LiveNodeView
from trio_broker.broker_view.overview import LiveOverviewView
from trio_broker.broker_view.readings import LiveReadingsView
from trio_broker.broker_view.segments import LiveSegmentsView
from trio_broker.broker_view.storage import LiveStorageView
from trio_broker.broker_view.tasks import LiveTasksView
from trio_broker.broker_view.topic_changes import LiveTopicChangesView
from trio_broker.broker_view.topic_segments import LiveTopicSegmentsView
from trio_broker.broker_view.topics import LiveTopicsView
from trio_broker.broker_view.transactions import LiveTransactionsView
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import HistorySample
from trio_broker.network.socket_server import SocketServer


class LiveBrokerView(BrokerView):
    """One broker for the admin app."""

    alerts: LiveAlertsView
    groups: LiveGroupsView
    readings: LiveReadingsView

    def __init__(
        self, services: BrokerServices, server: SocketServer, is_stopping: Callable[[], bool], admin_url: str = ""
    ) -> None:
        events = LiveEventsView()
        node = LiveNodeView(services, is_stopping)
        groups = LiveGroupsView(services.groups, services.clock.now_ms)
        transactions = LiveTransactionsView(services)
        topics = LiveTopicsView(services, groups.report)
        readings = LiveReadingsView(services, server)
        latency = LiveLatencyView(services, server.channel.metrics, readings.samples)
        storage = LiveStorageView(services)
        overview = LiveOverviewView(services, server.channel.metrics, storage, transactions, groups)
        super().__init__(
            node=node,
            overview=overview,
            alerts=LiveAlertsView(services, admin_url),
            config=LiveConfigView(services, events.publish),
            loggers=LiveLoggersView(services),
            changes=LiveChangesView(services, readings.samples, readings.series_history),
            topics=topics,
            topic_changes=LiveTopicChangesView(services, topics.consumers),
            topic_segments=LiveTopicSegmentsView(services),
            messages=LiveMessagesView(services),
            groups=groups,
            group_changes=LiveGroupChangesView(services),
            transactions=transactions,
            readings=readings,
            metrics=LiveMetricsView(services, server, node, groups, latency, transactions, overview),
            latency=latency,
            segments=LiveSegmentsView(services.replicas, services.node.cluster_id, services.node.node_id),
            clients=LiveClientsView(services, server),
            doctor=LiveDoctorView(services, server),
            storage=storage,
            tasks=LiveTasksView(server, services.clock),
            events=events,
        )

        def publish(sample: HistorySample) -> None:
            events.publish(sample)
            if (rebalanced := groups.pop_rebalanced()) is not None:
                events.publish(rebalanced)

        readings.samples.subscribe(publish)
