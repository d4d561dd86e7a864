"""``/api/v1/topics/{topic}/records``: a topic's records, found by place, time and filter.

GET answers JSON, or ``application/x-ndjson`` and ``text/csv`` where the Accept header or ``format`` asks for these. Two
searches run at once; a third one waits a little. A search ends when its client goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.app_state import AppState, now_ms_of, state_of
from broker_admin.encoding import json_response_from_thread
from broker_admin.event_stream import cancel_at_disconnect
from broker_admin.messages.export import CSV_COLUMNS, csv_text, show_lines
from broker_admin.messages.query import (
    RecordsQuery,
    chosen_partitions,
    compiled_filter,
    decoders_of,
    is_forward,
    scan_ranges,
)
from broker_admin.messages.record_body import RecordBody
from broker_admin.messages.rows import Show, show_rows
from broker_admin.messages.search import MessageSearch, SearchResult
from broker_admin.operations import TextContent, operation, query_of
from broker_admin.problems import Problem
from broker_admin.texts import export_name

T = TypeVar("T")

WAIT_SECONDS = 5.0
"""How long a search waits for its turn: two searches take about four seconds."""

CONTENTS_ARE_OFF = "contents of records are not shown here: admin.messages.enabled is false"

NO_SUCH_TOPIC = "there is no such topic here; /api/v1/topics lists those there are"

PROBLEMS = {
    403: "contents are switched off by admin.messages.enabled, or the Host or Origin header is not one of this server",
    404: "there is no such topic or partition",
    503: "two searches are under way and take long",
}

NDJSON, CSV = "application/x-ndjson", "text/csv"


def require_contents(state: AppState) -> None:
    """Refuse to show or append records where the broker's settings say so.

    Raises:
        Problem: 403.
    """
    if not state.cluster.messages.contents_enabled():
        raise Problem(403, CONTENTS_ARE_OFF)


async def prepared_search(state: AppState, topic: str, query: RecordsQuery, show: Show) -> MessageSearch:
    """The search that ``query`` asks for, before its first turn.

    Raises:
        Problem: the query is wrong, or records are not shown here.
    """
    require_contents(state)
    readable = state.cluster.messages.readable_partitions(topic)
    if readable is None:
        raise Problem(404, NO_SUCH_TOPIC)
    filter_, decoders = compiled_filter(query.where), decoders_of(query)
    chosen = chosen_partitions(query.partitions, readable)
    ranges = await scan_ranges(state.cluster.messages, topic, query, chosen)
    return MessageSearch(
        ranges,
        forward=is_forward(query),
        limit=query.limit,
        filter_=filter_,
        decoders=decoders,
        show=show,
        errors={each.partition: each.error for each in chosen if each.error is not None},
    )


async def search_records(
    state: AppState, topic: str, query: RecordsQuery, show: Show, *, seconds: float | None = None
) -> SearchResult:
    """Search as ``query`` says in one turn of at most ``seconds``, or two, when it is this search's turn.

    Raises:
        Problem: as of ``prepared_search``, or too much else is under way.
    """
    search = await prepared_search(state, topic, query, show)
    with trio.move_on_after(WAIT_SECONDS) as waiting:
        async with state.searching:
            # The time is that of waiting for a turn alone.
            waiting.deadline = float("inf")
            await search.turn(state.cluster.messages, topic, state.search_threads, seconds=seconds)
            return search.result()
    raise Problem(503, "other searches take long; try again in some seconds")


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


def wanted_format(request: Request, asked: str) -> str:
    """``json``, ``ndjson`` or ``csv``, as the query or the Accept header says."""
    accept = request.headers.get("accept", "")
    if asked:
        return asked
    return "ndjson" if NDJSON in accept else "csv" if CSV in accept else "json"


@operation(
    SearchResult,
    query=RecordsQuery,
    problems=PROBLEMS,
    other_answers=(
        TextContent(
            NDJSON,
            "each record with its own bytes, in base64 where they are not UTF-8; POST to this address takes them back",
            '{"topic":"orders","partition":0,"offset":7,"timestamp":1795387935000,"timestamp_type":"create",'
            '"key":"c1","value_base64":"AAEC","headers":[]}\n',
            line=RecordBody,
            lacks_defaults=True,
        ),
        TextContent(
            CSV,
            f"a line of names, and each record with its decoded text: {', '.join(CSV_COLUMNS)}; a cell that a"
            " spreadsheet would run as a formula begins with an apostrophe",
            ",".join(CSV_COLUMNS) + "\r\n0,7,2026-11-22T20:12:15.000Z,c1,paid,,6,none,\r\n",
        ),
    ),
    answer_headers={
        "x-ended-by": "of the other media types: `ended_by`, why the search ended",
        "x-next-cursor": "of the other media types: `next_cursor`, where another search goes on; absent at the end",
    },
)
async def get_records(request: Request) -> Response:
    """The records of a topic: newest first, or from a place or a time on, oldest first; those that a filter lets pass.

    A search takes two seconds, or as long as a thousand records take, and reads 64 MiB at the most; ``ended_by`` says
    why it ended, and ``next_cursor`` goes on from there, as ``/search`` does by itself. As ``application/x-ndjson``
    each record is a line with its own bytes, which can be appended again; as ``text/csv`` it is a line with its decoded
    text.
    """
    state, query, topic = state_of(request), query_of(request, RecordsQuery), request.path_params["topic"]
    form = wanted_format(request, query.format)
    show = show_lines(topic) if form == "ndjson" else show_rows(decoders_of(query), query.max_value_bytes)
    result = await while_connected(request, lambda: search_records(state, topic, query, show))
    if result is None:
        return Response(status_code=204)
    if form == "json":
        return await json_response_from_thread(result)
    text = "".join(map(str, result.records)) if form == "ndjson" else csv_text(result.records)
    assert result.ended_by is not None
    name = export_name(topic, now_ms_of(state.node), form)
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-ended-by": result.ended_by.value}
    if result.next_cursor is not None:
        headers["x-next-cursor"] = result.next_cursor
    body = await trio.to_thread.run_sync(text.encode, "utf-8", "replace")
    return Response(body, media_type=NDJSON if form == "ndjson" else CSV, headers=headers)


ROUTES = [Route("/api/v1/topics/{topic}/records", get_records)]
