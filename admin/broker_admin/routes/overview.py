"""``/``, the overview, and the rows of its tables, which the page reads again while it is open."""

from __future__ import annotations

from typing import Any

import attrs
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from broker_admin.encoding import mask_changes, sensitive_keys
from broker_admin.group_list import GroupList, GroupsQuery, select_groups
from broker_admin.knobs import knob_states
from broker_admin.pages import ASSETS, TEMPLATES, frame
from broker_admin.parts import parts_of
from broker_admin.view import BrokerView
from broker_admin.views.config import SettingChange
from trio_broker.metrics.topics import TopicInfo

SHOWN_TOPICS = 200
"""Rows of the topic table. A page of ten thousand rows is slow and helps nobody; the API lists all."""

SHOWN_CHANGES = 12
"""Lines of the journal on the page; the API has the rest."""

SHOWN_GROUPS = 10
"""Rows of the table of groups: those that are furthest behind. The page of groups has the others."""


@attrs.frozen
class TopicTable:
    """The rows of the topic table: ``shown`` of the ``count`` topics that are not hidden.

    Internal topics are hidden unless they are asked for: they come first by name, and are rarely looked for.
    """

    shown: tuple[TopicInfo, ...]
    count: int
    internal_count: int
    with_internal: bool


def topic_table(view: BrokerView, *, with_internal: bool) -> TopicTable:
    """The first topics by name, with the internal ones or without."""
    topics = view.topics.list()
    chosen = [topic for topic in topics if with_internal or not topic.internal]
    return TopicTable(
        shown=tuple(chosen[:SHOWN_TOPICS]),
        count=len(chosen),
        internal_count=sum(topic.internal for topic in topics),
        with_internal=with_internal,
    )


def wants_internal(request: Request) -> bool:
    """Whether the page's address asks for internal topics too."""
    return request.query_params.get("internal") == "true"


def render_overview(view: BrokerView, frame: dict[str, Any], group_list: GroupList, topics: TopicTable) -> str:
    """The overview as the broker stands now, with a few groups."""
    return TEMPLATES.get_template("overview.html").render(
        **frame,
        here="overview",
        script="overview.js",
        threads=view.readings.threads(),
        knobs=knob_states(view.config.entries()),
        changes=shown_changes(view),
        topics=topics,
        group_list=group_list,
    )


async def furthest_behind(view: BrokerView) -> GroupList:
    """The groups that are furthest behind."""
    query = GroupsQuery(order="-lag_seconds", limit=SHOWN_GROUPS)
    return await trio.to_thread.run_sync(select_groups, await view.groups.report(), query)


def shown_changes(view: BrokerView) -> list[SettingChange]:
    """The last changes, newest first, as the page's table has them."""
    masked = mask_changes(view.config.setting_changes()[-SHOWN_CHANGES:], sensitive_keys(view.config.entries()))
    return masked[::-1]


async def get_overview(request: Request) -> Response:
    """The overview."""
    view = parts_of(request).view
    group_list = await furthest_behind(view)
    topics = topic_table(view, with_internal=wants_internal(request))
    return HTMLResponse(render_overview(view, frame(view, request), group_list, topics))


async def get_topic_rows(request: Request) -> Response:
    """The rows of the topic table, for the page to put in place."""
    topics = topic_table(parts_of(request).view, with_internal=wants_internal(request))
    return HTMLResponse(TEMPLATES.get_template("topics.html").render(topics=topics))


async def get_group_rows(request: Request) -> Response:
    """The rows of the overview's table of groups, for the page to put in place."""
    group_list = await furthest_behind(parts_of(request).view)
    return HTMLResponse(TEMPLATES.get_template("group_rows.html").render(group_list=group_list))


async def get_journal_rows(request: Request) -> Response:
    """The rows of the table of changes, for the page to put in place."""
    changes = shown_changes(parts_of(request).view)
    return HTMLResponse(TEMPLATES.get_template("journal.html").render(changes=changes))


async def get_asset(request: Request) -> Response:
    """A file of the page, by its plain name."""
    asset = ASSETS.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    etag = f'"{asset.tag}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


ROUTES = [
    Route("/", get_overview),
    Route("/rows/topics", get_topic_rows),
    Route("/rows/groups", get_group_rows),
    Route("/rows/journal", get_journal_rows),
    Route("/static/{name}", get_asset),
]
