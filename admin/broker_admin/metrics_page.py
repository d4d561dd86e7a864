"""``/metrics``: the broker's numbers in Prometheus's text format.

The broker takes the numbers on its event loop, in slices where there are many; turning them into text takes longer
(some 13 µs a series), so that happens in a worker thread, one at a time.
"""

from __future__ import annotations

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.app_state import state_of
from broker_admin.operations import operation

PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@operation(None, media_type="text/plain")
async def get_metrics(request: Request) -> Response:
    """All metrics, in the text format that Prometheus scrapes; while the broker starts only how far it is."""
    state = state_of(request)
    if (start := state.start) is not None:
        render = start.prometheus_renderer()
    else:
        render = await state.node.metrics.prometheus_renderer()
    text = await trio.to_thread.run_sync(render, limiter=state.rendering)
    return Response(text, headers={"content-type": PROMETHEUS_CONTENT_TYPE})


ROUTES = [Route("/metrics", get_metrics)]
