"""``/api/v1/topics/{topic}/records``: a topic's records, found by place, time and filter.

GET answers JSON, or ``application/x-ndjson`` and ``text/csv`` where the Accept header or ``format`` asks for these. Two
searches run at once; a third one waits a little. A search ends when its client goes.
"""

from __future__ import annotations

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import now_ms_of, state_of
from broker_admin.event_stream import while_connected
from broker_admin.exports import CSV, NDJSON, wanted_format
from broker_admin.messages.export import CSV_COLUMNS, csv_text, show_lines
from broker_admin.messages.query import (
    RecordsQuery,
    decoders_of,
)
from broker_admin.messages.record_body import RecordBody
from broker_admin.messages.rows import show_rows
from broker_admin.messages.search import SearchResult
from broker_admin.operations import TextContent, operation, query_of
from broker_admin.record_search import PROBLEMS, search_records
from broker_admin.requirements import of_metadata_log, of_topic, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routing import Route
from broker_admin.texts import export_name
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import READ_TOPIC


@requires(Role.VIEWER, of_topic(READ_TOPIC), of_metadata_log())
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
