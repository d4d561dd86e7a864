"""The pages about groups: ``/groups``, a list that is searched and ordered by its address, and one page for each group.

A group's page is ``/groups/{id}``; an id that no path can carry goes into the query (``/groups/-?id=..``). The pages
are put together and rendered in a worker thread; a page of a large group takes some tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import trio
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from broker_admin.group_actions import group_actions, group_address
from broker_admin.group_detail import group_detail
from broker_admin.group_diagnosis import diagnosis
from broker_admin.group_list import GroupOrder, GroupQuery, select_groups
from broker_admin.lag_picture import lag_picture
from broker_admin.pages import TEMPLATES, frame
from broker_admin.parts import parts_of
from broker_admin.routes.groups import GroupRoute, group_id_of, group_query, now_ms
from trio_broker.coordinator.reporting.snapshot import (
    GroupLagHistory,
    GroupLagReport,
    GroupOffsets,
    GroupSnapshot,
    GroupType,
    Rebalance,
)

STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Empty", "Dead")
"""The states of both kinds of groups, for the choice on the page."""

ORDERS: Mapping[GroupOrder, str] = {
    GroupOrder.LAG_SECONDS: "furthest behind in time",
    GroupOrder.LAG_RECORDS: "furthest behind in records",
    GroupOrder.LAST_REBALANCE: "latest rebalance",
    GroupOrder.MEMBER_COUNT: "most members",
    GroupOrder.GROUP_ID: "id",
}


async def get_groups_page(request: Request) -> Response:
    """The list of groups."""
    query = group_query(request.query_params, GroupOrder.LAG_SECONDS)
    parts = parts_of(request)
    report = await parts.view.groups()
    context = frame(parts.view, request) | {"query": query, "parameters": request.query_params}
    return HTMLResponse(
        await trio.to_thread.run_sync(partial(render_groups, context, report, query), limiter=parts.rendering)
    )


def render_groups(context: dict[str, Any], report: GroupLagReport, query: GroupQuery) -> str:
    """The page of the list; runs in a worker thread."""
    group_list = select_groups(report, query)
    parameters = context["parameters"]
    behind = query.offset + query.limit
    return TEMPLATES.get_template("groups.html").render(
        **context,
        here="groups",
        script="groups.js",
        group_list=group_list,
        states=STATES,
        types=[each.value for each in GroupType],
        orders=ORDERS,
        api_address=address("/api/v1/groups", parameters, order=query.order.value),
        earlier=address("/groups", parameters, offset=max(0, query.offset - query.limit)) if query.offset else None,
        further=address("/groups", parameters, offset=behind) if behind < group_list.matching else None,
    )


def address(path: str, parameters: QueryParams, **changed: str | int) -> str:
    """``path`` with the query that is in force, but for what is ``changed``; empty parameters fall away."""
    kept = [(name, value) for name, value in parameters.multi_items() if value and name not in changed]
    return f"{path}?{urlencode([*kept, *changed.items()])}"


async def get_group_page(request: Request) -> Response:
    """The page of one group; under ``/reset`` it opens with the reset of its offsets."""
    parts = parts_of(request)
    group_id = group_id_of(request)
    context = frame(parts.view, request)
    async with parts.reading_lag:
        offsets = await parts.view.group_offsets(group_id)
    # Read after the wait above, without another between them: members and timeline then belong together.
    group, rebalances = parts.view.group(group_id), parts.view.group_timeline(group_id)
    history = parts.view.group_lag_history(group_id)
    if offsets is None or group is None or rebalances is None or history is None:
        page = TEMPLATES.get_template("no_group.html").render(
            **context, here="groups", script="groups.js", group_id=group_id
        )
        return HTMLResponse(page, 404)
    render = partial(render_group, context, group, offsets, tuple(rebalances), history, now_ms(parts.view))
    return HTMLResponse(await trio.to_thread.run_sync(render, limiter=parts.rendering))


def render_group(
    context: dict[str, Any],
    group: GroupSnapshot,
    offsets: GroupOffsets,
    rebalances: tuple[Rebalance, ...],
    history: GroupLagHistory,
    at_ms: int,
) -> str:
    """The page of one group; runs in a worker thread."""
    detail = group_detail(group, offsets, rebalances, at_ms)
    actions = group_actions(group, offsets, context["node"])
    return TEMPLATES.get_template("group.html").render(
        **context,
        **{field.name: getattr(detail, field.name) for field in attrs.fields(type(detail))},
        here="groups",
        script="group.js",
        api_address=f"/api/v1/groups/{quote(group.group_id, safe='')}",
        actions=actions,
        findings=diagnosis(group, offsets, history.rates, rebalances, at_ms).findings,
        history=history,
        lag_chart=lag_picture(history, rebalances, at_ms),
    )


async def redirect_to_group_page(request: Request) -> Response:
    """The former address of a group's page."""
    return RedirectResponse(group_address(request.query_params.get("group_id", "")), 308)


ROUTES = [
    Route("/groups", get_groups_page),
    Route("/groups/detail", redirect_to_group_page),
    GroupRoute("/groups/{group_id}", get_group_page),
    GroupRoute("/groups/{group_id}/reset", get_group_page),
]
