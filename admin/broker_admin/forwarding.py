"""Requests of people that one broker passes on to another.

A page or an address of the API that is about one broker can be asked of any: the one that is asked passes the request
on whole, over the listener of brokers, and the other one answers it by the same app. So no admin listener has to be
open to other machines. The caller was let in where the request arrived; what is passed on says only who that is.

A stream, which has no end, is asked for in pieces, each with what has come since the one before.

Source: docs/decisions/0102-any-broker-answers-for-all.md.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import attrs
import cattrs
import trio
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_admin.callers import CALLER_IN_SCOPE, AdminCaller, caller_in
from broker_admin.event_stream import STILL_HERE, SendText
from broker_admin.forwarded_requests import AnsweredHead, ForwardedHead, StreamPiece, decoded, encoded
from broker_admin.problems import Problem
from broker_admin.request_body import read_body
from broker_admin.tokens import Role
from broker_admin.views.cluster.peers import PeersView, PeerUnavailable

MAX_FORWARDED_BYTES: Final = 2 << 20
"""Of the body of a request: as much as the largest that is taken here, a reset of offsets by a file."""

FORWARDED_HEADERS: Final = frozenset({"accept", "content-type", "host", "x-requested-with"})
"""Those that an answer goes by. Tokens and cookies stay where they were checked."""

ANSWERED_HEADERS: Final = frozenset({"content-type", "location", "cache-control", "content-disposition"})

ASKED_THROUGH: Final = "trio_broker.asked_through"
"""The key in the ASGI scope of the broker that passed a request on."""

POSITION: Final = "trio_broker.position"
"""The key in the ASGI scope of a request that was passed on: where the reader of a stream is, None at its beginning."""

PIECE_SECONDS: Final = 1.0
"""Between two pieces of a stream. A question that waits would hold up those behind it, as brokers answer in order."""

OK: Final = 200

BAD_REQUEST: Final = 400

BAD_GATEWAY: Final = 502


# ---- where a request arrives


async def forward(scope: Scope, receive: Receive, send: Send, *, peers: PeersView, broker_id: int, own_id: int) -> None:
    """Have another broker answer a request.

    Raises:
        Problem: 502: it does not answer.
    """
    request = Request(scope, receive)
    body = (
        await read_body(request, MAX_FORWARDED_BYTES) if request.method in ("POST", "PATCH", "PUT", "DELETE") else b""
    )
    answered, content = await ask(peers, broker_id, head_of(request, own_id), body)
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answered.headers.items()]
    headers.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": answered.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else content})


def head_of(request: Request, own_id: int) -> ForwardedHead:
    """What ``request`` is passed on as, but for its body."""
    caller = caller_in(request.scope) or AdminCaller()
    return ForwardedHead(
        method=request.method,
        target=target_of(request.scope),
        headers={name: value for name, value in request.headers.items() if name in FORWARDED_HEADERS},
        client="" if request.client is None else request.client.host,
        asked_through=own_id,
        role=None if caller.role is None else caller.role.value,
        principal=caller.principal,
    )


async def ask(peers: PeersView, broker_id: int, head: ForwardedHead, body: bytes) -> tuple[AnsweredHead, bytes]:
    """The answer of another broker.

    Raises:
        Problem: 502: there is none.
    """
    try:
        answer = await peers.ask(broker_id, encoded(head, body))
    except PeerUnavailable as error:
        raise Problem(BAD_GATEWAY, f"broker {broker_id} does not answer: {error}") from None
    return decoded(AnsweredHead, answer)


@attrs.define
class ForwardedStream:
    """A stream of another broker, from its beginning on."""

    peers: PeersView
    broker_id: int
    head: ForwardedHead

    async def next_piece(self) -> str:
        """What has come since the last piece.

        Raises:
            Problem: 502: there is no answer, or no such stream, or its reader has fallen behind.
        """
        answered, content = await ask(self.peers, self.broker_id, self.head, b"")
        if answered.status != OK:
            raise Problem(BAD_GATEWAY, f"broker {self.broker_id} answers with {answered.status}")
        piece = cattrs.structure(json.loads(content), StreamPiece)
        self.head = attrs.evolve(self.head, position=piece.position)
        return piece.text

    async def send(self, piece: str, send_text: SendText) -> None:
        """Send ``piece`` and those that follow, until there are no more."""
        with suppress(Problem):
            while True:
                await send_text(piece or STILL_HERE)
                await trio.sleep(PIECE_SECONDS)
                piece = await self.next_piece()


def target_of(scope: Scope) -> str:
    """Path and query of a request, as they were sent."""
    path: str = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
    query: str = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


# ---- where it is answered


async def answer_forwarded(app: ASGIApp, question: bytes) -> bytes:
    """The answer of ``app`` to a request that another broker has passed on; 400 where it is none that a broker sends.
    ``app`` raises nothing."""
    try:
        head, body = decoded(ForwardedHead, question)
        scope = scope_of(head)
    except (ValueError, RecursionError, cattrs.BaseValidationError):
        return encoded(AnsweredHead(BAD_REQUEST, {}), b"")
    status, headers, content = 500, {}, bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            sent = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message["headers"])
            headers = {name: value for name, value in sent if name in ANSWERED_HEADERS}
        elif message["type"] == "http.response.body":
            content.extend(message.get("body", b""))

    await app(scope, receive, send)
    return encoded(AnsweredHead(status, headers), bytes(content))


def scope_of(head: ForwardedHead) -> Scope:
    """The ASGI scope of a request that was passed on."""
    path, _, query = head.target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": head.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers.items()],
        "client": (head.client, 0),
        "server": None,
        ASKED_THROUGH: head.asked_through,
        POSITION: head.position,
    }
    if head.role is not None or head.principal:
        scope[CALLER_IN_SCOPE] = AdminCaller(None if head.role is None else Role(head.role), head.principal)
    return scope
