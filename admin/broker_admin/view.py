"""BrokerView: everything that the admin app reads from a broker and changes in it.

One attribute per area, whose Protocol is in ``views/``. Most questions are answered at once, from memory, on the
broker's own event loop. Those that wait say why: ``config.change`` writes to disk before a change is true,
``groups.report`` walks over thousands of groups and yields meanwhile, ``groups.offsets`` may read when a record was
appended, ``segments.manifest`` reads which transactions were aborted.

Values are frozen attrs classes, declared by the part of the broker that knows them or, where no part does, beside the
Protocol of their area. Their attribute names are the names in the JSON of the HTTP API, so renaming one is a change of
that API. Times are milliseconds since 1970 UTC (``_at_ms``), ratios run from 0 to 1, absent is None.

Source: docs/decisions/0031-the-broker-s-values-are-the-api-s.md.
"""

from __future__ import annotations

import attrs

from broker_admin.views.alerts import AlertsView
from broker_admin.views.changes import ChangesView
from broker_admin.views.clients import ClientsView
from broker_admin.views.config import ConfigView
from broker_admin.views.doctor import DoctorView
from broker_admin.views.events import EventsView
from broker_admin.views.group_changes import GroupChangesView
from broker_admin.views.groups import GroupsView
from broker_admin.views.latency import LatencyView
from broker_admin.views.loggers import LoggersView
from broker_admin.views.messages import MessagesView
from broker_admin.views.node import NodeView
from broker_admin.views.overview import OverviewView
from broker_admin.views.readings import MetricsView, ReadingsView
from broker_admin.views.segments import SegmentsView
from broker_admin.views.start import StartView
from broker_admin.views.storage import StorageView
from broker_admin.views.tasks import TasksView
from broker_admin.views.topics import TopicChangesView, TopicSegmentsView, TopicsView
from broker_admin.views.transactions import TransactionsView


@attrs.frozen(kw_only=True)
class BrokerView:
    """A broker, as the admin app sees it."""

    node: NodeView
    overview: OverviewView
    alerts: AlertsView
    config: ConfigView
    loggers: LoggersView
    changes: ChangesView
    topics: TopicsView
    topic_changes: TopicChangesView
    topic_segments: TopicSegmentsView
    messages: MessagesView
    groups: GroupsView
    group_changes: GroupChangesView
    transactions: TransactionsView
    readings: ReadingsView
    metrics: MetricsView
    latency: LatencyView
    segments: SegmentsView
    clients: ClientsView
    doctor: DoctorView
    storage: StorageView
    tasks: TasksView
    events: EventsView


@attrs.define
class StartingBroker:
    """A broker whose admin app is served from its start on: there is a ``view`` once it serves clients."""

    start: StartView
    view: BrokerView | None = None
