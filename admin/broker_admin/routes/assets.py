"""``/static``: the files of the pages."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.pages import ASSETS
from broker_admin.requirements import open_to_all
from broker_admin.routing import Route


@open_to_all
async def get_asset(request: Request) -> Response:
    """A file of the page, by its plain name."""
    asset = ASSETS.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    etag = f'"{asset.tag}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


ROUTES = [Route("/static/{name}", get_asset)]
