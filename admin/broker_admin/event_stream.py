"""EventStream: an answer of server-sent events, which ends when its client is gone or the server stops.

An ASGI response rather than an async generator, since a generator is left half-run when a send is cancelled, and Trio
then finds it in the garbage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio
from starlette.types import Receive, Scope, Send

from broker_admin.parts import MAX_EVENT_STREAMS, MAX_TAILS, AdminParts
from broker_admin.problems import Problem

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}

SendText = Callable[[str], Awaitable[None]]
"""Sends a piece of a stream, and waits until the client took enough of what went before."""


@attrs.frozen
class EventStream:
    """One client's stream: ``send_events`` sends it, and ends it by returning. A tail counts as a stream too."""

    parts: AdminParts
    send_events: Callable[[SendText], Awaitable[None]]
    is_tail: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # HEAD asks whether there is room, as the page does to learn why its stream was refused.
        if scope["method"] != "GET":
            await send(HEAD)
        else:
            # No checkpoint lies between this and the count, however many connections ask in one turn of the loop.
            require_room(self.parts, is_tail=self.is_tail)
            self.parts.open_streams += 1
            self.parts.open_tails += self.is_tail
            try:
                await send(HEAD)
                await self.stream(receive, send)
            finally:
                # Before any checkpoint, so that a browser that connects again at once finds the room it has left.
                self.parts.open_streams -= 1
                self.parts.open_tails -= self.is_tail
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stream(self, receive: Receive, send: Send) -> None:
        """Send the events until they end, the client is gone, or the server stops."""

        async def send_text(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_at_disconnect, receive, nursery.cancel_scope)
            nursery.start_soon(cancel_at_stop, self.parts.stopping, nursery.cancel_scope)
            await self.send_events(send_text)
            # The two watchers would wait for ever.
            nursery.cancel_scope.cancel()


def require_room(parts: AdminParts, *, is_tail: bool = False) -> None:
    """See that one more stream may be opened.

    Raises:
        Problem: 503: as many as there may be are open.
    """
    if is_tail and (parts.open_tails >= MAX_TAILS or not parts.has_room_for_a_stream):
        raise Problem(503, f"{MAX_TAILS} tails, or {MAX_EVENT_STREAMS} event streams, are open already")
    if not parts.has_room_for_a_stream:
        raise Problem(503, f"{MAX_EVENT_STREAMS} event streams are open already; use /api/v1/history meanwhile")


async def cancel_at_disconnect(receive: Receive, cancel_scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel_scope.cancel()


async def cancel_at_stop(stopping: trio.Event, cancel_scope: trio.CancelScope) -> None:
    await stopping.wait()
    cancel_scope.cancel()
