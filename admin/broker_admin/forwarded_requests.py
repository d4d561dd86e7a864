"""A request that one broker passes on to another, and its answer, as bytes: a line of JSON and the body, each.

What passes requests on and what answers them is in ``forwarding.py``; a broker that only has something to ask of the
others needs no more than this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

import attrs
import cattrs

from trio_broker.changes.change import ChangeOrigin

T = TypeVar("T")


@attrs.frozen
class ForwardedHead:
    """A request but for its body; ``target`` is path and query as they were sent."""

    method: str
    target: str
    headers: Mapping[str, str]
    client: str
    asked_through: int
    role: str | None = None
    principal: str = ""
    position: int | None = None


@attrs.frozen
class StreamPiece:
    """A piece of a stream, and where it ends."""

    text: str
    position: int


@attrs.frozen
class AnsweredHead:
    """An answer but for its body."""

    status: int
    headers: Mapping[str, str]


def encoded(head: ForwardedHead | AnsweredHead, body: bytes) -> bytes:
    """``head`` and ``body`` as they are passed on."""
    return json.dumps(attrs.asdict(head), separators=(",", ":")).encode() + b"\n" + body


def decoded(kind: type[T], data: bytes) -> tuple[T, bytes]:
    """What ``encoded`` was given."""
    line, _, body = data.partition(b"\n")
    return cattrs.structure(json.loads(line), kind), body


def question(path: str, *, asked_through: int, asked_by: ChangeOrigin, method: str = "GET", body: bytes = b"") -> bytes:
    """A request of the admin app of one broker to that of another, for JSON at ``path``, in the name of the client for
    which it works."""
    headers = {"host": "localhost", "accept": "application/json"}
    if body:
        name = asked_by.client or f"broker {asked_through}"
        headers |= {"content-type": "application/json", "x-requested-with": name}
    role, principal = asked_by.role or None, asked_by.principal
    return encoded(ForwardedHead(method, path, headers, asked_by.address, asked_through, role, principal), body)
