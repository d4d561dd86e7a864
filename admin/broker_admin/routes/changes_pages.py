"""The pages about changes: ``/changes``, a list that is searched and filtered by its address, and one page for each."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.change_list import (
    ACTION_TITLES,
    CHANNEL_TITLES,
    WORDS,
    ChangesQuery,
    select_changes,
)
from broker_admin.operations import query_of
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import of_cluster, requires
from broker_admin.routes.changes import change_of
from broker_admin.routing import Route
from broker_admin.tables import Column, ListTable
from broker_admin.tokens import Role
from trio_broker.changes.change import ChangedResource
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER

COLUMNS = (
    Column("Change", order="number", is_number=True),
    Column("When"),
    Column("What"),
    Column("By", hidden_below="narrow"),
    Column("Effect", hidden_below="narrow"),
)


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_changes_page(request: Request) -> Response:
    """The list of changes."""
    query = query_of(request, ChangesQuery)
    changes = cluster_of(request).changes.list()
    page = await trio.to_thread.run_sync(select_changes, changes, query)
    table = ListTable("/changes", COLUMNS, query, page, request.query_params, lambda change: str(change.number))
    context = {
        **frame(request),
        **WORDS,
        "here": "changes",
        "script": "changes.js",
        "table": table,
        "export_query": filters_of(query),
        "actions": [action.value for action in ACTION_TITLES],
        "resource_types": [each.value for each in ChangedResource],
        "channels": {channel.value: title for channel, title in CHANNEL_TITLES.items()},
    }
    return await page_response(request, partial(render_template, "changes/list.html", context))


def filters_of(query: ChangesQuery) -> str:
    """The filters as the beginning of another query."""
    given = {name: getattr(query, name) for name in ("search", "action", "resource_type", "resource", "channel")}
    return "".join(f"{urlencode({name: text})}&" for name, text in given.items() if text)


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_change_page(request: Request) -> Response:
    """One change."""
    context = frame(request) | WORDS | {"here": "changes", "script": "fresh.js", "change": change_of(request)}
    return await page_response(request, partial(render_template, "changes/change.html", context))


ROUTES = [
    Route("/changes", get_changes_page),
    Route("/changes/{number:int}", get_change_page),
]
