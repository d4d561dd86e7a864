"""``/api/v1/topics/{topic}/search``: a search through records that goes on by itself, and sends what it finds at once.

It is the search of ``/records``, turn by turn: each line is the result of a turn, and the last one says why the search
ended. A search that ends, is left or cancelled goes on by the cursor of its last line, here or there. All searches take
turns, so a long one delays the others by a turn. Nothing is read while the client does not take what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import AppState, state_of
from broker_admin.event_stream import EventStream, SendText, require_room
from broker_admin.exports import NDJSON
from broker_admin.messages.large_scan import TOO_LARGE
from broker_admin.messages.query import RecordsQuery, decoders_of
from broker_admin.messages.rows import show_rows
from broker_admin.messages.search import MessageSearch, SearchResult
from broker_admin.operations import TextContent, operation, query_of
from broker_admin.record_rows import HTML, JSON, PREVIEW_BYTES, event_data
from broker_admin.record_search import PROBLEMS, prepared_search
from broker_admin.requirements import of_metadata_log, of_topic, requires
from broker_admin.routing import Route
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import READ_TOPIC

TURN_SECONDS = 0.25
"""A turn takes about this long at the most: as often as one can see a change."""

STREAM_SECONDS = 600.0
"""A search that was forgotten ends by itself; its cursor goes on."""


@attrs.frozen(kw_only=True)
class StreamedSearchQuery(RecordsQuery):
    """A search as of ``/records``. ``format`` is json, or html for rows of the page's table instead of ``records``."""

    format: str = bounded(JSON, enum=[JSON, HTML])


@attrs.frozen
class StreamedSearch:
    """One client's search; ``asked`` are the parameters of its address."""

    state: AppState
    topic: str
    search: MessageSearch
    asked: Mapping[str, str]

    async def send_lines(self, send_text: SendText) -> None:
        """Send the result of each turn until the search has ended, or its time is over."""
        ends_at = trio.current_time() + STREAM_SECONDS
        goes_on = True
        while goes_on:
            async with self.state.searching:
                await self.search.turn(
                    self.state.cluster.messages, self.topic, self.state.search_threads, seconds=TURN_SECONDS
                )
            goes_on = self.search.ended_by in TOO_LARGE and trio.current_time() < ends_at
            result = self.search.result(goes_on=goes_on)
            line = await trio.to_thread.run_sync(
                event_data, result, self.topic, self.asked, limiter=self.state.search_threads
            )
            await send_text(f"{line}\n")


@requires(Role.VIEWER, of_topic(READ_TOPIC), of_metadata_log())
@operation(
    None,
    query=StreamedSearchQuery,
    media_type=NDJSON,
    problems=PROBLEMS,
    other_answers=(
        TextContent(
            NDJSON,
            "the result of each turn: what it found, how far the search came, and where another one goes on",
            '{"records":[],"ended_by":"end","understood":"","searched_records":7,"searched_bytes":712,"left_records":0,'
            '"left_bytes":0,"seconds":0.004,"failed_records":0,"first_failure":"","reached_ms":1795387935000,'
            '"reached_offset":0,"errors":[],"next_cursor":null}\n',
            line=SearchResult,
        ),
    ),
)
async def get_search(request: Request) -> Response | EventStream:
    """A search of ``/records`` that goes on until it has found enough, as a line of JSON four times a second.

    ``records`` of a line are new ones, by time within their line; all else counts from the beginning of the search.
    Only the last line has ``ended_by``: ``limit``, ``end``, ``size``, or ``time`` after ten minutes. A client that
    closes the connection ends the search; ``next_cursor`` of its last line goes on.
    """
    state, query, topic = state_of(request), query_of(request, StreamedSearchQuery), request.path_params["topic"]
    shown_bytes = query.max_value_bytes if query.format == JSON else PREVIEW_BYTES
    require_room(state, state.searches)
    search = await prepared_search(state, topic, query, show_rows(decoders_of(query), shown_bytes))
    streamed = StreamedSearch(state, topic, search, dict(request.query_params))
    return EventStream(state, streamed.send_lines, state.searches, NDJSON)


ROUTES = [Route("/api/v1/topics/{topic}/search", get_search)]
