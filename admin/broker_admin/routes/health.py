"""``/healthz``, also as ``/livez``, and ``/readyz``: is the process alive, and does it serve clients.

They say only up or down, with a reason when down: a monitor may be trusted with less than an operator.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from broker_admin.app_state import state_of
from broker_admin.operations import operation
from broker_admin.requirements import open_to_all
from broker_admin.routing import Route


@open_to_all
@operation(None, media_type="text/plain")
async def healthz(request: Request) -> Response:
    """200 whenever the event loop still turns; that this was answered is the whole proof."""
    return PlainTextResponse("ok\n")


@open_to_all
@operation(None, media_type="text/plain")
async def livez(request: Request) -> Response:
    """``/healthz`` by the name that Kubernetes has for it."""
    return await healthz(request)


@open_to_all
@operation(None, media_type="text/plain", other_statuses={503: "clients are not served"})
async def readyz(request: Request) -> Response:
    """200 while clients are served, else 503."""
    readiness = state_of(request).readiness()
    if readiness.ready:
        return PlainTextResponse("ready\n")
    return PlainTextResponse(f"not ready: {readiness.reason}\n", 503)


ROUTES = [Route("/healthz", healthz), Route("/livez", livez), Route("/readyz", readyz)]
