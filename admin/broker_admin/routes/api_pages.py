"""``/api``: the description of the API as a page, on which every GET can be tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from broker_admin.openapi import openapi_document
from broker_admin.pages import TEMPLATES, frame, page_response
from broker_admin.requirements import open_to_all
from broker_admin.routing import Route

API_PREFIX = "/api/v1/"


@attrs.frozen
class ApiArea:
    """The operations below one address, in the order of their paths; ``name`` is the first part of those."""

    name: str
    operations: tuple[Mapping[str, Any], ...]


@open_to_all
async def get_api_page(request: Request) -> Response:
    """The description of the API."""
    context = frame(request) | {"here": "api", "script": "api.js"}
    render = partial(render_api, context, request.app.routes)
    return await page_response(request, render)


def render_api(context: dict[str, Any], routes: Iterable[BaseRoute]) -> str:
    """The page; runs in a worker thread."""
    document = openapi_document(routes)
    schemas = dict(sorted(document["components"]["schemas"].items()))
    return TEMPLATES.get_template("api/index.html").render(**context, areas=areas_of(document), schemas=schemas)


def areas_of(document: Mapping[str, Any]) -> list[ApiArea]:
    """The operations of a description by area; what is not below the API's prefix comes last."""
    areas: dict[str, list[Mapping[str, Any]]] = {}
    for path, methods in sorted(document["paths"].items(), key=lambda item: (area_of(item[0]), item[0])):
        for method, operation in methods.items():
            areas.setdefault(area_of(path)[1], []).append({**operation, "path": path, "method": method.upper()})
    return [ApiArea(name, tuple(operations)) for name, operations in areas.items()]


def area_of(path: str) -> tuple[bool, str]:
    """The area of a path, behind whether it comes last."""
    if not path.startswith(API_PREFIX):
        return True, "health and metrics"
    return False, path.removeprefix(API_PREFIX).partition("/")[0].partition(":")[0]


ROUTES = [Route("/api", get_api_page)]
