"""``/api/v1/overview``: whether the broker is healthy, and a few of everything."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.operations import operation
from broker_admin.overview import Overview, overview_of
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routing import Route
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Overview)
async def get_overview(request: Request) -> Response:
    """Whether the broker is healthy, its load, its fullest topics, slowest groups, newest changes and errors.

    Parts of it may be some seconds old.
    """
    return await json_response_from_thread(await overview_of(state_of(request).view))


ROUTES = [Route("/api/v1/overview", get_overview)]
