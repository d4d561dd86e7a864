"""``/api/v1/groups``: consumer groups with their members, offsets, lag and rebalances. All GET, all JSON.

A group id is free text. In a path it is one segment, percent-encoded, slashes as ``%2F``; the addresses are matched
before they are decoded. What no path can carry (``.``, ``..``, the empty id, or any slash through a proxy that decodes
paths) goes into the query: ``/api/v1/groups/-/timeline?group_id=..``, where what stands in the path does not count.

Lists come in parts: ``offset`` and ``limit``. They are put together in a worker thread; lag is read for one group at a
time, since that may mean a look at the disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import attrs
import trio
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from broker_admin.encoding import encode, json_response_from_thread
from broker_admin.errors import error_response
from broker_admin.group_list import DEFAULT_LIMIT, MAX_LIMIT, GroupOrder, GroupQuery, select_groups
from broker_admin.parts import parts_of
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupType

MAX_SEARCH_LENGTH = 1000
"""Longer than any name a person types; the search looks through every group's id."""


class BadQuery(Exception):
    """The query cannot be understood; the text says why."""


class GroupRoute(Route):
    """A Route that is matched against the path as it was sent, so that ``%2F`` is not yet a slash."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw_path = scope.get("raw_path")
        sent = raw_path.decode("latin-1") if raw_path is not None else scope.get("path", "")
        match, child_scope = super().matches({**scope, "path": sent})
        if match is not Match.NONE:
            child_scope["path_params"] = {name: unquote(value) for name, value in child_scope["path_params"].items()}
        return match, child_scope


def group_id_of(request: Request) -> str:
    """The group that a request is about."""
    return str(request.query_params.get("group_id", request.path_params["group_id"]))


def group_query(parameters: QueryParams, default_order: GroupOrder = GroupOrder.GROUP_ID) -> GroupQuery:
    """What a request's query asks of the list of groups.

    Raises:
        BadQuery: a parameter has no such value.
    """
    types = frozenset(each.lower() for each in parameters.getlist("type") if each)
    if unknown := types - {each.value for each in GroupType}:
        raise BadQuery(f"type is classic or consumer, not {min(unknown)[:40]!r}")
    try:
        order = GroupOrder(parameters.get("order") or default_order.value)
    except ValueError:
        raise BadQuery(f"order is one of {', '.join(each.value for each in GroupOrder)}") from None
    search = parameters.get("search", "")
    if len(search) > MAX_SEARCH_LENGTH:
        raise BadQuery(f"search is at most {MAX_SEARCH_LENGTH} characters long")
    return GroupQuery(
        search=search,
        states=frozenset(each.lower() for each in parameters.getlist("state") if each),
        types=types,
        order=order,
        offset=whole_number(parameters, "offset", 0, 0, 2**31 - 1),
        limit=whole_number(parameters, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT),
    )


def whole_number(parameters: QueryParams, name: str, default: int, minimum: int, maximum: int) -> int:
    """A parameter that is a number from ``minimum`` to ``maximum``."""
    text = parameters.get(name) or str(default)
    digits = text if text.isascii() and text.isdecimal() and len(text) <= math.ceil(math.log10(maximum + 1)) else ""
    if not digits or not minimum <= int(digits) <= maximum:
        raise BadQuery(f"{name} is a whole number from {minimum} to {maximum}")
    return int(digits)


def part_of(request: Request) -> slice:
    """Which members or partitions a request wants: ``offset`` and ``limit``, up to a thousand if it does not say."""
    offset = whole_number(request.query_params, "offset", 0, 0, 2**31 - 1)
    return slice(offset, offset + whole_number(request.query_params, "limit", MAX_LIMIT, 1, MAX_LIMIT))


def no_such_group() -> Response:
    return error_response(
        404, "there is no such group, or it is still being loaded; /api/v1/groups lists those there are"
    )


async def get_groups(request: Request) -> Response:
    """The groups, by id unless another order is asked for, with state, members and lag."""
    try:
        query = group_query(request.query_params)
    except BadQuery as error:
        return error_response(400, str(error))
    report = await parts_of(request).view.groups()
    return Response(await trio.to_thread.run_sync(encode_list, report, query), media_type="application/json")


def encode_list(report: GroupLagReport, query: GroupQuery) -> bytes:
    return encode(select_groups(report, query))


async def get_group(request: Request) -> Response:
    """One group with its members and what is assigned to them; ``offset`` and ``limit`` count members."""
    try:
        part = part_of(request)
    except BadQuery as error:
        return error_response(400, str(error))
    group = parts_of(request).view.group(group_id_of(request))
    if group is None:
        return no_such_group()
    return await json_response_from_thread(attrs.evolve(group, members=group.members[part]))


async def get_offsets(request: Request) -> Response:
    """A group's committed offsets with lag in records and in seconds; ``offset`` and ``limit`` count partitions."""
    parts = parts_of(request)
    try:
        part = part_of(request)
    except BadQuery as error:
        return error_response(400, str(error))
    async with parts.reading_lag:
        offsets = await parts.view.group_offsets(group_id_of(request))
    if offsets is None:
        return no_such_group()
    return await json_response_from_thread(attrs.evolve(offsets, partitions=offsets.partitions[part]))


async def get_timeline(request: Request) -> Response:
    """A group's recent rebalances, oldest first: when, how long, and who made them happen, and why."""
    rebalances = parts_of(request).view.group_timeline(group_id_of(request))
    if rebalances is None:
        return no_such_group()
    return await json_response_from_thread({"rebalances": list(rebalances)})


LIST_PARAMETERS: Mapping[str, dict[str, Any]] = {
    "search": {"type": "string", "maxLength": MAX_SEARCH_LENGTH},
    "state": {"type": "array", "items": {"type": "string"}},
    "type": {"type": "array", "items": {"type": "string", "enum": [each.value for each in GroupType]}},
    "order": {"type": "string", "enum": [each.value for each in GroupOrder], "default": GroupOrder.GROUP_ID.value},
    "offset": {"type": "integer", "minimum": 0, "default": 0},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
}

GROUP_ID_PARAMETER: Mapping[str, dict[str, Any]] = {"group_id": {"type": "string"}}

PART_PARAMETERS: Mapping[str, dict[str, Any]] = {
    **GROUP_ID_PARAMETER,
    "offset": {"type": "integer", "minimum": 0, "default": 0},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": MAX_LIMIT},
}

QUERY_PARAMETERS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "/api/v1/groups": LIST_PARAMETERS,
    "/api/v1/groups/{group_id}": PART_PARAMETERS,
    "/api/v1/groups/{group_id}/offsets": PART_PARAMETERS,
    "/api/v1/groups/{group_id}/timeline": GROUP_ID_PARAMETER,
}
"""What each address takes in its query, for the description."""

ROUTES = [
    Route("/api/v1/groups", get_groups),
    GroupRoute("/api/v1/groups/{group_id}", get_group),
    GroupRoute("/api/v1/groups/{group_id}/offsets", get_offsets),
    GroupRoute("/api/v1/groups/{group_id}/timeline", get_timeline),
]
