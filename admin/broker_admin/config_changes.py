"""Config keys and changes of them, as the API takes and answers them for a broker and for a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import attrs
from starlette.requests import Request

from broker_admin.problems import Problem
from broker_admin.request_body import read_change_json
from broker_admin.schemas import SchemaConstraints
from broker_admin.structuring import structure_body
from trio_broker.config.config_key import ConfigUnit
from trio_broker.config.entries import ConfigEntry
from trio_broker.config.quantities import plain_number

ConfigValue = str | int | float | bool | None
"""A value as a caller may write it; null resets the key."""


ConfigChanges = Annotated[Mapping[str, ConfigValue], SchemaConstraints({"minProperties": 1})]
"""The body of a change."""


@attrs.frozen
class Configs:
    """Config keys by name."""

    configs: Mapping[str, ConfigEntry]


async def read_config_changes(request: Request) -> ConfigChanges:
    """The keys and values in the body of a change.

    Raises:
        Problem: the body is something else, or names no key.
    """
    body = await read_change_json(request)
    if not isinstance(body, dict):
        raise Problem(400, 'the body is not a JSON object of keys and values, such as {"num.io.threads": 12}')
    if not body:
        raise Problem(400, "the body names no key to change")
    return structure_body(body, ConfigChanges)  # type: ignore[type-abstract]


def plain_texts(
    changes: ConfigChanges, units: Mapping[str, ConfigUnit | None]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """The values as texts without suffixes, and for each suffix that cannot be read the reason.

    A value with such a suffix stays as it is: it is no number, so the broker refuses it together with what else is
    wrong.
    """
    texts = {key: config_text(value) for key, value in changes.items()}
    reasons = {}
    for key, text in texts.items():
        if text is not None and (unit := units.get(key)) is not None:
            try:
                texts[key] = plain_number(text, unit)
            except ValueError as error:
                reasons[key] = f"{key}: {error}"
    return texts, reasons


def config_text(value: ConfigValue) -> str | None:
    """A JSON value as the text a config file would hold."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
