"""``/api/v1/config``: read every config key, change some.

GET answers an object ``configs`` of key → entry. PATCH takes a JSON object of key → value, where a value is a string,
a number or a boolean, and null resets the key to the layer below. A change is made as a whole or not at all; the
answer shows the entries as they are now, and what the journal says of it.

A change needs ``Content-Type: application/json`` and any ``X-Requested-With``: see ``security.py`` for why. The
latter's text is kept in the journal, which so shows whether a change came from the page or from ``curl``.
"""

from __future__ import annotations

import json
from typing import Any

import trio
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.encoding import json_response, mask_changes, mask_entry, sensitive_keys
from broker_admin.errors import error_response
from broker_admin.parts import parts_of
from broker_admin.views.config import ConfigRefusal

MAX_BODY_BYTES = 64 * 1024
"""Every key there is, with a long value each, is far less."""

BODY_TIMEOUT_SECONDS = 10.0
"""A client that has not sent its body by then keeps a connection for nothing."""

MAX_CALLER_NAME_LENGTH = 40
"""As much of ``X-Requested-With`` as the journal keeps."""


class BadRequest(Exception):
    """The request is not one we can read; ``status`` and the text say why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ConfigEndpoint(HTTPEndpoint):
    """Both methods of the one address, so that a third one is answered with the names of both."""

    async def get(self, request: Request) -> Response:
        """Every config key: value, source, synonyms, update mode, default, type and help."""
        entries = parts_of(request).view.config_entries()
        return json_response({"configs": {entry.name: mask_entry(entry) for entry in entries}})

    async def patch(self, request: Request) -> Response:
        """Change or reset config keys, all of them or none."""
        try:
            check_headers(request)
            changes = parse_changes(await read_body(request))
        except BadRequest as error:
            return error_response(error.status, str(error))
        refusals = [refuse_value(key, value) for key, value in changes.items() if not is_plain(value)]
        if refusals:
            return error_response(422, "nothing was changed", refusals)
        return await apply_changes(request, {key: config_text(value) for key, value in changes.items()})


async def apply_changes(request: Request, changes: dict[str, str | None]) -> Response:
    """Have the broker make ``changes`` and answer with what came of it."""
    view = parts_of(request).view
    result = await view.change_config(changes, changed_by=caller_name(request))
    if result.refusals:
        return error_response(422, "nothing was changed", result.refusals)
    entries = view.config_entries()
    return json_response(
        {
            "configs": {entry.name: mask_entry(entry) for entry in entries if entry.name in changes},
            "changes": mask_changes(result.changes, sensitive_keys(entries)),
        }
    )


def check_headers(request: Request) -> None:
    """Refuse what a page of another origin could make a browser send."""
    if not request.headers.get("x-requested-with", "").strip():
        raise BadRequest(403, "a change needs the header X-Requested-With, with any text")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise BadRequest(415, "a change needs Content-Type: application/json")


async def read_body(request: Request) -> bytes:
    """The request's body, bounded in size and time."""
    body = bytearray()
    try:
        with trio.fail_after(BODY_TIMEOUT_SECONDS):
            # Not request.stream(): a generator that is left half-run is found by Trio in the garbage.
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise BadRequest(400, "the body ended early")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MAX_BODY_BYTES:
                    raise BadRequest(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except trio.TooSlowError:
        raise BadRequest(408, f"the body did not come within {BODY_TIMEOUT_SECONDS:g} seconds") from None
    return bytes(body)


def parse_changes(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; names that appear twice are refused, since only one of them would count."""
    try:
        changes = json.loads(body, object_pairs_hook=object_without_repeats, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError | RepeatedName) else "it cannot be read"
        raise BadRequest(400, f"the body is not the JSON it should be: {reason}") from None
    if not isinstance(changes, dict):
        raise BadRequest(400, 'the body is not a JSON object of keys and values, such as {"num.io.threads": 12}')
    if not changes:
        raise BadRequest(400, "the body names no key to change")
    return changes


class RepeatedName(ValueError):
    """A JSON object names something twice."""


def object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise RepeatedName("a name appears twice in one object")
    return result


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def refuse_value(key: str, value: Any) -> ConfigRefusal:
    return ConfigRefusal(key, f"a value is a string, a number, true, false or null, not {json.dumps(value)[:60]}")


def config_text(value: str | float | bool | None) -> str | None:
    """A JSON value as the text a config file would hold."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def caller_name(request: Request) -> str:
    """Who makes the change, for the journal: what it calls itself, and where it is."""
    claimed = request.headers.get("x-requested-with", "")[:MAX_CALLER_NAME_LENGTH]
    name = "".join(character for character in claimed if character.isascii() and character.isprintable())
    host = request.client.host if request.client is not None else "an unknown address"
    return f"http ({name.strip()}) from {host}"


ROUTES = [Route("/api/v1/config", ConfigEndpoint)]
