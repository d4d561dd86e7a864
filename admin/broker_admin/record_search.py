"""What every address about records does: see whether they may be shown, and search them when it is its turn."""

from __future__ import annotations

import trio

from broker_admin.app_state import AppState
from broker_admin.messages.query import (
    RecordsQuery,
    chosen_partitions,
    compiled_filter,
    decoders_of,
    is_forward,
    scan_ranges,
)
from broker_admin.messages.rows import Show
from broker_admin.messages.search import MessageSearch, SearchResult
from broker_admin.problems import Problem

WAIT_SECONDS = 5.0
"""How long a search waits for its turn: two searches take about four seconds."""

CONTENTS_ARE_OFF = "contents of records are not shown here: admin.messages.enabled is false"

NO_SUCH_TOPIC = "there is no such topic here; /api/v1/topics lists those there are"

PROBLEMS = {
    403: "contents are switched off by admin.messages.enabled, or the Host or Origin header is not one of this server",
    404: "there is no such topic or partition",
    503: "two searches are under way and take long",
}


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
    readable = await state.cluster.messages.readable_partitions(topic)
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
