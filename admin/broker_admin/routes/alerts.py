"""``/alerts`` of a broker: what its rules have found for long enough, and whether a receiver knows."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response
from broker_admin.routing import NodeRoute
from broker_admin.tokens import Role
from broker_admin.views.node.alerts import AlertReport
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(AlertReport)
async def get_alerts(request: Request) -> Response:
    """The active alerts, the failing ones first, and the last delivery to `alerts.webhook.url`.

    At most 200 alerts are listed; `total` counts all of them.
    """
    return json_response(node_of(request).alerts.report())


ROUTES = [NodeRoute(NODE_API + "/alerts", get_alerts)]
