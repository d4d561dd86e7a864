"""``/api/v1/events``: a server-sent event stream of samples and config changes.

``event: sample`` comes once a second, ``event: config`` at once when a key was changed by anyone, ``event: groups`` at
most once a second with the ids of groups that rebalanced, a comment line when nothing else came for a while so that
proxies and peers see a living connection. The data are JSON, the same objects as in ``/api/v1/history`` and
the answer to a change of config keys, and ``GroupsRebalanced``.

A stream holds a small queue. Once a reader has fallen so far behind that it is full, the stream ends rather than serve
stale numbers: the reader connects again and reads the history. The number of streams is bounded; they end when the
server stops.

Written as an ASGI response of our own rather than over an async generator, since a generator is left half-run when
a send is cancelled, and Trio then finds it in the garbage.
"""

from __future__ import annotations

import json

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from broker_admin.encoding import converter, mask_changes, sensitive_keys
from broker_admin.operations import operation
from broker_admin.parts import MAX_EVENT_STREAMS, AdminParts, parts_of
from broker_admin.problems import Problem
from broker_admin.views.events import BrokerEvent
from broker_admin.views.groups import GroupsRebalanced
from trio_broker.metrics.history import HistorySample

HEARTBEAT_SECONDS = 10.0
"""Shorter than the idle timeouts that proxies have, commonly 30 to 60 seconds."""

QUEUED_EVENTS = 30
"""Half a minute of samples: more than a hiccup of the network, little enough to forget about."""

RECONNECT_MS = 2000
"""How long browsers wait before they connect again."""


@operation(None, media_type="text/event-stream", problems={503: "all event streams are taken"})
async def get_events(request: Request) -> Response | EventStream:
    """Samples, one a second, config changes as they are made, and which groups rebalanced, as server-sent events."""
    parts = parts_of(request)
    if parts.has_room_for_a_stream:
        return EventStream(parts)
    raise Problem(503, f"{MAX_EVENT_STREAMS} event streams are open already; use /api/v1/history meanwhile")


@attrs.frozen
class EventStream:
    """One client's stream, as an ASGI response."""

    parts: AdminParts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        # HEAD asks whether there is room, as the page does to learn why its stream was refused.
        if scope["method"] == "GET":
            await self.stream(receive, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stream(self, receive: Receive, send: Send) -> None:
        """Send events until the client is gone, falls behind, or the server stops."""
        sender, receiver = trio.open_memory_channel[BrokerEvent](QUEUED_EVENTS)

        def enqueue(event: BrokerEvent) -> None:
            try:
                sender.send_nowait(event)
            except trio.WouldBlock:
                # The publisher runs on the broker's loop and does not wait. The receiver takes what is queued, then
                # finds the channel closed and ends the stream.
                sender.close()
            except trio.ClosedResourceError:
                pass

        # Counted only now, after the head was sent: connections that begin in one turn of the loop may exceed the bound
        # by their number, which harms nothing.
        unsubscribe = self.parts.view.events.subscribe(enqueue)
        self.parts.open_streams += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_at_disconnect, receive, nursery.cancel_scope)
                nursery.start_soon(cancel_at_stop, self.parts.stopping, nursery.cancel_scope)
                await send_text(send, f"retry: {RECONNECT_MS}\n\n")
                await self.forward(receiver, send)
                # The two watchers would wait for ever.
                nursery.cancel_scope.cancel()
        finally:
            # Before any checkpoint, so that a browser that connects again at once finds the room it has left.
            self.parts.open_streams -= 1
            unsubscribe()
            sender.close()
            receiver.close()

    async def forward(self, receiver: trio.MemoryReceiveChannel[BrokerEvent], send: Send) -> None:
        """Send what comes out of ``receiver`` until it is closed, and a heartbeat when nothing does."""
        while True:
            text = ": still here\n\n"
            with trio.move_on_after(HEARTBEAT_SECONDS):
                try:
                    text = self.event_text(await receiver.receive())
                except trio.EndOfChannel:
                    return
            await send_text(send, text)

    def event_text(self, event: BrokerEvent) -> str:
        """``event`` as it goes over the wire."""
        if isinstance(event, HistorySample):
            name = "sample"
        elif isinstance(event, GroupsRebalanced):
            name = "groups"
        else:
            name = "config"
            (event,) = mask_changes([event], sensitive_keys(self.parts.view.config.entries()))
        data = json.dumps(converter.unstructure(event), separators=(",", ":"))
        return f"event: {name}\ndata: {data}\n\n"


async def send_text(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def cancel_at_disconnect(receive: Receive, cancel_scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel_scope.cancel()


async def cancel_at_stop(stopping: trio.Event, cancel_scope: trio.CancelScope) -> None:
    await stopping.wait()
    cancel_scope.cancel()


ROUTES = [Route("/api/v1/events", get_events)]
