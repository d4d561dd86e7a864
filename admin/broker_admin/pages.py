"""What all pages are made with: the Jinja2 templates with their filters, the assets, the frame around every page.

A page renders a template that extends ``base.html`` with ``frame(request)``, ``here`` (its name in ``navigation.py``)
and ``script`` (its module in ``ui/static``, or None).

A page is whole without its script: it shows the readings of the time when it was rendered. The script adds what moves.
What both need (the node, the tunables, the curl command) is in the page once, as data attributes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from broker_admin import texts
from broker_admin.app_state import MAX_EVENT_STREAMS, node_of, state_of
from broker_admin.callers import caller_in
from broker_admin.change_list import band_text, difference_text, reading_text
from broker_admin.client_advice import error_advice
from broker_admin.forwarding import ASKED_THROUGH
from broker_admin.getting_started import bootstrap_address
from broker_admin.group_actions import LINKED_CHARACTERS, group_address
from broker_admin.navigation import at_one_broker
from broker_admin.node_addresses import NODE_API, NODE_PAGES, at_broker
from broker_admin.tokens import Role
from broker_admin.transaction_texts import held_for_text, holder_text, transaction_address
from broker_admin.views.node.start import StartView

VIEWER_REFUSAL = "A viewer changes nothing: log out, and in again with the token of an admin"
"""Beside what is greyed for a viewer."""

UI_DIRECTORY = Path(__file__).parent / "ui"

REFRESH_SECONDS = 1
"""How often the page of a broker that starts is loaded again; then the one that was asked for is there."""

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_environment() -> jinja2.Environment:
    """Jinja2 with escaping on, no name left undefined, and the filters of the pages."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(UI_DIRECTORY / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bytes_text=texts.bytes_text,
        number_text=texts.number_text,
        duration_text=texts.duration_text,
        time_text=texts.time_text,
        clock_text=texts.clock_text,
        member_tail=texts.member_tail,
        short_duration_text=texts.short_duration_text,
        shown_text=texts.shown_text,
        iso_time=texts.iso_time,
        line_text=texts.line_text,
        partitions_text=texts.partitions_text,
        code_marked=texts.code_marked,
        group_address=group_address,
        quoted=lambda text: quote(text, safe=""),
        reading_text=reading_text,
        band_text=band_text,
        difference_text=difference_text,
        error_advice=error_advice,
        transaction_address=transaction_address,
        held_for_text=held_for_text,
        holder_text=holder_text,
    )
    environment.globals["zip"] = zip
    environment.globals["viewer_refusal"] = VIEWER_REFUSAL
    environment.globals["linked_characters"] = LINKED_CHARACTERS
    environment.globals["max_event_streams"] = MAX_EVENT_STREAMS
    return environment


TEMPLATES = page_environment()


class Asset:
    """One file of the pages, read once; its tag changes with its content, so that browsers may keep it."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.content = path.read_bytes()
        self.tag = hashlib.sha256(self.content).hexdigest()[:16]
        self.media_type = MEDIA_TYPES[path.suffix]

    @property
    def url(self) -> str:
        return f"/static/{self.name}?{self.tag}"


ASSETS = {path.name: Asset(path) for path in sorted((UI_DIRECTORY / "static").iterdir()) if path.suffix in MEDIA_TYPES}


def frame(request: Request) -> dict[str, Any]:
    """What every page's frame shows, and where the caller reaches the admin app and the broker."""
    view = node_of(request)
    caller = caller_in(request.scope)
    node = view.identity.description()
    return {
        "node": node,
        "readiness": view.identity.readiness(),
        "read_at_ms": node.now_ms,
        "base_url": str(request.base_url).rstrip("/"),
        "bootstrap": bootstrap_address(node, request.url.hostname or "localhost"),
        "navigation": at_one_broker(state_of(request).navigation, node.node_id),
        "node_pages": at_broker(NODE_PAGES, node.node_id),
        "node_api": at_broker(NODE_API, node.node_id),
        "config_api": own_api(request, node.node_id, "/config"),
        "changes_api": own_api(request, node.node_id, "/changes"),
        "config_page": f"/brokers/{node.node_id}/config" if ASKED_THROUGH in request.scope else "/config",
        "has_peers": bool(state_of(request).cluster.peers.broker_ids()),
        "silent_brokers": state_of(request).cluster.peers.silent(),
        "asked_through": request.scope.get(ASKED_THROUGH),
        "read_only": caller is not None and caller.role is Role.VIEWER,
        "has_login": caller is not None and not caller.is_anonymous,
        "can_log_in": caller is not None and caller.is_anonymous,
        "assets": ASSETS,
    }


def own_api(request: Request, node_id: int, path: str) -> str:
    """The address of the API, of the cluster's or of this broker's own where another one was asked for the page."""
    return (at_broker(NODE_API, node_id) if ASKED_THROUGH in request.scope else "/api/v1") + path


def render_template(name: str, context: dict[str, Any]) -> str:
    """A page; runs in a worker thread, where the template is compiled, too, when it is first used."""
    return TEMPLATES.get_template(name).render(**context)


async def page_response(request: Request, render: Callable[[], str], status: int = 200) -> Response:
    """The page that ``render`` returns. It runs in a worker thread, one page after another."""
    return HTMLResponse(await trio.to_thread.run_sync(render, limiter=state_of(request).rendering), status)


def error_page(request: Request, status: int, title: str, text: str) -> Response:
    """An error as a page of this site, with its header and its links to the other pages."""
    context = frame(request) | {"here": None, "script": "watch.js"}
    page = TEMPLATES.get_template("error.html").render(**context, status=status, title=title, text=text)
    return HTMLResponse(page, status)


def starting_page(start: StartView, status: int) -> Response:
    """What every page is while the broker starts. Nothing can be reached from it, so it has no frame."""
    node_api = at_broker(NODE_API, start.broker_id)
    context = {"assets": ASSETS, "refresh_seconds": REFRESH_SECONDS, "node_api": node_api}
    page = TEMPLATES.get_template("starting.html")
    text = page.render(**context, reason=start.readiness().reason, progress=start.recovery())
    return HTMLResponse(text, status)
