"""``/api/v1/config``: read every config key, change some.

GET answers an object ``configs`` of key → entry. PATCH takes a JSON object of key → value, where a value is a string,
a number or a boolean, and null resets the key to the layer below. A change is made as a whole or not at all; the
answer shows the entries as they are now, and what the journal says of it. A refused key is pointed at: ``/node.id``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.encoding import json_response, mask_changes, mask_entry, sensitive_keys
from broker_admin.operations import operation
from broker_admin.parts import parts_of
from broker_admin.problems import FieldError, Problem, body_pointer
from broker_admin.request_body import caller_name, read_change_json
from broker_admin.structuring import structure_body
from broker_admin.views.config import ConfigRefusal, JournalEntry
from trio_broker.config.entries import ConfigEntry

ConfigChanges = Mapping[str, str | int | float | bool | None]
"""The body of a change."""


@attrs.frozen
class Configs:
    """Config keys by name."""

    configs: Mapping[str, ConfigEntry]


@attrs.frozen
class ChangedConfigs:
    """The keys that a change named, as they are now, and what the journal says of it."""

    configs: Mapping[str, ConfigEntry]
    changes: Sequence[JournalEntry]


class ConfigEndpoint(HTTPEndpoint):
    """Both methods of the one address, so that a third one is answered with the names of both."""

    @operation(Configs)
    async def get(self, request: Request) -> Response:
        """Every config key: value, source, synonyms, update mode, default, type and help."""
        entries = parts_of(request).view.config_entries()
        return json_response(Configs({entry.name: mask_entry(entry) for entry in entries}))

    @operation(
        ChangedConfigs, body=ConfigChanges, is_change=True, problems={422: "a key is refused; nothing was changed"}
    )
    async def patch(self, request: Request) -> Response:
        """Change or reset config keys, all of them or none."""
        body = await read_change_json(request)
        if not isinstance(body, dict):
            raise Problem(400, 'the body is not a JSON object of keys and values, such as {"num.io.threads": 12}')
        if not body:
            raise Problem(400, "the body names no key to change")
        changes = structure_body(body, ConfigChanges)  # type: ignore[type-abstract]
        return await apply_changes(request, {key: config_text(value) for key, value in changes.items()})


async def apply_changes(request: Request, changes: dict[str, str | None]) -> Response:
    """Have the broker make ``changes`` and answer with what came of it."""
    view = parts_of(request).view
    result = await view.change_config(changes, changed_by=caller_name(request))
    if result.refusals:
        raise Problem.of_errors(422, [field_error(refusal) for refusal in result.refusals])
    entries = view.config_entries()
    return json_response(
        ChangedConfigs(
            {entry.name: mask_entry(entry) for entry in entries if entry.name in changes},
            mask_changes(result.changes, sensitive_keys(entries)),
        )
    )


def field_error(refusal: ConfigRefusal) -> FieldError:
    return FieldError(body_pointer(refusal.key), refusal.reason)


def config_text(value: str | float | bool | None) -> str | None:
    """A JSON value as the text a config file would hold."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


ROUTES = [Route("/api/v1/config", ConfigEndpoint)]
