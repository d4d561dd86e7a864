"""``/events`` of a broker: a server-sent event stream of samples and config changes.

``event: sample`` comes once a second, ``event: config`` at once when a key was changed by anyone, ``event: groups`` at
most once a second with the ids of groups that rebalanced, ``event: cluster`` with elections and in-sync replicas as
they move, a comment line when nothing else came for a while so that proxies and peers see a living connection. The data
are JSON, the same objects as in its ``/history`` and the answer to a change of config keys, ``GroupsRebalanced``, and
``ClusterChanged``.

A stream holds a small queue. Once a reader has fallen so far behind that it is full, the stream ends rather than serve
stale numbers: the reader connects again and reads the history. The number of streams is bounded.
"""

from __future__ import annotations

import json
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.encoding import converter, mask_changes, sensitive_keys
from broker_admin.event_stream import EventStream, SendText, require_room
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation
from broker_admin.requirements import of_cluster, requires
from broker_admin.routing import NodeStreamRoute
from broker_admin.tokens import Role
from broker_admin.view import BrokerView
from broker_admin.views.cluster.groups import GroupsRebalanced
from broker_admin.views.node.events import BrokerEvent
from trio_broker.cluster.cluster_event import ClusterChanged
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.metrics.history import HistorySample

HEARTBEAT_SECONDS = 10.0
"""Shorter than the idle timeouts that proxies have, commonly 30 to 60 seconds."""

QUEUED_EVENTS = 30
"""Half a minute of samples: more than a hiccup of the network, little enough to forget about."""

RECONNECT_MS = 2000
"""How long browsers wait before they connect again."""


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(
    None,
    media_type="text/event-stream",
    problems={421: "they are of another broker than the one asked", 503: "all event streams are taken"},
)
async def get_events(request: Request) -> Response | EventStream:
    """Samples, one a second, config changes as they are made, and which groups rebalanced, as server-sent events."""
    state = state_of(request)
    require_room(state)
    return EventStream(state, partial(send_events, state.view))


async def send_events(view: BrokerView, send_text: SendText) -> None:
    """Send what the broker publishes until the client falls behind."""
    sender, receiver = trio.open_memory_channel[BrokerEvent](QUEUED_EVENTS)

    def enqueue(event: BrokerEvent) -> None:
        try:
            sender.send_nowait(event)
        except trio.WouldBlock:
            # The publisher runs on the broker's loop and does not wait. The receiver takes what is queued, then finds
            # the channel closed and ends the stream.
            sender.close()
        except trio.ClosedResourceError:
            pass

    unsubscribe = view.node.events.subscribe(enqueue)
    try:
        await send_text(f"retry: {RECONNECT_MS}\n\n")
        await forward(view, receiver, send_text)
    finally:
        unsubscribe()
        sender.close()
        receiver.close()


async def forward(view: BrokerView, receiver: trio.MemoryReceiveChannel[BrokerEvent], send_text: SendText) -> None:
    """Send what comes out of ``receiver`` until it is closed, and a heartbeat when nothing does."""
    while True:
        text = ": still here\n\n"
        with trio.move_on_after(HEARTBEAT_SECONDS):
            try:
                text = event_text(view, await receiver.receive())
            except trio.EndOfChannel:
                return
        await send_text(text)


def event_text(view: BrokerView, event: BrokerEvent) -> str:
    """``event`` as it goes over the wire."""
    if isinstance(event, HistorySample):
        name = "sample"
    elif isinstance(event, GroupsRebalanced):
        name = "groups"
    elif isinstance(event, ClusterChanged):
        name = "cluster"
    else:
        name = "config"
        entry = view.cluster.config.entry(event.key)
        (event,) = mask_changes([event], sensitive_keys([] if entry is None else [entry]))
    data = json.dumps(converter.unstructure(event), separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n"


ROUTES = [NodeStreamRoute(NODE_API + "/events", get_events)]
