"""EventStream: an answer of server-sent events, or of lines, which ends when its client is gone or has lost the right
to it, or the server stops.

An ASGI response rather than an async generator, since a generator is left half-run when a send is cancelled, and Trio
then finds it in the garbage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from broker_admin.app_state import MAX_EVENT_STREAMS, AppState, StreamCount
from broker_admin.problems import Problem
from broker_admin.requirements import is_still_allowed
from trio_broker.concurrency.cancel_once import cancel_once

T = TypeVar("T")

STILL_HERE = ": still here\n\n"
"""A comment, by which a stream is seen to live."""

SendText = Callable[[str], Awaitable[None]]
"""Sends a piece of a stream, and waits until the client took enough of what went before."""


@attrs.frozen
class EventStream:
    """One client's stream: ``send_events`` sends it, and ends it by returning. It may be one of a ``kind``, too."""

    state: AppState
    send_events: Callable[[SendText], Awaitable[None]]
    kind: StreamCount | None = None
    media_type: str = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", self.media_type.encode())],
        }
        # HEAD asks whether there is room, as the page does to learn why its stream was refused.
        if scope["method"] != "GET":
            await send(head)
        else:
            # No checkpoint lies between this and the count, however many connections ask in one turn of the loop.
            require_room(self.state, self.kind)
            counts = [each for each in (self.state.streams, self.kind) if each is not None]
            for count in counts:
                count.open += 1
            try:
                await send(head)
                await self.stream(scope, receive, send)
            finally:
                # Before any checkpoint, so that a browser that connects again at once finds the room it has left.
                for count in counts:
                    count.open -= 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end, the client is gone or has lost the right to them, or the server stops."""

        async def send_text(text: str) -> None:
            # As of a client that asks again and again: what was read meanwhile is not sent either.
            if not is_still_allowed(scope):
                nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_at_disconnect, receive, nursery.cancel_scope)
            nursery.start_soon(cancel_once, self.state.stopping, nursery.cancel_scope)
            await self.send_events(send_text)
            # The two watchers would wait for ever.
            nursery.cancel_scope.cancel()


def require_room(state: AppState, kind: StreamCount | None = None) -> None:
    """See that one more stream may be opened, and one more of its kind.

    Raises:
        Problem: 503: as many as there may be are open.
    """
    if kind is not None and not (kind.has_room and state.streams.has_room):
        raise Problem(503, f"{kind.most} {kind.name}, or {MAX_EVENT_STREAMS} event streams, are open already")
    if not state.streams.has_room:
        raise Problem(503, f"{MAX_EVENT_STREAMS} event streams are open already; read the history meanwhile")


async def cancel_at_disconnect(receive: Receive, cancel_scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel_scope.cancel()


async def while_connected(request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """The result of ``work``, which is cancelled when the client goes; None then, for nobody."""
    result: T | None = None
    error: Problem | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_at_disconnect, request.receive, nursery.cancel_scope)
        try:
            result = await work()
        except Problem as problem:
            error = problem
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
    return result
