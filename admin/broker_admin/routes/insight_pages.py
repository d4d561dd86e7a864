"""The pages ``/storage`` and ``/tasks`` of a broker: what its disks and its event loop are busy with."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.node_addresses import NODE_PAGES
from broker_admin.pages import frame, page_response, render_template
from broker_admin.routing import NodeRoute
from broker_admin.storage_texts import forecast_text, recovery_text, retention_text


async def get_storage_page(request: Request) -> Response:
    """The disks."""
    context = frame(request) | {
        "here": "storage",
        "script": "fresh.js",
        "report": await node_of(request).storage.report(),
        "forecast_text": forecast_text,
        "retention_text": retention_text,
        "recovery_text": recovery_text,
    }
    render = partial(render_template, "storage/storage.html", context)
    return await page_response(request, render)


async def get_tasks_page(request: Request) -> Response:
    """The tasks of the event loop."""
    tree = await node_of(request).tasks.tree()
    longest = max(tree.slowest_pass_ms, default=0.0)
    heights = [round(each / longest * 100, 1) if longest else 0.0 for each in tree.slowest_pass_ms]
    context = frame(request) | {
        "here": "tasks",
        "script": "fresh.js",
        "tree": tree,
        "pass_heights": heights,
    }
    render = partial(render_template, "tasks/tasks.html", context)
    return await page_response(request, render)


ROUTES = [NodeRoute(NODE_PAGES + "/storage", get_storage_page), NodeRoute(NODE_PAGES + "/tasks", get_tasks_page)]
