"""The pages about records: ``/topics/{topic}/messages``, a search that is its own address, and a page for each record.

A page waits for half a second of its search, and its script for the rest (``message_search.py``). Contents are whatever
producers sent: they are text in the markup, cut, and what cannot be seen in them is written as an escape.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.decoders.choice import DECODER_NAMES
from broker_admin.decoders.decoded import MAX_DECODED_BYTES
from broker_admin.event_stream import while_connected
from broker_admin.filters.record_filter import RecordFilter
from broker_admin.messages.large_scan import TOO_LARGE, export_command, spark_lines
from broker_admin.messages.query import STARTS, RecordsQuery, compiled_filter, decoders_of
from broker_admin.messages.rows import (
    MAX_HEADERS,
    MAX_SHOWN_BYTES,
    Decoders,
    MessagePart,
    MessageRow,
    RecordVariables,
    Show,
    ShownRecord,
    message_row,
    readable_name,
    show_rows,
)
from broker_admin.messages.search import SearchEnd, SearchResult
from broker_admin.operations import query_of
from broker_admin.pages import TEMPLATES, frame, page_response
from broker_admin.problems import Problem
from broker_admin.record_rows import PREVIEW_BYTES, kept_parameters
from broker_admin.record_search import NO_SUCH_TOPIC, require_contents, search_records
from broker_admin.requirements import of_metadata_log, of_topic, requires
from broker_admin.routing import Route
from broker_admin.texts import line_text, number_text
from broker_admin.tokens import Role
from broker_admin.topic_tabs import tabs_of
from broker_admin.views.cluster.messages import BatchInfo
from kafka_wire.limits import MAX_OFFSET, MAX_PARTITION
from trio_broker.common.escaping import LINE_ENDS_AND_TABS, escape_unprintable
from trio_broker.common.record_json import StoredRecord, text_or_base64
from trio_broker.handlers.support.rights import READ_TOPIC

PAGE_SECONDS = 0.5
"""A page waits so long for its search: what is found later comes to the page, or by its link."""

MAX_FORM_BYTES = 64 * 1024
"""Of a record that the form is filled with."""

HEX_BYTES = 4096
"""Of a key or a value, as hexadecimal on its record's page."""

ENDINGS = {
    SearchEnd.LIMIT: "more available",
    SearchEnd.END: "end of log",
    SearchEnd.TIME: "time limit reached",
    SearchEnd.BYTES: "64 MiB were read",
    SearchEnd.SIZE: "the page is full",
}
"""Why a search ended, in words."""


@attrs.frozen
class RecordDetail:
    """A record on its own page: its row, the first bytes of key and value in hexadecimal, and what the form has that
    appends the like of it ``again``; None where the record is too large for a form, or the broker's own."""

    row: MessageRow
    key_hex: str
    value_hex: str
    again: Mapping[str, Any] | None


@requires(Role.VIEWER, of_topic(READ_TOPIC), of_metadata_log())
async def get_messages_page(request: Request) -> Response:
    """The records that the address asks for."""
    state, topic = state_of(request), request.path_params["topic"]
    require_contents(state)
    readable = await state.cluster.messages.readable_partitions(topic)
    if readable is None:
        raise Problem(404, NO_SUCH_TOPIC)
    result: SearchResult | None = None
    problem: Problem | None = None
    understood: RecordFilter | None = None
    try:
        query = query_of(request, RecordsQuery)
        show = show_rows(decoders_of(query), PREVIEW_BYTES)
        understood = compiled_filter(query.where)
        result = await while_connected(request, lambda: search_records(state, topic, query, show, seconds=PAGE_SECONDS))
        if result is None:
            return Response(status_code=204)
    except Problem as refusal:
        problem = refusal
    is_topic = topic in state.cluster.topics.names()  # the metadata log is none
    context = frame(request) | {
        "topic": topic,
        "tabs": tabs_of(request, topic) if is_topic else (),
        "is_topic": is_topic,
        "partition_count": len(readable),
        "asked": defaultdict(str, request.query_params),
        "problem": problem,
        "understood": understood,
        "takes_records": state.cluster.messages.takes_records(topic),
        "jobs": [],
    }
    if result is not None and result.ended_by in TOO_LARGE:
        context["jobs"] = [job(topic, query, context["bootstrap"]) for job in (export_command, spark_lines)]
    render = partial(render_messages, context, result)
    return await page_response(request, render, 200 if problem is None else problem.status)


def render_messages(context: dict[str, Any], result: SearchResult | None) -> str:
    """The page of a search; runs in a worker thread."""
    asked: dict[str, str] = context["asked"]
    kept = kept_parameters(asked)
    page = TEMPLATES.get_template("messages/messages.html").render(
        **context,
        here="topics",
        script="messages.js",
        result=result,
        ending="" if result is None or result.ended_by is None else ENDINGS[result.ended_by],
        endings={end.value: words for end, words in ENDINGS.items()},
        nothing="" if result is None else nothing_text(result),
        starts=STARTS,
        decoders=DECODER_NAMES,
        here_query=urlencode(kept),
        further=None
        if result is None or result.next_cursor is None
        else urlencode(kept | {"cursor": result.next_cursor}),
        export_query=urlencode({name: text for name, text in asked.items() if text and name != "format"}),
    )
    return encodable(page)


def nothing_text(result: SearchResult) -> str:
    """What stands where the rows of a search with a filter would, until the script finds some."""
    if result.ended_by is SearchEnd.END:
        return f"No record matches; {number_text(result.searched_records)} were searched."
    left = number_text(result.left_records)
    return f"No record matches yet; {number_text(result.searched_records)} were searched, {left} are left."


def encodable(page: str) -> str:
    """``page`` without half surrogates, which JSON can bring and UTF-8 has not."""
    return page.encode("utf-8", "backslashreplace").decode()


@requires(Role.VIEWER, of_topic(READ_TOPIC), of_metadata_log())
async def get_message_page(request: Request) -> Response:
    """The page of one record, or of the first one behind its place if that is empty."""
    state, topic = state_of(request), request.path_params["topic"]
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    if partition > MAX_PARTITION or offset >= MAX_OFFSET:
        raise Problem(404, "no partition has this number, or no record this offset")
    asked = query_of(request, RecordsQuery)
    query = attrs.evolve(asked, from_="offset", offset=offset, partitions=str(partition), limit=1, cursor="", where="")
    show = show_details(decoders_of(query))
    result = await while_connected(request, lambda: search_records(state, topic, query, show))
    if result is None:
        return Response(status_code=204)
    context = frame(request) | {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "asked": defaultdict(str, request.query_params),
        "takes_records": state.cluster.messages.takes_records(topic),
        "has_page": topic in state.cluster.topics.names(),
    }
    render = partial(render_message, context, result)
    return await page_response(request, render, 200 if result.records else 404)


def show_details(decoders: Decoders) -> Show:
    """Show a record as ``RecordDetail``."""

    def show(variables: RecordVariables, batch: BatchInfo) -> ShownRecord:
        row, record = message_row(variables, batch, decoders, MAX_SHOWN_BYTES), variables.record
        return ShownRecord(
            RecordDetail(row, hex_dump(record.key), hex_dump(record.value), prefilled(record, batch)), row.size_bytes
        )

    return show


def prefilled(record: StoredRecord, batch: BatchInfo) -> Mapping[str, Any] | None:
    """The fields of the form that appends a record like this one."""
    if batch.control or len(record.key or b"") + len(record.value or b"") > MAX_FORM_BYTES:
        return None
    headers = [
        {"key": readable_name(name), **text_or_base64("value", data)} for name, data in record.headers[:MAX_HEADERS]
    ]
    return {
        **form_fields("key", record.key),
        **form_fields("value", record.value),
        "tombstone": record.value is None,
        "headers": json.dumps(headers) if headers else "",
    }


def form_fields(name: str, data: bytes | None) -> dict[str, str]:
    """Bytes as text, if they can be typed, else in base64."""
    if data is None:
        return {}
    text = data.decode("utf-8", "backslashreplace")
    # A field of one line, or of lines, gives back nothing else as it was.
    if text.encode() == data and (text.isprintable() or (name == "value" and text.replace("\n", "").isprintable())):
        return {name: text}
    return {name: base64.b64encode(data).decode(), f"{name}_format": "base64"}


def render_message(context: dict[str, Any], result: SearchResult) -> str:
    """The page of a record; runs in a worker thread."""
    found: Any = result.records[0] if result.records else None
    page = TEMPLATES.get_template("messages/message.html").render(
        **context,
        here="topics",
        script="messages.js",
        detail=found,
        has_next=result.left_records > 0,
        errors=result.errors,
        decoders=DECODER_NAMES,
        max_decoded_bytes=MAX_DECODED_BYTES,
        block_text=block_text,
        is_structure=is_structure,
    )
    return encodable(page)


def is_structure(part: MessagePart) -> bool:
    """Whether a part is an object or a list, which the script shows as a tree."""
    return isinstance(part.data, dict | list)


def block_text(part: MessagePart) -> str:
    """A part as lines of text that can all be seen; objects and lists indented."""
    if is_structure(part):
        return escape_unprintable(json.dumps(part.data, ensure_ascii=False, indent=2), LINE_ENDS_AND_TABS)
    return escape_unprintable(line_text(part.data), LINE_ENDS_AND_TABS)


def hex_dump(data: bytes | None) -> str:
    """The first bytes in lines of sixteen, with their letters beside them."""
    lines = []
    for start in range(0, min(len(data or b""), HEX_BYTES), 16):
        piece = (data or b"")[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{start:08x}  {piece.hex(' ', 1):<47}  {letters}")
    return "\n".join(lines)


ROUTES = [
    Route("/topics/{topic}/messages", get_messages_page),
    Route("/topics/{topic}/messages/{partition:int}/{offset:int}", get_message_page),
]
