"""``/api/v1/openapi.json``: the HTTP API described, by ``broker_admin.openapi``."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from broker_admin.app_state import state_of
from broker_admin.encoding import encode
from broker_admin.openapi import openapi_document
from broker_admin.requirements import open_to_all
from broker_admin.routing import Route


@open_to_all
async def get_openapi(request: Request) -> Response:
    """This description."""
    state = state_of(request)
    if state.openapi is None:
        # Some tens of milliseconds of work, always with the same result.
        state.openapi = await trio.to_thread.run_sync(encoded_document, request.app.routes, limiter=state.rendering)
    return Response(state.openapi, media_type="application/json")


def encoded_document(routes: Iterable[BaseRoute]) -> bytes:
    return encode(openapi_document(routes))


ROUTES = [Route("/api/v1/openapi.json", get_openapi)]
