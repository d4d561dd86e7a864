"""The overview, rendered here with Jinja2, and the few assets of all pages, served from memory.

The page is whole without its script: readings as of now, the journal, the topics, the groups. The script adds what
moves. What both need to know (the node, the knobs, the curl command) is put into the page once, as data attributes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from broker_admin.encoding import mask_changes, sensitive_keys
from broker_admin.group_list import GroupList, GroupOrder, GroupQuery, select_groups
from broker_admin.knobs import knob_states
from broker_admin.parts import parts_of
from broker_admin.texts import (
    bytes_text,
    clock_text,
    duration_text,
    member_tail,
    number_text,
    partitions_text,
    short_duration_text,
    shown_text,
    time_text,
)
from broker_admin.view import BrokerView, ConfigChange, TopicInfo

UI_DIRECTORY = Path(__file__).parent.parent / "ui"

SHOWN_TOPICS = 200
"""Rows of the topic table. A page of ten thousand rows helps nobody; the API has them all."""

SHOWN_CHANGES = 12
"""Lines of the journal on the page; the API has the rest."""

SHOWN_GROUPS = 10
"""Rows of the table of groups: those that are furthest behind. The page of groups has the others."""

LINKED_CHARACTERS = 1000
"""Ids of groups up to this length are links. A page full of ids of 32 KB, each written as 96 KB, would be slow."""

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def partition_records(topic: TopicInfo) -> int:
    """Offsets between start and end, over all partitions; the records of a topic that is not compacted."""
    return sum(partition.log_end_offset - partition.log_start_offset for partition in topic.partitions)


def topic_bytes(topic: TopicInfo) -> int:
    return sum(partition.size_bytes for partition in topic.partitions)


def page_environment() -> jinja2.Environment:
    """Jinja2 with escaping on, no name left undefined, and the filters of the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(UI_DIRECTORY / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bytes_text=bytes_text,
        number_text=number_text,
        duration_text=duration_text,
        time_text=time_text,
        clock_text=clock_text,
        member_tail=member_tail,
        short_duration_text=short_duration_text,
        shown_text=shown_text,
        partitions_text=partitions_text,
        quoted=lambda text: quote(text, safe=""),
        partition_records=partition_records,
        topic_bytes=topic_bytes,
    )
    environment.globals["linked_characters"] = LINKED_CHARACTERS
    return environment


TEMPLATES = page_environment()


def frame(view: BrokerView, request: Request) -> dict[str, Any]:
    """What every page's frame says."""
    return frame_at(view, str(request.base_url).rstrip("/"))


def frame_at(view: BrokerView, base_url: str) -> dict[str, Any]:
    """As ``frame``; ``base_url`` is how the caller reached us, for the commands shown."""
    return {"node": view.node(), "readiness": view.readiness(), "base_url": base_url, "assets": ASSETS}


def render_page(view: BrokerView, base_url: str, group_list: GroupList) -> str:
    """The overview as the broker stands now, with a few groups."""
    topics = view.topics()
    return TEMPLATES.get_template("page.html").render(
        **frame_at(view, base_url),
        here="overview",
        script="page.js",
        threads=view.threads(),
        knobs=knob_states(view.config_entries()),
        changes=shown_changes(view),
        topics=topics[:SHOWN_TOPICS],
        topic_count=len(topics),
        group_list=group_list,
    )


async def furthest_behind(view: BrokerView) -> GroupList:
    """The groups that somebody should look at first."""
    query = GroupQuery(order=GroupOrder.LAG_SECONDS, limit=SHOWN_GROUPS)
    return await trio.to_thread.run_sync(select_groups, await view.groups(), query)


def shown_changes(view: BrokerView) -> list[ConfigChange]:
    """The last changes, newest first, as the page's table has them."""
    masked = mask_changes(view.journal()[-SHOWN_CHANGES:], sensitive_keys(view.config_entries()))
    return masked[::-1]


class Asset:
    """One file of the page, read once; its tag changes with its content, so that browsers may keep it."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.content = path.read_bytes()
        self.tag = hashlib.sha256(self.content).hexdigest()[:16]
        self.media_type = MEDIA_TYPES[path.suffix]

    @property
    def url(self) -> str:
        return f"/static/{self.name}?{self.tag}"


ASSETS = {path.name: Asset(path) for path in sorted((UI_DIRECTORY / "static").iterdir()) if path.suffix in MEDIA_TYPES}


async def get_page(request: Request) -> Response:
    """The admin page."""
    view = parts_of(request).view
    group_list = await furthest_behind(view)
    return HTMLResponse(render_page(view, str(request.base_url).rstrip("/"), group_list))


async def get_topic_rows(request: Request) -> Response:
    """The rows of the topic table, for the page to put in place."""
    topics = parts_of(request).view.topics()[:SHOWN_TOPICS]
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
    Route("/", get_page),
    Route("/rows/topics", get_topic_rows),
    Route("/rows/groups", get_group_rows),
    Route("/rows/journal", get_journal_rows),
    Route("/static/{name}", get_asset),
]
