"""Records as rows of the page's table: the same markup in the page, in what a search finds later, and in a tail."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import attrs

from broker_admin.encoding import converter
from broker_admin.messages.rows import MessageRow
from broker_admin.pages import TEMPLATES

PREVIEW_BYTES = 2048
"""Of each part of a record in the list, before it is cut to a line."""

JSON, HTML = "json", "html"


def kept_parameters(asked: Mapping[str, str]) -> dict[str, str]:
    """What a page of records keeps of its address in its links."""
    return {name: text for name, text in asked.items() if text and name not in ("cursor", "format")}


def event_data(event: Any, topic: str, asked: Mapping[str, str]) -> str:
    """An event that has ``records``, as a line of JSON; as ``asked``, they are ``rows`` of markup instead.

    Runs in a worker thread.
    """
    if asked.get("format") != HTML:
        return as_line(converter.unstructure(event))
    rows = rows_markup(topic, event.records, urlencode(kept_parameters(asked)))
    return as_line({**converter.unstructure(attrs.evolve(event, records=())), "rows": rows})


def as_line(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def rows_markup(topic: str, rows: Sequence[MessageRow], link_query: str) -> str:
    template = TEMPLATES.get_template("messages/rows.html")
    return template.render(topic=topic, rows=rows, link_query=link_query)
