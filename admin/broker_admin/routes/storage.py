"""``/api/v1/storage``: the disks, what leaves them, and what the last start found."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.encoding import json_response_from_thread
from broker_admin.operations import operation
from broker_admin.parts import view_of
from broker_admin.views.storage import StorageReport


@operation(StorageReport)
async def get_storage(request: Request) -> Response:
    """Data directories with a forecast, the largest topics, retention, compaction, syncs, and the last recovery."""
    return await json_response_from_thread(await view_of(request).storage.report())


ROUTES = [Route("/api/v1/storage", get_storage)]
