"""What the routes share: the view, and the event that ends the streams."""

from __future__ import annotations

import attrs
import trio
from starlette.requests import Request

from broker_admin.rail import RailEntry
from broker_admin.view import BrokerView

MAX_EVENT_STREAMS = 32
"""Open event streams at once. A page needs one; each costs a task and a small queue in the broker."""

RENDERING_THREADS = 1
"""Scrapes that come at once are rendered one after another: they are not worth a second thread's share of the GIL."""

LAG_READERS = 1
"""Groups whose lag is read at once: each may read from disk for many partitions, and clients need the disk more."""

MAX_TAILS = 4
"""Streams of new records at once, of the event streams there may be: each decodes up to 200 records a second."""

SEARCHES = 2
"""Searches through records at once. Clients need the disk and the interpreter more; each search bounds itself."""


@attrs.define
class AdminParts:
    """The broker's view and this app's own few counters."""

    view: BrokerView
    stopping: trio.Event
    rail: tuple[RailEntry, ...] = ()
    open_streams: int = 0
    openapi: bytes | None = None
    open_tails: int = 0
    rendering: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(RENDERING_THREADS))
    reading_lag: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(LAG_READERS))
    searching: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(SEARCHES))
    search_threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(SEARCHES))

    @property
    def has_room_for_a_stream(self) -> bool:
        return self.open_streams < MAX_EVENT_STREAMS


def parts_of(request: Request) -> AdminParts:
    """The parts of the app that serves ``request``."""
    parts = request.app.state.parts
    assert isinstance(parts, AdminParts), type(parts)
    return parts


def view_of(request: Request) -> BrokerView:
    """The view of the broker that ``request`` is about."""
    return parts_of(request).view
