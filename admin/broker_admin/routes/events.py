"""``/events`` of a broker: a server-sent event stream of samples and config changes.

``event: sample`` comes once a second, ``event: config`` at once when a key was changed by anyone, ``event: groups`` at
most once a second with the ids of groups that rebalanced, ``event: cluster`` with elections and in-sync replicas as
they move, a comment line when nothing else came for a while so that proxies and peers see a living connection. The data
are JSON, the same objects as in its ``/history`` and the answer to a change of config keys, ``GroupsRebalanced``, and
``ClusterChanged``.

A stream goes along the events that the broker keeps. Once its reader has fallen so far behind that the next one is not
kept any more, the stream ends rather than serve stale numbers: the reader connects again and reads the history. The
number of streams is bounded. Another broker's stream is passed on in pieces, for which that broker is asked.
"""

from __future__ import annotations

import json
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.encoding import converter, mask_changes, sensitive_keys
from broker_admin.event_stream import STILL_HERE, EventStream, SendText, require_room
from broker_admin.forwarded_requests import StreamPiece
from broker_admin.forwarding import ASKED_THROUGH, POSITION
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation
from broker_admin.problems import Problem
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response
from broker_admin.routing import NodeStreamRoute
from broker_admin.tokens import Role
from broker_admin.view import BrokerView
from broker_admin.views.cluster.groups import GroupsRebalanced
from broker_admin.views.node.events import BrokerEvent, EventsForgotten
from trio_broker.cluster.cluster_event import ClusterChanged
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.metrics.history import HistorySample

HEARTBEAT_SECONDS = 10.0
"""Shorter than the idle timeouts that proxies have, commonly 30 to 60 seconds."""

RECONNECT_MS = 2000
"""How long browsers wait before they connect again."""

BEGINNING = f"retry: {RECONNECT_MS}\n\n"


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(None, media_type="text/event-stream", problems={503: "all event streams are taken"})
async def get_events(request: Request) -> Response | EventStream:
    """Samples, one a second, config changes as they are made, and which groups rebalanced, as server-sent events."""
    state = state_of(request)
    if ASKED_THROUGH in request.scope:
        return json_response(piece_after(state.view, request.scope[POSITION]))
    require_room(state)
    return EventStream(state, partial(send_events, state.view))


async def send_events(view: BrokerView, send_text: SendText) -> None:
    """Send what the broker publishes until the client falls behind."""
    events = view.node.events
    position = events.newest
    await send_text(BEGINNING)
    while True:
        with trio.move_on_after(HEARTBEAT_SECONDS):
            if position == events.newest:
                await events.wait()
        try:
            new = events.after(position)
        except EventsForgotten:
            return
        for event in new:
            await send_text(event_text(view, event))
        if not new:
            await send_text(STILL_HERE)
        position += len(new)


def piece_after(view: BrokerView, position: int | None) -> StreamPiece:
    """What comes after ``position`` in the stream that another broker passes on, or its beginning.

    Raises:
        Problem: 410: that is not kept any more.
    """
    events = view.node.events
    if position is None:
        return StreamPiece(BEGINNING, events.newest)
    try:
        new = events.after(position)
    except EventsForgotten:
        raise Problem(410, "the events after this one are not kept any more") from None
    return StreamPiece("".join(event_text(view, event) for event in new), events.newest)


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
