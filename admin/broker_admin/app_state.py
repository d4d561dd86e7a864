"""What the routes share: the views of the broker, and the event that ends the streams."""

from __future__ import annotations

import attrs
import trio
from starlette.requests import Request

from broker_admin.navigation import NavigationEntry
from broker_admin.problems import BrokerStarting
from broker_admin.starting_broker import StartingBroker
from broker_admin.view import BrokerView, ClusterView, NodeView
from broker_admin.views.node.identity import Readiness
from broker_admin.views.node.start import StartView

MAX_EVENT_STREAMS = 32
"""Open event streams at once. A page needs one; each costs a task in the broker."""

RENDERING_THREADS = 1
"""Scrapes that come at once are rendered one after another: they are not worth a second thread's share of the GIL."""

LAG_READERS = 1
"""Groups whose lag is read at once: each may read from disk for many partitions, and clients need the disk more."""

MAX_TAILS = 4
"""Streams of new records at once, of the event streams there may be: each decodes up to 200 records a second."""

SEARCHES = 2
"""Turns of searches through records at once. Clients need the disk and the interpreter more; a turn bounds itself."""

MAX_STREAMED_SEARCHES = 4
"""Searches that go on turn by turn at once, of the event streams there may be: between turns each holds up to 16 MiB of
what it has read.
"""


@attrs.define
class StreamCount:
    """Streams of one kind: how many are ``open``, of at ``most`` so many."""

    name: str
    most: int
    open: int = 0

    @property
    def has_room(self) -> bool:
        return self.open < self.most


@attrs.define
class AppState:
    """The broker and this app's own few counters. ``failed_logins`` are those that were refused since the start."""

    broker: BrokerView | StartingBroker
    stopping: trio.Event
    navigation: tuple[NavigationEntry, ...] = ()
    streams: StreamCount = attrs.field(factory=lambda: StreamCount("event streams", MAX_EVENT_STREAMS))
    openapi: bytes | None = None
    failed_logins: int = 0
    tails: StreamCount = attrs.field(factory=lambda: StreamCount("tails", MAX_TAILS))
    searches: StreamCount = attrs.field(factory=lambda: StreamCount("searches", MAX_STREAMED_SEARCHES))
    rendering: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(RENDERING_THREADS))
    reading_lag: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(LAG_READERS))
    searching: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(SEARCHES))
    search_threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(SEARCHES))

    @property
    def start(self) -> StartView | None:
        """The start of the broker while that lasts."""
        broker = self.broker
        return broker.start if isinstance(broker, StartingBroker) and broker.view is None else None

    @property
    def view(self) -> BrokerView:
        """The view of the broker.

        Raises:
            BrokerStarting: there is none yet.
        """
        if not isinstance(self.broker, StartingBroker):
            return self.broker
        if self.broker.view is None:
            raise BrokerStarting(self.broker.start.readiness().reason)
        return self.broker.view

    @property
    def cluster(self) -> ClusterView:
        return self.view.cluster

    @property
    def node(self) -> NodeView:
        return self.view.node

    @property
    def broker_id(self) -> int:
        """The ``node.id`` of the broker, which is known from the beginning of its start."""
        return self.node.identity.description().node_id if self.start is None else self.start.broker_id

    def readiness(self) -> Readiness:
        """Whether clients are served."""
        return self.node.identity.readiness() if self.start is None else self.start.readiness()


def state_of(request: Request) -> AppState:
    """The state of the app that serves ``request``."""
    state = request.app.state.app_state
    assert isinstance(state, AppState), type(state)
    return state


def cluster_of(request: Request) -> ClusterView:
    """The cluster that ``request`` is about."""
    return state_of(request).cluster


def node_of(request: Request) -> NodeView:
    """The broker that ``request`` is about: the one that serves it."""
    return state_of(request).node


def now_ms_of(node: NodeView) -> int:
    """The broker's own time."""
    return node.identity.description().now_ms
