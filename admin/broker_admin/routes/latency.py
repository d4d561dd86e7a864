"""How long requests take, and what limits the broker. All GET, all JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.metrics.bottleneck import Bottleneck
from trio_broker.metrics.latency import LatencyReport


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(LatencyReport)
async def get_latency(request: Request) -> Response:
    """The time of requests by API and phase, and their errors: of the last minute, and since the start."""
    return await json_response_from_thread(node_of(request).latency.report())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Bottleneck)
async def get_bottleneck(request: Request) -> Response:
    """What limits the broker now, by which readings, and the one setting that would help.

    The readings are means over the last ten seconds.
    """
    return json_response(node_of(request).latency.bottleneck())


ROUTES = [
    NodeRoute(NODE_API + "/latency", get_latency),
    NodeRoute(NODE_API + "/bottleneck", get_bottleneck),
]
