"""The pages about groups: ``/groups``, a list that is searched and ordered by its address, and one page for each group.

A group's page is ``/groups/{id}``; an id that no path can carry goes into the query (``/groups/-?id=..``). The pages
are put together and rendered in a worker thread; a page of a large group takes some tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import attrs
import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from broker_admin.app_state import now_ms_of, state_of
from broker_admin.group_actions import group_actions, group_address
from broker_admin.group_detail import group_detail
from broker_admin.group_diagnosis import diagnosis
from broker_admin.group_list import GROUP_COLUMNS, GroupsQuery, select_groups
from broker_admin.listing import Page, ordered_by
from broker_admin.operations import query_of
from broker_admin.pages import TEMPLATES, frame, page_response, render_template
from broker_admin.requirements import in_handler, left_out, of_group, requires
from broker_admin.routing import GroupRoute, Route, group_id_of
from broker_admin.series_chart import (
    GROUP_CHARTS,
    RANGES,
    RangeQuery,
    range_links,
    rebalance_marks,
    series_charts,
)
from broker_admin.tables import Column, ListTable
from broker_admin.texts import shown_text
from broker_admin.tokens import Role
from broker_admin.views.node.readings import SeriesReport
from broker_admin.visible import visible_groups, visible_held_back, visible_offsets
from trio_broker.coordinator.reporting.snapshot import (
    GroupLagHistory,
    GroupOffsets,
    GroupSnapshot,
    GroupType,
    Rebalance,
)
from trio_broker.coordinator.transactions.transaction_snapshot import HeldBackPartition
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP, DESCRIBE_TOPIC

STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Empty", "Dead")
"""The states of both kinds of groups, for the choice on the page."""

GROUP_TABLE = [
    Column("Group", "group_id"),
    Column("Lag, time", "lag_seconds", is_number=True),
    Column("Lag, records", "lag_records", is_number=True, hidden_below="narrow"),
    Column("Consumes", "consumed", is_number=True, hidden_below="narrow", explanation="by what it commits"),
    Column("Catches up", "catches_up", explanation="if both rates stay as they are"),
    Column("State", "state", hidden_below="narrow"),
    Column("Members", "members", is_number=True, hidden_below="narrow"),
    Column("Partitions", "partitions", is_number=True, hidden_below="medium"),
    Column("Protocol", hidden_below="medium"),
    Column("Last rebalance", "last_rebalance", is_number=True, hidden_below="medium"),
]


@attrs.frozen(kw_only=True)
class GroupsPageQuery(GroupsQuery):
    """As the list of the API, those furthest behind first."""

    order: str = ordered_by("-lag_seconds", GROUP_COLUMNS)


@requires(Role.VIEWER, in_handler(DESCRIBE_CLUSTER, DESCRIBE_GROUP, note="left out, without the first"))
async def get_groups_page(request: Request) -> Response:
    """The list of groups."""
    query = query_of(request, GroupsPageQuery)
    group_list = await trio.to_thread.run_sync(select_groups, await visible_groups(request), query)
    page = Page(group_list.items, group_list.total, group_list.matching, group_list.next_cursor)
    context = frame(request) | {
        "here": "groups",
        "script": "groups.js",
        "table": ListTable(
            "/groups", GROUP_TABLE, query, page, request.query_params, key_of=lambda lag: shown_text(lag.group.group_id)
        ),
        "query": query,
        "is_complete": group_list.is_complete,
        "states": STATES,
        "types": [each.value for each in GroupType],
    }
    return await page_response(request, partial(render_template, "groups.html", context))


@attrs.frozen
class GroupPageQuery(RangeQuery):
    """Which group, as for the API, and what time its charts show."""

    id: str | None = None


@requires(Role.VIEWER, of_group(DESCRIBE_GROUP), left_out(DESCRIBE_TOPIC))
async def get_group_page(request: Request) -> Response:
    """The page of one group; under ``/reset`` it opens with the reset of its offsets."""
    state = state_of(request)
    group_id = group_id_of(request)
    chosen = query_of(request, GroupPageQuery).range
    at_ms = now_ms_of(state.node)
    context = frame(request) | {
        "ranges": range_links(group_address(group_id).partition("?")[0], request.query_params, chosen, "history-title"),
        "time_range": RANGES[chosen],
    }
    span = RANGES[chosen]
    series = await state.node.readings.group_series(group_id, at_ms - span.span_ms, at_ms + 1, span.step_ms)
    held_back = (await visible_held_back(request)).held_back
    async with state.reading_lag:
        offsets = await visible_offsets(request, group_id)
    # Read after the wait above, without another between them: members and timeline then belong together.
    group, rebalances = state.cluster.groups.get(group_id), state.cluster.groups.timeline(group_id)
    history = state.cluster.groups.lag_history(group_id)
    if offsets is None or group is None or rebalances is None or history is None or series is None:
        page = TEMPLATES.get_template("no_group.html").render(
            **context, here="groups", script="groups.js", group_id=group_id
        )
        return HTMLResponse(page, 404)
    render = partial(
        render_group, context, group, offsets, tuple(rebalances), history, series, now_ms_of(state.node), held_back
    )
    return await page_response(request, render)


def render_group(
    context: dict[str, Any],
    group: GroupSnapshot,
    offsets: GroupOffsets,
    rebalances: tuple[Rebalance, ...],
    history: GroupLagHistory,
    series: SeriesReport,
    at_ms: int,
    held_back: Sequence[HeldBackPartition],
) -> str:
    """The page of one group; runs in a worker thread."""
    detail = group_detail(group, offsets, rebalances, at_ms)
    actions = group_actions(group, offsets)
    return TEMPLATES.get_template("group.html").render(
        **context,
        **{field.name: getattr(detail, field.name) for field in attrs.fields(type(detail))},
        here="groups",
        script="group.js",
        api_address=f"/api/v1/groups/{quote(group.group_id, safe='')}",
        actions=actions,
        findings=diagnosis(group, offsets, history.rates, rebalances, at_ms, held_back).findings,
        history=history,
        lag_charts=series_charts(series, GROUP_CHARTS, context["time_range"], at_ms, rebalance_marks(rebalances)),
    )


ROUTES = [
    Route("/groups", get_groups_page),
    GroupRoute("/groups/{group_id}", get_group_page),
    GroupRoute("/groups/{group_id}/reset", get_group_page),
]
