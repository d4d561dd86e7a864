"""``/``, the overview: whether the broker is healthy, its load, and a few of everything."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from broker_admin.getting_started import bootstrap_address, creation_command, snippets
from broker_admin.health import FULL_DISK_RATIO, used_ratio
from broker_admin.overview import Overview, overview_of
from broker_admin.pages import frame, render_template
from broker_admin.parts import parts_of
from broker_admin.routes.changes_pages import WORDS
from broker_admin.storage_texts import forecast_text
from broker_admin.view import BrokerView


async def get_overview_page(request: Request) -> Response:
    """The overview."""
    parts = parts_of(request)
    overview = await overview_of(parts.view)
    context = frame(parts.view, request) | WORDS | start_context(parts.view, overview, request.url.hostname or "")
    context |= {
        "here": "overview",
        "script": "overview.js",
        "overview": overview,
        "forecast_text": forecast_text,
        "used_ratio": used_ratio,
        "full_disk_ratio": FULL_DISK_RATIO,
    }
    render = partial(render_template, "overview/overview.html", context)
    return HTMLResponse(await trio.to_thread.run_sync(render, limiter=parts.rendering))


def start_context(view: BrokerView, overview: Overview, dialled_host: str) -> dict[str, Any]:
    """What the page says on a broker without records."""
    if overview.has_records:
        return {"bootstrap": None}
    bootstrap = bootstrap_address(overview.node, dialled_host)
    creates_topics = next(
        (entry.value == "true" for entry in view.config.entries() if entry.name == "auto.create.topics.enable"), True
    )
    return {
        "bootstrap": bootstrap,
        "snippets": snippets(bootstrap),
        "creation_command": None if creates_topics else creation_command(bootstrap),
    }


ROUTES = [Route("/", get_overview_page)]
