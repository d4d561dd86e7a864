"""LiveBrokerView: a running broker, as the admin app sees it, answered from the broker's own statistics.

The one place that knows all areas. Each area takes what it needs and can stand alone. An area keeps only what the admin
app needs and the broker does not.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.view import BrokerView, ClusterView, NodeView
from trio_broker.broker_view.cluster.access import LiveAccessView
from trio_broker.broker_view.cluster.authorization import LiveAuthorizationView
from trio_broker.broker_view.cluster.changes import LiveChangesView
from trio_broker.broker_view.cluster.config import LiveConfigView
from trio_broker.broker_view.cluster.decommission import LiveDecommissionView
from trio_broker.broker_view.cluster.group_changes import LiveGroupChangesView
from trio_broker.broker_view.cluster.groups import LiveGroupsView
from trio_broker.broker_view.cluster.messages import LiveMessagesView
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.broker_view.cluster.replication import LiveReplicationView
from trio_broker.broker_view.cluster.topic_changes import LiveTopicChangesView
from trio_broker.broker_view.cluster.topics import LiveTopicsView
from trio_broker.broker_view.cluster.transactions import LiveTransactionsView
from trio_broker.broker_view.node.alerts import LiveAlertsView
from trio_broker.broker_view.node.clients import LiveClientsView
from trio_broker.broker_view.node.connection_diagnosis import LiveConnectionDiagnosisView
from trio_broker.broker_view.node.events import LiveEventsView
from trio_broker.broker_view.node.identity import LiveIdentityView
from trio_broker.broker_view.node.latency import LiveLatencyView
from trio_broker.broker_view.node.loggers import LiveLoggersView
from trio_broker.broker_view.node.metrics import LiveMetricsView
from trio_broker.broker_view.node.overview import LiveOverviewView
from trio_broker.broker_view.node.readings import LiveReadingsView
from trio_broker.broker_view.node.segments import LiveSegmentsView
from trio_broker.broker_view.node.storage import LiveStorageView
from trio_broker.broker_view.node.tasks import LiveTasksView
from trio_broker.broker_view.node.topic_segments import LiveTopicSegmentsView
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import HistorySample
from trio_broker.network.socket_server import SocketServer


class LiveClusterView(ClusterView):
    """The cluster for the admin app: what this broker has of it, and what the others tell."""

    topics: LiveTopicsView
    replication: LiveReplicationView
    groups: LiveGroupsView
    transactions: LiveTransactionsView

    def __init__(self, services: BrokerServices, events: LiveEventsView, readings: LiveReadingsView) -> None:
        peers = LivePeersView(services)
        groups = LiveGroupsView(services.groups, services.clock, peers)
        topics = LiveTopicsView(services, peers, groups.report)
        replication = LiveReplicationView(services, peers, topics)
        super().__init__(
            config=LiveConfigView(services, events.publish),
            changes=LiveChangesView(services, readings.samples, readings.series_history),
            decommission=LiveDecommissionView(services),
            topics=topics,
            topic_changes=LiveTopicChangesView(services, peers, topics),
            messages=LiveMessagesView(services, topics.partitions),
            groups=groups,
            group_changes=LiveGroupChangesView(services),
            transactions=LiveTransactionsView(services, peers),
            replication=replication,
            peers=peers,
            access=LiveAccessView(services, replication),
            authorization=LiveAuthorizationView(services),
        )


class LiveNodeView(NodeView):
    """This broker for the admin app."""

    alerts: LiveAlertsView
    readings: LiveReadingsView

    def __init__(
        self,
        services: BrokerServices,
        server: SocketServer,
        identity: LiveIdentityView,
        cluster: LiveClusterView,
        events: LiveEventsView,
        readings: LiveReadingsView,
        admin_url: str,
    ) -> None:
        latency = LiveLatencyView(services, server.channel.metrics, readings.samples)
        storage = LiveStorageView(services)
        groups, transactions = cluster.groups, cluster.transactions
        overview = LiveOverviewView(
            services, server.channel.metrics, storage, transactions, groups, cluster.replication
        )
        super().__init__(
            identity=identity,
            overview=overview,
            alerts=LiveAlertsView(services, admin_url),
            loggers=LiveLoggersView(services),
            topic_segments=LiveTopicSegmentsView(services),
            readings=readings,
            metrics=LiveMetricsView(services, server, identity, groups, latency, transactions, overview),
            latency=latency,
            segments=LiveSegmentsView(services.replicas, services.node.cluster_id, services.node.node_id),
            clients=LiveClientsView(services, server),
            connection_diagnosis=LiveConnectionDiagnosisView(services, server),
            storage=storage,
            tasks=LiveTasksView(server, services.clock),
            events=events,
        )


class LiveBrokerView(BrokerView):
    """One broker for the admin app."""

    cluster: LiveClusterView
    node: LiveNodeView

    def __init__(
        self, services: BrokerServices, server: SocketServer, is_stopping: Callable[[], bool], admin_url: str = ""
    ) -> None:
        events, readings = LiveEventsView(services.clock.now_ms()), LiveReadingsView(services, server)
        cluster = LiveClusterView(services, events, readings)
        identity = LiveIdentityView(services, is_stopping)
        super().__init__(cluster, LiveNodeView(services, server, identity, cluster, events, readings, admin_url))

        def publish(sample: HistorySample) -> None:
            events.publish(sample)
            if (rebalanced := cluster.groups.pop_rebalanced()) is not None:
                events.publish(rebalanced)

        readings.samples.subscribe(publish)
        if services.cluster_events is not None:
            services.cluster_events.subscribe(events.publish)
