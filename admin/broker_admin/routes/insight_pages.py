"""The pages of a broker that say what its disks and its event loop are busy with, and the address of all its pages."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker_admin.app_state import node_of, state_of
from broker_admin.node_addresses import NODE_PAGES, at_broker
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import of_cluster, requires
from broker_admin.routing import NodeRoute
from broker_admin.storage_texts import forecast_text, recovery_text, retention_text
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_broker_page(request: Request) -> Response:
    """Lead to the first of the broker's pages that the navigation has."""
    state = state_of(request)
    first = next(each for each in state.navigation if each.path.startswith(f"{NODE_PAGES}/"))
    return RedirectResponse(at_broker(first.path, state.broker_id), HTTPStatus.TEMPORARY_REDIRECT)


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
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


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
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


ROUTES = [
    NodeRoute(NODE_PAGES, get_broker_page),
    NodeRoute(NODE_PAGES + "/storage", get_storage_page),
    NodeRoute(NODE_PAGES + "/tasks", get_tasks_page),
]
