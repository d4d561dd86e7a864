"""BrokerView: everything that the admin app reads from a broker and changes in it.

It is two views in one: ``ClusterView``, what each broker of a cluster answers alike, and ``NodeView``, what only the
broker knows that is asked about. Each has one attribute per area, whose Protocol is in ``views/``. Most questions are
answered at once, from memory, on the broker's own event loop. Those that wait say why: ``config.change`` writes to disk
before a change is true, ``groups.report`` walks over thousands of groups and yields meanwhile, ``groups.offsets`` may
read when a record was appended, ``segments.manifest`` reads which transactions were aborted.

Values are frozen attrs classes, declared by the part of the broker that knows them or, where no part does, beside the
Protocol of their area. Their attribute names are the names in the JSON of the HTTP API, so renaming one is a change of
that API. Times are milliseconds since 1970 UTC (``_at_ms``), ratios run from 0 to 1, absent is None.

Source: docs/decisions/0031-the-broker-s-values-are-the-api-s.md,
docs/decisions/0083-views-of-a-node-and-of-the-cluster.md.
"""

from __future__ import annotations

import attrs

from broker_admin.views.cluster.access import AccessView
from broker_admin.views.cluster.authorization import AuthorizationView
from broker_admin.views.cluster.changes import ChangesView
from broker_admin.views.cluster.config import ConfigView
from broker_admin.views.cluster.decommission import DecommissionView
from broker_admin.views.cluster.group_changes import GroupChangesView
from broker_admin.views.cluster.groups import GroupsView
from broker_admin.views.cluster.messages import MessagesView
from broker_admin.views.cluster.peers import PeersView
from broker_admin.views.cluster.replication import ReplicationView
from broker_admin.views.cluster.topics import TopicChangesView, TopicsView
from broker_admin.views.cluster.transactions import TransactionsView
from broker_admin.views.node.alerts import AlertsView
from broker_admin.views.node.clients import ClientsView
from broker_admin.views.node.connection_diagnosis import ConnectionDiagnosisView
from broker_admin.views.node.events import EventsView
from broker_admin.views.node.identity import IdentityView
from broker_admin.views.node.latency import LatencyView
from broker_admin.views.node.loggers import LoggersView
from broker_admin.views.node.overview import OverviewView
from broker_admin.views.node.readings import MetricsView, ReadingsView
from broker_admin.views.node.segments import SegmentsView
from broker_admin.views.node.storage import StorageView
from broker_admin.views.node.tasks import TasksView
from broker_admin.views.node.topic_segments import TopicSegmentsView


@attrs.frozen(kw_only=True)
class ClusterView:
    """A cluster, as each of its brokers shows it."""

    config: ConfigView
    changes: ChangesView
    decommission: DecommissionView
    topics: TopicsView
    topic_changes: TopicChangesView
    messages: MessagesView
    groups: GroupsView
    group_changes: GroupChangesView
    transactions: TransactionsView
    replication: ReplicationView
    peers: PeersView
    access: AccessView
    authorization: AuthorizationView


@attrs.frozen(kw_only=True)
class NodeView:
    """One broker of a cluster, as it shows itself."""

    identity: IdentityView
    overview: OverviewView
    alerts: AlertsView
    loggers: LoggersView
    topic_segments: TopicSegmentsView
    readings: ReadingsView
    metrics: MetricsView
    latency: LatencyView
    segments: SegmentsView
    clients: ClientsView
    connection_diagnosis: ConnectionDiagnosisView
    storage: StorageView
    tasks: TasksView
    events: EventsView


@attrs.frozen
class BrokerView:
    """A broker, as the admin app sees it: its view of its cluster, and of itself."""

    cluster: ClusterView
    node: NodeView
