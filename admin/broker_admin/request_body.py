"""What a change has to bring: the headers that no page of another origin can send, and a JSON body within bounds.

``X-Requested-With`` may hold any text, which is kept with the change: it shows whether a change came from a page of
ours or from ``curl``. See ``security.py`` for why both headers are needed.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import attrs
import trio
from starlette.requests import Request

from broker_admin.callers import AdminCaller, caller_in
from broker_admin.problems import Problem
from broker_admin.structuring import structure_body
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin

T = TypeVar("T")

MAX_BODY_BYTES = 64 * 1024
"""Every key there is, with a long value each, is far less."""

BODY_TIMEOUT_SECONDS = 10.0
"""A client that has not sent its body by then keeps a connection for nothing."""

PAGE_NAME = "admin page"
"""What the scripts of our pages call themselves."""

MAX_CALLER_NAME_LENGTH = 40
"""As much of ``X-Requested-With`` as is kept with a change."""


@attrs.frozen
class ChangeQuery:
    """The query of a change. With ``dry_run`` it is checked and answered as it would be, and not made."""

    dry_run: bool = False


async def read_change(request: Request, wanted: type[T], max_bytes: int = MAX_BODY_BYTES) -> T:
    """The body of a change as an instance of the attrs class ``wanted``.

    Raises:
        Problem: the headers or the body are not those of a change; nothing else was read.
    """
    return structure_body(await read_change_json(request, max_bytes), wanted)


async def read_change_json(request: Request, max_bytes: int = MAX_BODY_BYTES) -> Any:
    """The body of a change, as ``json`` reads it.

    Raises:
        Problem: as for ``read_change``.
    """
    check_caller(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "a change needs Content-Type: application/json")
    return parse_json(await read_body(request, max_bytes))


def check_caller(request: Request) -> None:
    """Refuse what a page of another origin could make a browser send; enough for a change without a body.

    Raises:
        Problem: 403.
    """
    if not request.headers.get("x-requested-with", "").strip():
        raise Problem(403, "a change needs the header X-Requested-With, with any text")
    # The task serves this request only, so that whatever it changes is recorded as the caller's.
    CALLER.set(change_origin(request))


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The request's body, bounded in size and time."""
    body = bytearray()
    try:
        with trio.fail_after(BODY_TIMEOUT_SECONDS):
            # Not request.stream(): a generator that is left half-run is found by Trio in the garbage.
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "the body ended early")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > max_bytes:
                    raise Problem(413, f"the body is larger than {max_bytes} bytes")
    except trio.TooSlowError:
        raise Problem(408, f"the body did not come within {BODY_TIMEOUT_SECONDS:g} seconds") from None
    return bytes(body)


def parse_json(body: bytes) -> Any:
    """The JSON in ``body``; names that appear twice are refused, since only one of them would count.

    Raises:
        Problem: 400.
    """
    try:
        return json.loads(body, object_pairs_hook=object_without_repeats, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError | RepeatedName) else "it cannot be read"
        raise Problem(400, f"the body is not the JSON it should be: {reason}") from None


class RepeatedName(ValueError):
    """A JSON object names something twice."""


def object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise RepeatedName("a name appears twice in one object")
    return result


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def change_origin(request: Request) -> ChangeOrigin:
    """What is recorded of the caller: what it calls itself, where it is, and what it asked for."""
    claimed = request.headers.get("x-requested-with", "")[:MAX_CALLER_NAME_LENGTH]
    name = "".join(filter(str.isprintable, claimed.encode("ascii", "ignore").decode())).strip()
    host = request.client.host if request.client is not None else "an unknown address"
    channel = ChangeChannel.PAGE if name == PAGE_NAME else ChangeChannel.HTTP
    caller = caller_in(request.scope) or AdminCaller()
    role = "" if caller.role is None else caller.role.value
    principal = "" if caller.is_anonymous else caller.principal
    return ChangeOrigin(channel, name, host, f"{request.method} {request.url.path}", role, principal)


def caller_name(request: Request) -> str:
    """Who makes the change: what it calls itself, and where it is."""
    origin = change_origin(request)
    return f"http ({origin.client}) from {origin.address}"
