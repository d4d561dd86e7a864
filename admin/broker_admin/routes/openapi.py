"""``/api/v1/openapi.json``: the HTTP API described, from the same attrs classes and docstrings that serve it."""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin import group_list, metrics_page
from broker_admin.encoding import MEMBERS_OF_GROUPS, converter, json_response
from broker_admin.routes import config, events, groups, health, readings, segments
from broker_admin.views.config import ConfigRefusal, JournalEntry
from broker_admin.views.groups import GroupsRebalanced
from broker_admin.views.node import NodeDescription
from broker_admin.views.readings import ThreadStatistics
from broker_admin.views.segments import TopicManifest
from trio_broker.config.entries import ConfigEntry
from trio_broker.coordinator.reporting.snapshot import GroupLag, GroupOffsets, GroupSnapshot, Rebalance
from trio_broker.metrics.history import HistorySample
from trio_broker.metrics.topics import TopicInfo

PLAIN_SCHEMAS: Mapping[type, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
}

DESCRIBED_CLASSES: tuple[type, ...] = (
    NodeDescription,
    ConfigEntry,
    JournalEntry,
    ConfigRefusal,
    ThreadStatistics,
    TopicInfo,
    TopicManifest,
    HistorySample,
    group_list.GroupList,
    GroupSnapshot,
    GroupOffsets,
    Rebalance,
    GroupsRebalanced,
)
"""What appears at the top of an answer; the classes inside them are found by following their attributes."""


QUERY_PARAMETERS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    **groups.QUERY_PARAMETERS,
    **segments.QUERY_PARAMETERS,
}


def schema_of(annotation: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type annotation; the schemas of classes are put into ``found`` and referred to."""
    if annotation in PLAIN_SCHEMAS:
        return PLAIN_SCHEMAS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"type": "string", "enum": [converter.unstructure(member) for member in annotation]}
    if isinstance(annotation, type) and attrs.has(annotation):
        return schema_of_class(annotation, found)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(argument, found) for argument in arguments]}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0], found)}
    assert origin is Mapping, f"no schema for {annotation}"
    return {"type": "object", "additionalProperties": schema_of(arguments[1], found)}


def schema_of_class(described: type, found: dict[str, Any]) -> dict[str, Any]:
    """A reference to the schema of an attrs class, which is made on the way if it is not there yet."""
    name = described.__name__
    if name not in found:
        found[name] = {}  # A class that contains itself finds its own name taken.
        properties = properties_of(described, found)
        if described is GroupLag:
            # As ``encoding`` writes it.
            del properties["group"]
            group = properties_of(GroupSnapshot, found)
            properties |= {name: group[name] for name in group if name not in MEMBERS_OF_GROUPS}
        found[name] = {
            "type": "object",
            "description": inspect.getdoc(described),
            "properties": properties,
            "required": list(properties),
        }
    return {"$ref": f"#/components/schemas/{name}"}


def properties_of(described: type, found: dict[str, Any]) -> dict[str, Any]:
    """The schemas of an attrs class's fields, by their names."""
    hints = typing.get_type_hints(described)
    return {field.name: schema_of(hints[field.name], found) for field in attrs.fields(described)}


def operation_of(route: Route, method: str) -> dict[str, Any]:
    """One method of one address, described by its function's docstring."""
    summary = (inspect.getdoc(methods_of(route)[method]) or "").partition("\n")[0]
    operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": "the answer"}}}
    if parameters := parameters_of(route.path):
        operation["parameters"] = parameters
    if method == "patch":
        value = {"type": ["string", "number", "boolean", "null"]}
        body = {"schema": {"type": "object", "additionalProperties": value}}
        operation["parameters"] = [
            {"name": "X-Requested-With", "in": "header", "required": True, "schema": {"type": "string"}}
        ]
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
        operation["responses"]["422"] = {"description": "refused; nothing was changed: error, refusals"}
    return operation


def parameters_of(path: str) -> list[dict[str, Any]]:
    """What goes into an address's path and query."""
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    in_query = [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in QUERY_PARAMETERS.get(path, {}).items()
    ]
    return in_path + in_query


def methods_of(route: Route) -> dict[str, Callable[..., Any]]:
    """What answers each method of an address: the methods of a class, or one function that answers GET."""
    if isinstance(route.endpoint, type):
        return {name: getattr(route.endpoint, name) for name in ("get", "patch") if hasattr(route.endpoint, name)}
    return {"get": route.endpoint}


@functools.cache
def openapi_document() -> dict[str, Any]:
    """The whole description, made once."""
    schemas: dict[str, Any] = {}
    for described in DESCRIBED_CLASSES:
        schema_of(described, schemas)
    routes = (
        *config.ROUTES,
        *readings.ROUTES,
        *segments.ROUTES,
        *groups.ROUTES,
        *events.ROUTES,
        *health.ROUTES,
        *metrics_page.ROUTES,
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "trio-broker admin API", "version": "1"},
        "paths": {
            route.path: {method: operation_of(route, method) for method in methods_of(route)} for route in routes
        },
        "components": {"schemas": schemas},
    }


async def get_openapi(request: Request) -> Response:
    """This description."""
    return json_response(openapi_document())


ROUTES = [Route("/api/v1/openapi.json", get_openapi)]
