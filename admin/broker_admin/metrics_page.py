"""``/metrics``: the broker's numbers in Prometheus's text format.

The broker takes the numbers on its event loop, in slices where there are many; turning them into text takes longer
(some 13 µs a series), so that happens in a worker thread, one at a time.
"""

from __future__ import annotations

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.operations import operation
from broker_admin.requirements import of_cluster, requires
from broker_admin.routing import Route
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER

PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(None, media_type="text/plain")
async def get_metrics(request: Request) -> Response:
    """All metrics, in the text format that Prometheus scrapes; while the broker starts only how far it is."""
    state = state_of(request)
    if (start := state.start) is not None:
        render = start.prometheus_renderer()
    else:
        render = await state.node.metrics.prometheus_renderer(failed_admin_logins=state.failed_logins)
    text = await trio.to_thread.run_sync(render, limiter=state.rendering)
    return Response(text, headers={"content-type": PROMETHEUS_CONTENT_TYPE})


ROUTES = [Route("/metrics", get_metrics)]
